"""Runs calls over HTTP: the contract's JSON and other services' APIs.

Limits of bodies, deadlines, disconnects of clients, answers and errors are the same for all.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import functools
import math
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TypeVar

from starlette.types import Receive, Scope, Send

from dragoman.conversions import REQUEST_ID
from service.calls.backend import Backend
from service.calls.call_context import host_of
from service.calls.call_tracker import CallTracker, RunningCall
from service.common.fairness import in_thread
from service.errors import (
    DeadlineExceededError,
    InvalidArgumentError,
    RequestCancelledError,
    ResourceExhaustedError,
)
from service.fronts.http import answers
from service.fronts.http.answers import Headers, HttpError
from service.fronts.http.context import HttpContext
from service.fronts.http.request_json import JsonRequestParser
from service.fronts.http.transfers import Transfers

T = TypeVar("T")

_GONE = "the client disconnected"
# Larger bodies are read in a thread, and so are those with many values, of JSON or of a form, or
# many lines, of parts: 16 KiB of empty objects take 40 milliseconds.
_LARGE_BYTES = 16 * 1024
_MOST_MARKS = 500
_MARKS = (b",", b"{", b"[", b"&", b"\n")


@dataclass(frozen=True)
class FrontServer:
    """The use cases, calls, connections and parser of JSON that all endpoints share."""

    backend: Backend
    tracker: CallTracker
    transfers: Transfers
    parser: JsonRequestParser


class HttpCall(RunningCall):
    """A call over HTTP, and the other side of its connection.

    Attributes:
        host: address of the client.
        http_status: status for an error of the body that has no gRPC code of its own; else None.
        is_begun: whether its answer has begun.
    """

    def __init__(
        self,
        server: FrontServer,
        method: str,
        front: str,
        context: HttpContext,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        super().__init__(server.tracker, method, context, front)
        self.context = context
        self.scope = scope
        self.send = send
        self.transfers = server.transfers
        self.host = host_of(context.peer())
        self.http_status: int | None = None
        self.is_begun = False
        self._receive = receive

    async def send_answer(
        self,
        write: Callable[[], bytes],
        size: int,
        http_status: int = 200,
        headers: Headers = (),
        kind: str = answers.JSON,
    ) -> None:
        """Send an answer, within the quota of large ones and at a least rate.

        Raises:
            ResourceExhaustedError: too many bytes are on their way to clients.
            RequestCancelledError: the client reads too slowly.
        """
        async with self.transfers.written(write, size, self.host) as body:
            del write  # holds the answer
            self.is_begun = True
            async with self.transfers.least_rate(len(body)):
                all_headers = [(REQUEST_ID, self.request_id), *headers]
                await answers.send_body(self.send, body, http_status, all_headers, kind)

    async def abort(self) -> None:
        """Close the connection within an answer, which tells the client that it is not whole."""
        self.scope["state"]["abort"]()
        while (await self._receive())["type"] != "http.disconnect":
            pass

    @contextlib.asynccontextmanager
    async def body(self) -> AsyncIterator[bytes]:
        """Read the body. Its bytes are in the quota of unfinished ones until the block ends.

        Raises:
            InvalidArgumentError: it is too long.
            ResourceExhaustedError: too many bytes of unfinished bodies are held.
            DeadlineExceededError: it did not arrive in time.
            RequestCancelledError: the client disconnected.
        """
        held, transfers = bytearray(), self.transfers
        seconds = transfers.limits.body_seconds
        num_taken = 0
        try:
            async with asyncio.timeout(seconds):
                async for piece in self._pieces():
                    if not transfers.arriving.take(len(piece), self.host):
                        raise ResourceExhaustedError(
                            f"bodies that have not arrived as a whole have "
                            f"{transfers.arriving.num_taken:,} bytes of at most "
                            f"{transfers.arriving.capacity:,}; this address may not send more now",
                            reason="bodies",
                        )
                    num_taken += len(piece)
                    held += piece
                    if len(held) > transfers.max_body_bytes:
                        self.http_status = 413
                        raise InvalidArgumentError(
                            "body", f"more than {transfers.max_body_bytes:,} bytes, the limit"
                        )
            yield bytes(held)
        except TimeoutError:
            self.http_status = 408
            raise DeadlineExceededError(
                f"the body did not arrive within {seconds:g} seconds"
            ) from None
        finally:
            transfers.arriving.release(num_taken, self.host)

    async def read(self, parse: Callable[[bytes], T], data: bytes) -> T:
        """Parse a body, a long or costly one in a thread. Raises what `parse` raises."""
        if len(data) <= _LARGE_BYTES and sum(map(data.count, _MARKS)) <= _MOST_MARKS:
            return parse(data)
        # By address: whoever sends bodies chooses the names of clients.
        return await in_thread(functools.partial(parse, data), self.host)

    async def _pieces(self) -> AsyncIterator[bytes]:
        """Yield the parts of the body as they arrive. Raises RequestCancelledError."""
        has_more = True
        while has_more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise RequestCancelledError(_GONE)
            yield message["body"]
            has_more = message["more_body"]

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Cancel the block when the client disconnects; for use after the body is read.

        Raises:
            RequestCancelledError: the client disconnected.
        """
        task = asyncio.current_task()
        assert task is not None
        is_gone = is_over = False

        async def watch() -> None:
            nonlocal is_gone
            while (await self._receive())["type"] != "http.disconnect":
                pass
            if not is_over:
                is_gone = True
                task.cancel()

        watcher = asyncio.create_task(watch())
        try:
            yield
        except asyncio.CancelledError:
            if is_gone and not task.uncancel():
                raise RequestCancelledError(_GONE) from None
            raise
        finally:
            is_over = True
            watcher.cancel()

    @contextlib.asynccontextmanager
    async def within_deadline(self) -> AsyncIterator[None]:
        """Cancel the block when the deadline passes. Raises DeadlineExceededError."""
        try:
            async with asyncio.timeout(max(0.0, self.context.time_remaining())) as timeout:
                yield
        except TimeoutError as exc:
            if timeout.expired():
                raise DeadlineExceededError("the deadline passed") from exc
            raise


class HttpEndpoint(abc.ABC):
    """An ASGI application that answers one path."""

    def __init__(self, server: FrontServer, method: str, front: str = "") -> None:
        self._server = server
        self._method = method
        self._front_name = front

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            context = HttpContext(scope)
            self._check_head(scope, context)
        except HttpError as error:
            await self._send_http_error(send, error)
            return
        call = HttpCall(self._server, self._method, self._front_name, context, scope, receive, send)
        with call:
            async with call.within_deadline():
                await self._run(call)
        await call.hold_refusal()
        await self._end(call)

    def _check_head(self, scope: Scope, context: HttpContext) -> None:  # noqa: B027
        """Refuse a request that is no call, before its body is read. Raises HttpError."""

    @abc.abstractmethod
    async def _run(self, call: HttpCall) -> None:
        """Authenticate the caller, read the request, and send the answer. Raises DragomanError."""

    async def _end(self, call: HttpCall) -> None:
        """End a call that has failed with its error, or in the middle of its answer."""
        if call.error is None:
            return
        if call.is_begun:
            await call.abort()
            return
        headers = [(REQUEST_ID, call.request_id)]
        if call.retry_after_seconds is not None:
            headers.append(("retry-after", str(max(1, math.ceil(call.retry_after_seconds)))))
        await self._send_error(call, headers)

    @abc.abstractmethod
    async def _send_error(self, call: HttpCall, headers: list[tuple[str, str]]) -> None:
        """Answer with the error of a call that has failed."""

    @abc.abstractmethod
    async def _send_http_error(self, send: Send, error: HttpError) -> None:
        """Answer with an error that is not a call's."""
