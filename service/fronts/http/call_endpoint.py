"""One path of the contract: reads a JSON request, runs the call, sends its answer or its events."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.message import Message
from starlette.types import Scope, Send

from dragoman.conversions import REQUEST_ID
from service.access.authentication import KEY_PARAMETER
from service.fronts.http import answers
from service.fronts.http.answers import HttpError, bad_request, http_status_of
from service.fronts.http.context import HttpContext
from service.fronts.http.endpoint import FrontServer, HttpCall, HttpEndpoint
from service.fronts.http.message_json import to_json
from service.fronts.status import status_of


class CallEndpoint(HttpEndpoint):
    """Answers the calls of one method of the servicer, streaming or not.

    Without a body, the request is the parameters of the path.
    """

    def __init__(
        self,
        server: FrontServer,
        method: str,
        behaviour: Callable[[Any, Any], Any],
        *,
        streams: bool,
        has_body: bool,
    ) -> None:
        super().__init__(server, method)
        self._behaviour = behaviour
        self._streams = streams
        self._has_body = has_body

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
        max_bytes = self._server.transfers.max_body_bytes
        if int(headers.get("content-length", 0)) > max_bytes:
            raise bad_request(413, "body", f"more than {max_bytes:,} bytes, the limit")

    async def _run(self, call: HttpCall) -> None:
        await call.authenticate()
        request = await self._request(call)
        async with call.watched():
            if self._streams:
                async with contextlib.aclosing(self._behaviour(request, call.context)) as events:
                    async for event in events:
                        await _send_event(call, event)
                return
            # Not in a variable: once an answer is encoded, nothing holds its message.
            await call.send_answer(
                *_written(await self._behaviour(request, call.context)),
                headers=[("cache-control", "no-store")],
            )

    async def _request(self, call: HttpCall) -> Message:
        """The request, once the call is within the quotas."""
        if not self._has_body:
            call.take_quotas(0)
            path = call.scope.get("path_params", {})
            return self._server.tracker.parser.new(self._method, **path)
        async with call.body() as data:
            call.take_quotas(len(data))
            return await call.read(functools.partial(self._server.parser.parse, self._method), data)

    async def _end(self, call: HttpCall) -> None:
        if not self._streams or (call.error is not None and not call.is_begun):
            await super()._end(call)
            return
        if call.error is not None:
            await _send_event(call, status_of(call.error, call.request_id), "error")
        await call.send({"type": "http.response.body", "body": b""})

    async def _send_error(self, call: HttpCall, headers: list[tuple[str, str]]) -> None:
        assert call.error is not None
        if call.code is grpc.StatusCode.UNAUTHENTICATED:
            headers.append(("www-authenticate", "Bearer"))
        body = to_json(status_of(call.error, call.request_id)).encode()
        http_status = call.http_status or http_status_of(call.code)
        await answers.send_body(call.send, body, http_status, headers)

    async def _send_http_error(self, send: Send, error: HttpError) -> None:
        await answers.send_http_error(send, error)


async def _send_event(call: HttpCall, message: Message, name: str = "") -> None:
    """Send an event of a stream, which the first one begins; `name` is its type."""
    if not call.is_begun:
        call.is_begun = True
        headers = [
            ("content-type", "text/event-stream; charset=utf-8"),
            ("cache-control", "no-store"),
            ("x-accel-buffering", "no"),  # nginx would hold events back
            (REQUEST_ID, call.request_id),
        ]
        await answers.send_head(call.send, 200, headers)
    body = answers.event(message, name)
    await call.send({"type": "http.response.body", "body": body, "more_body": True})
    # Sending does not wait. So a lost connection is noticed before the next event: asyncio
    # would log each write to it.
    await asyncio.sleep(0)


def _written(message: Message) -> tuple[Callable[[], bytes], int]:
    """A function that writes a message as JSON, and about its size."""
    return lambda: to_json(message).encode(), message.ByteSize()


def _unknown_parameter(query: str) -> str:
    """The name of the first parameter that is not the API key; "" if there is none."""
    names = (pair.partition("=")[0] for pair in query.split("&") if query)
    return next((name[:100] or "?" for name in names if name != KEY_PARAMETER), "")
