"""One path of the contract: reads a JSON request, runs the call, sends its answer or its events."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

from google.protobuf.message import Message
from google.rpc import status_pb2
from starlette.types import Receive, Scope, Send

from dragoman.conversions import REQUEST_ID
from service.access.authentication import KEY_PARAMETER
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
from service.fronts.http.answers import HttpError, bad_request
from service.fronts.http.context import HttpContext
from service.fronts.http.request_json import JsonRequestParser
from service.fronts.http.transfers import Transfers

T = TypeVar("T")

_GONE = "the client disconnected"
# Larger bodies are read in a thread: escapes of a megabyte take a third of a second in a form.
_LARGE_BYTES = 16 * 1024


class CallEndpoint:
    """An ASGI application that answers the calls of one method.

    Args:
        method: its name in the contract.
        behaviour: the servicer's method: a coroutine function, or an asynchronous generator
            function.
        streams: whether it is the latter.
        has_body: whether the request is the body; otherwise, it is the parameters of the path.
        tracker: of all calls.
        parser: of JSON requests.
        transfers: of all connections.
    """

    def __init__(
        self,
        method: str,
        behaviour: Callable[[Any, Any], Any],
        *,
        streams: bool,
        has_body: bool,
        tracker: CallTracker,
        parser: JsonRequestParser,
        transfers: Transfers,
    ) -> None:
        self._method = method
        self._behaviour = behaviour
        self._streams = streams
        self._has_body = has_body
        self._tracker = tracker
        self._parser = parser
        self._transfers = transfers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            context = HttpContext(scope)
            self._check_head(scope, context)
        except HttpError as error:
            await answers.send_http_error(send, error)
            return
        running = RunningCall(self._tracker, self._method, context)
        client = HttpClient(scope, receive, host_of(context.peer()))
        stream = _EventStream(send, running.request_id)
        is_begun = False
        with running:
            async with within_deadline(context):
                await running.authenticate()
                request = await self._request(running, scope, client)
                async with client.watched():
                    if self._streams:
                        await self._stream(request, context, stream)
                    else:
                        async with self._transfers.encoded(
                            await self._behaviour(request, context), client.host
                        ) as body:
                            is_begun = True
                            async with self._transfers.least_rate(len(body)):
                                await answers.send_answer(send, body, running.request_id)
        await running.hold_refusal()
        if self._streams and (running.status is None or stream.is_open):
            await stream.close(running.status)
        elif running.status is not None and not is_begun:
            await answers.send_call_error(send, running, client.http_status)
        elif running.status is not None:
            await client.abort()

    async def _stream(self, request: Message, context: HttpContext, stream: _EventStream) -> None:
        async with contextlib.aclosing(self._behaviour(request, context)) as events:
            async for event in events:
                await stream.send(event)

    def _check_head(self, scope: Scope, context: HttpContext) -> None:
        """Refuse what can be refused without the body.

        Raises:
            HttpError: a parameter, a body that is too long, or one that is not JSON.
        """
        if name := _unknown_parameter(scope["query_string"].decode("latin-1")):
            raise bad_request(400, name, "this path takes no parameters but key")
        headers = context.headers
        if not self._has_body:
            return
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != answers.JSON:
            # Browsers send other types across origins without asking first.
            raise bad_request(415, "content-type", f"must be {answers.JSON}")
        if headers.get("content-encoding", "identity") != "identity":
            raise bad_request(415, "content-encoding", "not supported")
        max_bytes = self._transfers.max_body_bytes
        if int(headers.get("content-length", 0)) > max_bytes:
            raise bad_request(413, "body", f"more than {max_bytes:,} bytes, the limit")

    async def _request(self, running: RunningCall, scope: Scope, client: HttpClient) -> Message:
        """The request, once the call is within the quotas."""
        if not self._has_body:
            running.take_quotas(0)
            return self._tracker.parser.new(self._method, **scope.get("path_params", {}))
        async with client.body(self._transfers) as data:
            running.take_quotas(len(data))
            parse = functools.partial(self._parser.parse, self._method)
            return await parsed(parse, data, client.host)


async def parsed(parse: Callable[[bytes], T], data: bytes, host: str) -> T:
    """What `parse` makes of a body; of a large one in a thread. Raises what it raises."""
    if len(data) <= _LARGE_BYTES:
        return parse(data)
    # By address: whoever sends bodies chooses the names of clients.
    return await in_thread(functools.partial(parse, data), host)


class HttpClient:
    """The other side of one request.

    Args:
        scope: of ASGI.
        receive: likewise.
        host: its address.

    Attributes:
        host: as given.
        http_status: for an error of the body that has no gRPC code of its own; else None.
    """

    def __init__(self, scope: Scope, receive: Receive, host: str) -> None:
        self.host = host
        self.http_status: int | None = None
        self._receive = receive
        self._abort: Callable[[], None] = scope["state"]["abort"]

    async def abort(self) -> None:
        """Close the connection within an answer, which tells the client that it is not whole."""
        self._abort()
        while (await self._receive())["type"] != "http.disconnect":
            pass

    @contextlib.asynccontextmanager
    async def body(self, transfers: Transfers) -> AsyncIterator[bytes]:
        """Read the body. Its bytes are in the quota of unfinished ones until the block ends.

        Raises:
            InvalidArgumentError: it is too long.
            ResourceExhaustedError: too many bytes of unfinished bodies are held.
            DeadlineExceededError: it did not arrive in time.
            RequestCancelledError: the client disconnected.
        """
        held = bytearray()
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

    async def _pieces(self) -> AsyncIterator[bytes]:
        """Of the body, as they arrive. Raises RequestCancelledError."""
        has_more = True
        while has_more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise RequestCancelledError(_GONE)
            yield message["body"]
            has_more = message["more_body"]

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Cancel the block when the client disconnects. Once the body is read.

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


class _EventStream:
    """The answer of a call that streams, begun by its first message.

    Attributes:
        is_open: whether it has begun.
    """

    def __init__(self, send: Send, request_id: str) -> None:
        self.is_open = False
        self._send = send
        self._request_id = request_id

    async def send(self, message: Message, name: str = "") -> None:
        """Send an event; `name` is its type."""
        if not self.is_open:
            self.is_open = True
            headers = [
                ("content-type", "text/event-stream; charset=utf-8"),
                ("cache-control", "no-store"),
                ("x-accel-buffering", "no"),  # nginx would hold events back
                (REQUEST_ID, self._request_id),
            ]
            await answers.send_head(self._send, 200, headers)
        body = answers.event(message, name)
        await self._send({"type": "http.response.body", "body": body, "more_body": True})
        # Sending does not wait. So a lost connection is noticed before the next event: asyncio
        # would log each write to it.
        await asyncio.sleep(0)

    async def close(self, status: status_pb2.Status | None) -> None:
        """End it, with an event `error` if the call failed."""
        if status is not None:
            await self.send(status, "error")
        await self._send({"type": "http.response.body", "body": b""})


def _unknown_parameter(query: str) -> str:
    """The name of the first parameter that is not the API key; "" if there is none."""
    names = (pair.partition("=")[0] for pair in query.split("&") if query)
    return next((name[:100] or "?" for name in names if name != KEY_PARAMETER), "")


@contextlib.asynccontextmanager
async def within_deadline(context: HttpContext) -> AsyncIterator[None]:
    """Cancel the block when the deadline passes. Raises DeadlineExceededError."""
    try:
        async with asyncio.timeout(max(0.0, context.time_remaining())) as timeout:
            yield
    except TimeoutError as exc:
        if timeout.expired():
            raise DeadlineExceededError("the deadline passed") from exc
        raise
