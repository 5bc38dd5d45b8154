"""A connection: uvicorn's protocol, with limits for slow clients and for those that cost much.

uvicorn has no limit for a client that sends its headers, or reads its answer, slowly. And it parses
all that has arrived at once; here, connections take turns, the next host first.
"""

from __future__ import annotations

import asyncio
import functools
import json

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from service.calls.call_context import host_of
from service.common.fairness import FairLoop
from service.fronts.http.transfers import HttpLimits
from service.ports.http.connection_limit import ConnectionLimit, Waiting
from service.ports.http.connection_parser import ConnectionParser

# That are kept of the next requests while one is answered.
_MAX_AHEAD_BYTES = 64 * 1024
# How long a connection stays open after a refused request, and how much of what follows is dropped.
_REST_SECONDS = 2.0
_REST_BYTES = 2**20


class Connection(H11Protocol):
    """A connection that is closed if its client is too slow, in either direction.

    Args:
        turns: shares the time for parsing among hosts.
    """

    conn: ConnectionParser
    flow: _HeldFlow

    def __init__(
        self,
        config: Config,
        state: ServerState,
        limits: HttpLimits,
        limit: ConnectionLimit,
        turns: FairLoop,
    ) -> None:
        super().__init__(config, state, {})
        self._limits = limits
        self._limit = limit
        self._turns = turns
        self._host = ""
        self._turn: asyncio.Task[None] | None = None  # while others parse
        self._is_refused = False
        self._num_dropped = 0
        self._idle_since = 0.0
        self._timers: dict[str, asyncio.TimerHandle] = {}

    @property
    def waiting(self) -> Waiting | None:
        """Since when it is idle, or its client has read nothing; None while the server works."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete or self._is_refused:
            return False, self._idle_since
        stopped = self._timers.get("write")
        return None if stopped is None else (True, stopped.when() - self._limits.write_seconds)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, if there is room for another connection."""
        super().connection_made(transport)
        self.flow = _HeldFlow(transport)
        self._host = host_of(f"ipv:{self.client[0]}:" if self.client else "")
        self.conn = ConnectionParser(
            self._limits, functools.partial(self._turns.is_over, self._host)
        )
        self.app_state = {"abort": transport.abort}  # for answers that can't be ended otherwise
        transport.set_write_buffer_limits(high=2**16)
        self._idle_since = self.loop.time()
        if self._limit.enter(self):
            self._abort_in("head", self._limits.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the connection's place and its timers."""
        self._limit.leave(self)
        if self._turn is not None:
            self._turn.cancel()
        for name in list(self._timers):
            self._keep(name)
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        # It holds this connection: without a circle, all is freed without the garbage collector.
        self.cycle = None  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        """Parse, when it is the host's turn."""
        if not self._is_refused:
            super().data_received(data)
            return
        self._num_dropped += len(data)
        if self._num_dropped > _REST_BYTES:
            self.transport.pause_reading()

    def handle_events(self) -> None:
        """Parse until the turn is over, within the time for a request's headers."""
        if self._turn is None:
            self.conn.begin()
            super().handle_events()
        if self._is_refused:
            return
        if self.conn.is_interrupted:
            self.flow.hold()
            if self._turn is None:
                self._turn = self.loop.create_task(self._go_on())
        cycle: RequestResponseCycle | None = self.cycle
        num_ahead = self.conn.num_ahead
        if cycle is not None and not cycle.response_complete:
            self._keep("head")
            # uvicorn stops to read where the next request begins. Then it would not notice that
            # the client is gone, and the call would go on.
            if self.conn.their_state is h11.DONE and num_ahead <= _MAX_AHEAD_BYTES:
                self.flow.resume_reading()
        elif cycle is not None and self.conn.their_state is h11.IDLE and not num_ahead:
            # The end of a body that was answered before it had arrived.
            self._keep("head")
            self._unset_keepalive_if_required()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        elif "head" not in self._timers and not self.transport.is_closing():
            self._abort_in("head", self._limits.head_seconds)

    async def _go_on(self) -> None:
        await self._turns.wait(self._host)
        self._turn = None
        self.flow.release()
        try:
            self.handle_events()
        except Exception:  # as asyncio does where it parses
            self.transport.abort()
            raise

    def pause_writing(self) -> None:
        """Wait for the client to read."""
        super().pause_writing()
        self._abort_in("write", self._limits.write_seconds)

    def resume_writing(self) -> None:
        """Resume writing."""
        super().resume_writing()
        self._keep("write")

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._idle_since = self.loop.time()
        super().on_response_complete()
        if self.transport.is_closing():
            self._abort_in("close", self._limits.write_seconds)

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, even if its client has not read the last answer."""
        super().timeout_keep_alive_handler()
        self._abort_in("close", self._limits.write_seconds)

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are not a request, or beyond a limit, with an error in the usual form.

        If an answer has begun, it stays without an end.
        """
        self._is_refused = True
        is_unanswered = self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE)
        is_head = False
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            # Of a request whose body is broken: its own answer would come after this one.
            cycle.disconnected = True
            cycle.waiting_for_100_continue = False
            cycle.message_event.set()
            is_head = cycle.scope["method"] == "HEAD"
        if is_unanswered:
            self._send_refusal(is_head=is_head)
        # A connection that is closed while its client sends is reset, and the client would not see
        # the answer.
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.transport.resume_reading()
        self._keep("head")
        self._abort_in("close", _REST_SECONDS)

    def _send_refusal(self, *, is_head: bool) -> None:
        http_status, message = self.conn.refusal
        body = json.dumps({"code": 3, "message": message, "details": []}).encode()
        head = h11.Response(
            status_code=http_status,
            headers=[
                (b"content-type", b"application/json"),
                (b"content-length", str(len(body)).encode()),
                (b"connection", b"close"),
            ],
        )
        content = [] if is_head else [h11.Data(data=body)]
        for event in (head, *content, h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")

    def _abort_in(self, name: str, seconds: float) -> None:
        self._keep(name)
        self._timers[name] = self.loop.call_later(seconds, self.transport.abort)

    def _keep(self, name: str) -> None:
        if timer := self._timers.pop(name, None):
            timer.cancel()


class _HeldFlow(FlowControl):
    """Flow control with a further reason to stop reading: bytes that wait for their turn."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._is_held = False

    def hold(self) -> None:
        """Read nothing until the release."""
        self._is_held = True
        self._transport.pause_reading()

    def release(self) -> None:
        """Read again, unless there is the other reason."""
        self._is_held = False
        if not self.read_paused:
            self._transport.resume_reading()

    def resume_reading(self) -> None:
        """Drop the other reason."""
        if self._is_held:
            self.read_paused = False
        else:
            super().resume_reading()
