"""The application of the HTTP front: its paths, and what all answers have in common."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import grpc
from google.api import annotations_pb2
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.calls.call_tracker import CallTracker
from service.fronts.dragoman.servicer import SERVICE, TranslationServicer
from service.fronts.http import answers
from service.fronts.http.answers import HttpError, bad_request
from service.fronts.http.call_endpoint import CallEndpoint
from service.fronts.http.endpoint import FrontServer
from service.fronts.http.front_endpoint import Failure, Front, FrontEndpoint
from service.fronts.http.message_json import to_json
from service.fronts.http.request_json import JsonRequestParser
from service.fronts.http.transfers import HttpLimits, Transfers
from service.observability.metrics import ServerMetrics
from service.ports.http.allowed_hosts import AllowedHosts
from service.ports.http.front_routes import all_fronts, front_of, front_routes
from service.ports.http.page_files import page_routes
from service.ports.http.paths import plain_path

_READY = "/readyz"
# Of answers that say nothing else about it, which are those that are no files of the page.
_DEFAULT_HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
    b"cache-control": b"no-store",
}
# Methods and headers that pages of other origins may use. The server ignores cookies.
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_REQUEST_HEADERS = (
    *("authorization", "x-api-key", "x-goog-api-key", "content-type"),
    *("grpc-timeout", "traceparent", "x-client-id", "x-request-id"),
)
_ANSWER_HEADERS = ("content-disposition", "retry-after", "x-request-id")
# Escapes in JSON (\\uXXXX) take up to three times the bytes of UTF-8 at four a character.
_BODY_FACTOR = 3
# How long the rest of a body is read that was answered before its end.
_REST_SECONDS = 2.0


class HttpApp:
    """The ASGI application.

    `origins` are those of pages that browsers let read answers (CORS); "*" for all. `prefix` is
    that of all paths behind a proxy, such as "/mt"; they are there without it too.

    Attributes:
        is_draining: connections end after their current answer.
    """

    def __init__(
        self,
        servicer: TranslationServicer,
        tracker: CallTracker,
        why_not_ready: Callable[[], str],
        limits: HttpLimits,
        hosts: AllowedHosts,
        origins: Sequence[str] = (),
        prefix: str = "",
    ) -> None:
        self.is_draining = False
        self._prefix = prefix
        self._hosts = hosts
        self._metrics: ServerMetrics = tracker.metrics
        self._transfers = Transfers(limits, _BODY_FACTOR * tracker.max_message_bytes)
        parser = JsonRequestParser(tracker.parser)
        server = FrontServer(servicer.backend, tracker, self._transfers, parser)
        self._fronts = fronts = all_fronts(not tracker.access.is_open, tracker.max_message_bytes)
        routes = [
            *_call_routes(servicer, server),
            *front_routes(fronts, server, why_not_ready),
            *page_routes(),
            Route(_READY, _probe(why_not_ready)),
        ]
        # The page's files and descriptions, to which any site may link.
        self._documents = {
            route.path
            for route in routes
            if not isinstance(route.endpoint, CallEndpoint | FrontEndpoint)
        }
        answer_exception = functools.partial(_answer_http_exception, fronts)
        starlette = Starlette(routes=routes, exception_handlers={HTTPException: answer_exception})
        starlette.router.redirect_slashes = False
        self._app: ASGIApp = starlette
        if origins:
            self._app = CORSMiddleware(
                starlette,
                allow_origins=origins,
                allow_methods=_METHODS,
                allow_headers=_REQUEST_HEADERS,
                expose_headers=_ANSWER_HEADERS,
            )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        has_body_left, is_complete = True, False

        async def receive_and_note() -> Message:
            nonlocal has_body_left
            message = await receive()
            has_body_left = message.get("more_body", False)
            return message

        async def send_and_count(message: Message) -> None:
            nonlocal is_complete
            if message["type"] == "http.response.start":
                self._metrics.http_answered(message["status"])
                message["headers"] += _missing(message["headers"])
                if self.is_draining:
                    message["headers"].append((b"connection", b"close"))
            elif has_body_left and not message.get("more_body", False):
                is_complete, message = True, {**message, "more_body": True}  # ended below
            await send(message)

        await self._answer(scope, receive_and_note, send_and_count)
        if is_complete:
            await _read_rest(receive, self._transfers.max_body_bytes)
            await send({"type": "http.response.body"})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        prefix = scope.get("root_path") or self._prefix  # of a trusted proxy
        path = plain_path(scope, prefix)
        is_call = path not in self._documents
        try:
            _check_head(scope, self._transfers.limits)
            if path != _READY:  # probes ask by any address
                self._hosts.check(dict(scope["headers"]), is_call=is_call)
        except HttpError as error:
            await _refuse(send, error, front_of(path, self._fronts))
            return
        if not is_call and scope["path"] not in (path, f"{prefix}{path}"):
            # A page's links are relative, and would miss.
            query = scope["query_string"].decode("latin-1")
            location = f"{prefix}{path}{query and '?'}{query}"
            await RedirectResponse(location, 308)(scope, receive, send)
            return
        await self._app({**scope, "path": path, "root_path": prefix}, receive, send)


async def _refuse(send: Send, error: HttpError, front: Front | None) -> None:
    """Answer with an error, in the shape of the front whose path was asked for."""
    if front is None:
        await answers.send_http_error(send, error)
        return
    failure = Failure(error.http_status, error.code, str(error))
    http_status, value = front.error(failure)
    await answers.send_body(send, json.dumps(value).encode(), http_status, error.headers)


async def _read_rest(receive: Receive, num_left: int) -> None:
    """Read the rest of a body that was answered early, within limits.

    A connection that is closed before would be reset, and a client that still sends would not see
    the answer.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_REST_SECONDS):
            while num_left > 0:
                message = await receive()
                if not message.get("more_body", False):
                    return
                num_left -= len(message["body"])


def _missing(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    names = {name for name, _ in headers}
    return [pair for pair in _DEFAULT_HEADERS.items() if pair[0] not in names]


def _check_head(scope: Scope, limits: HttpLimits) -> None:
    """Refuse, whatever the path. Raises HttpError."""
    headers = scope["headers"]
    # The parser has this limit too, but only for a head that arrives in several pieces.
    num_bytes = len(scope["raw_path"]) + len(scope["query_string"])
    num_bytes += sum(len(name) + len(value) for name, value in headers)
    if num_bytes > limits.head_bytes:
        raise bad_request(431, "headers", f"more than {limits.head_bytes:,} bytes, the limit")
    if len(headers) > limits.max_headers:
        raise bad_request(431, "headers", f"more than {limits.max_headers}, the limit")
    names = {name for name, _ in headers}
    if b"transfer-encoding" in names:
        # Another server on the way may take the other for the end of the body (RFC 9112, 6.1).
        close = [("connection", "close")]
        if b"content-length" in names:
            raise bad_request(400, "transfer-encoding", "there is a content-length too", close)
        if scope["http_version"] == "1.0":
            raise bad_request(400, "transfer-encoding", "is not in HTTP/1.0", close)


def _call_routes(servicer: TranslationServicer, server: FrontServer) -> Iterator[Route]:
    """A route for each method, as its annotation in the contract says (google/api/http.proto)."""
    service: ServiceDescriptor = descriptor_pool.Default().FindServiceByName(SERVICE)
    for method in service.methods:
        verb, path, has_body = _rule(method)
        endpoint = CallEndpoint(
            server,
            method.name,
            getattr(servicer, method.name),
            streams=method.server_streaming,
            has_body=has_body,
        )
        yield Route(path, endpoint, methods=[verb])


def _rule(method: MethodDescriptor) -> tuple[str, str, bool]:
    """The HTTP method, the path, and whether the request is the body."""
    extensions: Any = method.GetOptions().Extensions
    rule = extensions[annotations_pb2.http]
    verb = rule.WhichOneof("pattern")
    assert verb in ("get", "post"), f"{method.name}: a rule that the front does not have"
    assert rule.body == ("*" if verb == "post" else ""), f"{method.name}: a body that it does not"
    return verb.upper(), getattr(rule, verb), verb == "post"


def _probe(why_not_ready: Callable[[], str]) -> Callable[[Request], Any]:
    async def readyz(request: Request) -> Response:
        reason = why_not_ready()
        return Response(f"{reason or 'ok'}\n", 503 if reason else 200, media_type="text/plain")

    return readyz


async def _answer_http_exception(
    fronts: Sequence[Front], request: Request, exc: Exception
) -> Response:
    """404 and 405, in the shape of the front's errors, or of all others."""
    assert isinstance(exc, HTTPException)
    path, front = request.url.path[:200], front_of(request.scope["path"], fronts)
    headers: dict[str, str] = {}
    if exc.status_code == 405:
        headers["Allow"] = _allowed(request)
        message, code = f"{path} takes {headers['Allow']} only", grpc.StatusCode.UNIMPLEMENTED
    else:
        where = "/openapi.json" if front else "google.api.http in translation.proto"
        message, code = f"there is no path {path}; see {where}", grpc.StatusCode.NOT_FOUND
    if front is not None:
        failure = Failure(exc.status_code, code, message)
        http_status, value = front.error(failure)
        return JSONResponse(value, http_status, headers)
    error = HttpError(exc.status_code, message, code)
    body = to_json(error.status)
    return Response(body, exc.status_code, headers, media_type=answers.JSON)


def _allowed(request: Request) -> str:
    """The methods of a path. Each is a route, and the exception names those of the first only."""
    found = (each for each in request.app.routes if each.matches(request.scope)[0] != Match.NONE)
    return ", ".join(sorted({method for each in found for method in each.methods}))
