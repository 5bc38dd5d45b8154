"""One path of the contract: reads a JSON request, runs the call, sends its answer or its events."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from google.protobuf.message import Message
from google.rpc import status_pb2
from starlette.types import Receive, Scope, Send

from dragoman.conversions import REQUEST_ID
from service.api.call_tracker import CallTracker, RunningCall
from service.api.http import answers
from service.api.http.answers import HttpError, bad_request
from service.api.http.http_context import HttpContext
from service.api.http.request_json import JsonRequestParser
from service.errors import DeadlineExceededError, InvalidArgumentError, RequestCancelledError

_GONE = "the client disconnected"


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
        max_body_bytes: limit of a body.
        body_seconds: the time that a body has to arrive.
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
        max_body_bytes: int,
        body_seconds: float,
    ) -> None:
        self._method = method
        self._behaviour = behaviour
        self._streams = streams
        self._has_body = has_body
        self._tracker = tracker
        self._parser = parser
        self._max_body_bytes = max_body_bytes
        self._body_seconds = body_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            context = HttpContext(scope)
            num_bytes = self._checked_length(scope, context)
        except HttpError as error:
            await answers.send_http_error(send, error)
            return
        running = RunningCall(self._tracker, self._method, context, num_bytes)
        client = _Client(receive)
        stream = _EventStream(send, running.request_id)
        answer: bytes | None = None
        with running:
            async with _deadline(context):
                request = await self._request(running, scope, client)
                async with client.watched():
                    if self._streams:
                        await self._stream(request, context, stream)
                    else:
                        answer = await answers.encoded(await self._behaviour(request, context))
        if running.status is not None and not stream.is_open:
            await answers.send_call_error(send, running, client.http_status)
        elif answer is not None:
            await answers.send_answer(send, answer, running.request_id)
        else:
            await stream.close(running.status)

    async def _stream(self, request: Message, context: HttpContext, stream: _EventStream) -> None:
        async with contextlib.aclosing(self._behaviour(request, context)) as events:
            async for event in events:
                await stream.send(event)

    def _checked_length(self, scope: Scope, context: HttpContext) -> int:
        """The bytes that the body takes of the quota: its length or, if unknown, the limit.

        Raises:
            HttpError: a parameter, a body that is too long, or one that is not JSON.
        """
        if query := scope["query_string"]:
            name = query.decode("latin-1").partition("=")[0][:100]
            raise bad_request(400, name, "this path takes no parameters")
        headers = context.headers
        if not self._has_body:
            return 0
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != answers.JSON:
            # Browsers send other types across origins without asking first.
            raise bad_request(415, "content-type", f"must be {answers.JSON}")
        if headers.get("content-encoding", "identity") != "identity":
            raise bad_request(415, "content-encoding", "not supported")
        length = headers.get("content-length")
        num_bytes = self._max_body_bytes if length is None else int(length)
        if num_bytes > self._max_body_bytes:
            raise bad_request(413, "body", f"more than {self._max_body_bytes:,} bytes, the limit")
        return num_bytes

    async def _request(self, running: RunningCall, scope: Scope, client: _Client) -> Message:
        """The request, once the call is within the quotas."""
        running.check_quotas()
        if not self._has_body:
            return self._tracker.parser.new(self._method, **scope.get("path_params", {}))
        data = await client.body(self._max_body_bytes, self._body_seconds)
        return self._parser.parse(self._method, data)


class _Client:
    """The other side of one request.

    Attributes:
        http_status: for an error of the body that has no gRPC code of its own; else None.
    """

    def __init__(self, receive: Receive) -> None:
        self.http_status: int | None = None
        self._receive = receive

    async def body(self, max_bytes: int, seconds: float) -> bytes:
        """Read the body.

        Raises:
            InvalidArgumentError: it is too long.
            DeadlineExceededError: it did not arrive in time.
            RequestCancelledError: the client disconnected.
        """
        body = bytearray()
        has_more = True
        try:
            async with asyncio.timeout(seconds):
                while has_more:
                    message = await self._receive()
                    if message["type"] == "http.disconnect":
                        raise RequestCancelledError(_GONE)
                    body += message["body"]
                    has_more = message["more_body"]
                    if len(body) > max_bytes:
                        self.http_status = 413
                        raise InvalidArgumentError("body", f"more than {max_bytes:,} bytes")
        except TimeoutError:
            self.http_status = 408
            raise DeadlineExceededError(
                f"the body did not arrive within {seconds:g} seconds"
            ) from None
        return bytes(body)

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

    async def close(self, status: status_pb2.Status | None) -> None:
        """End it, with an event `error` if the call failed."""
        if status is not None:
            await self.send(status, "error")
        await self._send({"type": "http.response.body", "body": b""})


@contextlib.asynccontextmanager
async def _deadline(context: HttpContext) -> AsyncIterator[None]:
    """Cancel the block when the deadline passes. Raises DeadlineExceededError."""
    try:
        async with asyncio.timeout(max(0.0, context.time_remaining())) as timeout:
            yield
    except TimeoutError as exc:
        if timeout.expired():
            raise DeadlineExceededError("the deadline passed") from exc
        raise
