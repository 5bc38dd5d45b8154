"""Runs the calls of a path: the same for the contract's JSON and for other services' APIs."""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass

from starlette.types import Receive, Scope, Send

from dragoman.conversions import REQUEST_ID
from service.calls.backend import Backend
from service.calls.call_tracker import CallTracker
from service.fronts.http.answers import HttpError
from service.fronts.http.context import HttpContext
from service.fronts.http.http_call import HttpCall
from service.fronts.http.request_json import JsonRequestParser
from service.fronts.http.transfers import Transfers


@dataclass(frozen=True)
class FrontServer:
    """What all endpoints run on.

    Attributes:
        backend: parts of the server, for use cases.
        tracker: all calls.
        transfers: bodies and answers of all connections.
        parser: reads JSON, within the limits of requests.
    """

    backend: Backend
    tracker: CallTracker
    transfers: Transfers
    parser: JsonRequestParser


class HttpEndpoint(abc.ABC):
    """An ASGI application that answers one path.

    Args:
        server: what it runs on.
        method: name of the method of the contract that its calls count as.
        front: name of its API for the log; "" for the contract.
    """

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
        server = self._server
        call = HttpCall(
            server.tracker,
            server.transfers,
            self._method,
            self._front_name,
            context,
            scope,
            receive,
            send,
        )
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
