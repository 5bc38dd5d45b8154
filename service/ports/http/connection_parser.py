"""h11's parser with bounded work: what an event costs does not depend on its bytes.

A chunk of one byte takes as long as one of a megabyte, and so does a short header. A read of 256
KiB can hold 40,000 of either, which take half a second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import h11

from service.fronts.http.transfers import HttpLimits

# Given to h11 at a time. It parses all lines of a head or of trailers at once.
_MOST_BYTES = 64 * 1024
_MOST_LINES = 256
# Between two looks at the clock, each of which takes a tenth of an event or more.
_MOST_EVENTS = 16
# Of a body as it is sent, with at least so many bytes around each chunk, before the average counts.
_FIRST_BYTES = 4096
_FRAME_BYTES = 5
_NO_REQUEST = "not an HTTP/1.1 request, or its headers are too long"


class RefusedError(h11.RemoteProtocolError):
    """A request beyond a limit of the parser: a field, the limit, and an HTTP status."""

    def __init__(self, field: str, problem: str, http_status: int) -> None:
        super().__init__(f"{field}: {problem}", error_status_hint=http_status)


class ConnectionParser(h11.Connection):
    """The server's side of a connection, which stops when its turn is over.

    Args:
        limits: the bounds of heads and chunks.
        is_over: whether others have to get their turn, before the next events.

    Attributes:
        is_interrupted: whether the last `next_event` stopped for others.
        refusal: the HTTP status and the message for what `next_event` has refused.
    """

    def __init__(self, limits: HttpLimits, is_over: Callable[[], bool]) -> None:
        super().__init__(h11.SERVER, limits.head_bytes)
        self.is_interrupted = False
        self.refusal = 400, _NO_REQUEST
        self._limits = limits
        self._is_over = is_over
        self._num_events = 0
        self._unread = bytearray()
        self._has_chunks = False  # the present body
        self._num_chunks = self._num_bytes = 0

    @property
    def num_ahead(self) -> int:
        """Bytes that have arrived and are not parsed."""
        return len(self._unread) + len(self.trailing_data[0])

    def begin(self) -> None:
        """Begin to parse again, in this turn or another."""
        self._num_events = 0

    def receive_data(self, data: bytes) -> None:
        """Keep what has arrived, for `next_event`."""
        self._unread += data

    def next_event(self) -> Any:
        """The next event; `h11.NEED_DATA` also if the turn is over.

        Raises:
            h11.RemoteProtocolError: what has arrived is no request; `RefusedError`: it is beyond a
                limit.
        """
        self.is_interrupted = False
        try:
            while True:
                if self._num_events % _MOST_EVENTS == 0 and self._is_over():
                    self.is_interrupted = True
                    return h11.NEED_DATA
                self._num_events += 1
                event = super().next_event()
                if event is not h11.NEED_DATA:
                    self._check(event)
                    return event
                self._check_incomplete()
                if not self._unread:
                    return event
                super().receive_data(self._take())
        except h11.RemoteProtocolError as exc:
            if isinstance(exc, RefusedError):
                self.refusal = exc.error_status_hint, str(exc)
            # An error holds its frames, and they hold h11's error and this connection. All that has
            # arrived would stay until the garbage collector looks at it, for half a second.
            raise exc.with_traceback(None) from None

    def _take(self) -> bytes:
        """Remove some unread bytes, with few lines where each line takes time."""
        size = min(len(self._unread), _MOST_BYTES)
        if self._has_chunks or self.their_state is not h11.SEND_BODY:
            end = 0
            for _ in range(_MOST_LINES):
                end = self._unread.find(b"\n", end, size) + 1
                if not end:
                    break
            size = end or size
        taken = bytes(self._unread[:size])
        del self._unread[:size]
        return taken

    def _check(self, event: Any) -> None:
        """Refuse a body in tiny chunks, or with many trailers."""
        if isinstance(event, h11.Request):
            self._has_chunks = any(name == b"transfer-encoding" for name, _ in event.headers)
            self._num_chunks = self._num_bytes = 0
        elif isinstance(event, h11.EndOfMessage):
            self._check_lines("trailers", len(event.headers))
        elif isinstance(event, h11.Data) and self._has_chunks:
            self._num_chunks += event.chunk_start
            self._num_bytes += len(event.data)
            least = self._limits.chunk_bytes
            num_sent = self._num_bytes + _FRAME_BYTES * self._num_chunks
            if num_sent > _FIRST_BYTES and self._num_bytes < least * self._num_chunks:
                average = self._num_bytes / self._num_chunks
                problem = f"chunks of {average:.1f} bytes on average, {least} is the least"
                raise RefusedError("body", problem, 400)

    def _check_incomplete(self) -> None:
        """Refuse many lines of a head or of trailers before they are parsed."""
        # Besides them, only an incomplete line stays in h11's buffer.
        num_lines = self.trailing_data[0].count(b"\n")
        if self.their_state is h11.SEND_BODY:
            self._check_lines("trailers", num_lines - 1)  # without the chunk's first line
        else:
            self._check_lines("headers", num_lines - 1)  # without the request's first line

    def _check_lines(self, field: str, count: int) -> None:
        most = self._limits.max_headers
        if count > most:
            raise RefusedError(field, f"more than {most}, the limit", 431)
