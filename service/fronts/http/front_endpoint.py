"""Runs a request of another service's API as a call of the contract."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import grpc
from starlette.types import Receive, Scope, Send

from dragoman.conversions import REQUEST_ID
from service.access.authentication import credential_of
from service.calls.call_context import current_call, host_of
from service.calls.call_tracker import CallTracker, RunningCall
from service.errors import InvalidArgumentError, QuotaKind
from service.fronts.dragoman.servicer import TranslationServicer
from service.fronts.front_call import FrontCall
from service.fronts.http import answers
from service.fronts.http.answers import HttpError
from service.fronts.http.call_endpoint import HttpClient, parsed, within_deadline
from service.fronts.http.context import HttpContext
from service.fronts.http.fields import Fields, parse_form
from service.fronts.http.message_json import dumped
from service.fronts.http.multipart import MULTIPART, parse_multipart
from service.fronts.http.request_json import JsonRequestParser
from service.fronts.http.transfers import LARGE_BYTES, Transfers

_FORM = "application/x-www-form-urlencoded"
_KINDS = f"{answers.JSON}, {_FORM} or {MULTIPART}"
# Of an error's message, the name of the field at its beginning, if it has one.
_FIELD = re.compile(r"\A[\w.]+(?=[\[:])")

Handler = Callable[[Fields, FrontCall], Awaitable[Any]]
"""From the parameters of a request to its answer: a `FrontAnswer`, or a value to write as JSON. May
raise DragomanError."""


@dataclass(frozen=True)
class FrontAnswer:
    """An answer with more than a value.

    Attributes:
        value: to write as JSON; bytes are sent as they are.
        http_status: such as 201.
        kind: the content type.
        headers: further ones.
    """

    value: Any
    http_status: int = 200
    kind: str = answers.JSON
    headers: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Failure:
    """Why a request failed.

    Attributes:
        http_status: that the HTTP API of the contract would answer with.
        code: of gRPC.
        message: for the client.
        is_quota_used_up: whether the key has no characters left.
        is_of_path: whether what was not found is the path, or is named by it.
    """

    http_status: int
    code: grpc.StatusCode
    message: str
    is_quota_used_up: bool = False
    is_of_path: bool = False


@dataclass(frozen=True)
class Operation:
    """What a path of a front does.

    Attributes:
        method: the call of the contract that it is counted as.
        handler: answers it.
        summary: what it does, for documentation.
        parameters: its parameters with what they mean, for documentation.
        needs_key: whether it takes a key, on a server that has keys.
        file: the parameter that is a file; "" for none.
    """

    method: str
    handler: Handler
    summary: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    needs_key: bool = True
    file: str = ""


class Front(Protocol):
    """An API of another service.

    Attributes:
        name: for the log.
        title: for documentation.
        prefixes: how its paths begin, with those that it lacks; the longest decides.
        field_names: its names for fields of the contract, for messages.
    """

    name: str
    title: str
    prefixes: Sequence[str]
    field_names: Mapping[str, str]

    def operations(self) -> Mapping[tuple[str, str], Operation]:
        """Its operations, by HTTP method and path."""
        ...

    def credential(self, fields: Fields) -> str:
        """The key among the parameters; "" leaves it to the headers."""
        ...

    def error(self, failure: Failure) -> tuple[int, Any]:
        """The HTTP status and the body of an error."""
        ...


@dataclass(frozen=True)
class FrontServer:
    """What all fronts run on.

    Attributes:
        servicer: answers the contract's calls.
        tracker: of all calls.
        transfers: of all connections.
        parser: of JSON, with the limits of requests.
    """

    servicer: TranslationServicer
    tracker: CallTracker
    transfers: Transfers
    parser: JsonRequestParser


class FrontEndpoint:
    """An ASGI application that answers one path of a front.

    Args:
        front: whose path it is.
        operation: what it does.
        server: what it runs on.
    """

    def __init__(self, front: Front, operation: Operation, server: FrontServer) -> None:
        self._front = front
        self._operation = operation
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            context = HttpContext(scope)
        except HttpError as error:
            code = grpc.StatusCode.INVALID_ARGUMENT
            await self._send_error(send, Failure(error.http_status, code, str(error)), [])
            return
        operation, transfers = self._operation, self._server.transfers
        running = RunningCall(self._server.tracker, operation.method, context)
        client = HttpClient(scope, receive, host_of(context.peer()))
        is_begun = False
        with running:
            current_call().facts["front"] = self._front.name
            async with within_deadline(context):
                fields = await self._fields(running, scope, context, client)
                call = FrontCall(
                    self._server.servicer, context, scope.get("path_params", {}), _origin(scope)
                )
                async with client.watched():
                    answer = await operation.handler(fields, call)
                    del fields  # holds the body
                    if not isinstance(answer, FrontAnswer):
                        answer = FrontAnswer(answer)
                    size = _size(answer.value)
                    write = functools.partial(_written, answer.value, is_large=size > LARGE_BYTES)
                    async with transfers.written(write, size, client.host) as body:
                        is_begun = True
                        async with transfers.least_rate(len(body)):
                            headers = [(REQUEST_ID, running.request_id), *answer.headers]
                            await answers.send_body(
                                send, body, answer.http_status, headers, answer.kind
                            )
        await running.hold_refusal()
        if running.status is not None and is_begun:
            await client.abort()
        elif running.status is not None:
            await self._send_failure(send, running, client, bool(scope.get("path_params")))

    async def _fields(
        self, running: RunningCall, scope: Scope, context: HttpContext, client: HttpClient
    ) -> Fields:
        """The parameters, of a request that is within the quotas.

        Raises:
            DragomanError: it is not, or they can't be read.
        """
        headers, transfers = context.headers, self._server.transfers
        limit = transfers.max_body_bytes
        if headers.get("content-encoding", "identity") != "identity":
            client.http_status = 415
            raise InvalidArgumentError("content-encoding", "not supported")
        if int(headers.get("content-length", 0)) > limit:
            client.http_status = 413
            raise InvalidArgumentError("body", f"more than {limit:,} bytes, the limit")
        query = await self._form(scope["query_string"], client.host)
        has_key = bool(credential_of(context.invocation_metadata()))
        must_have_key = self._operation.needs_key
        if must_have_key and has_key:
            await running.authenticate()
        async with client.body(transfers) as data:
            kind = headers.get("content-type", "")
            fields = (await self._parsed(data, kind, client)).over(query)
            if must_have_key and not has_key:
                await running.authenticate(self._front.credential(fields))
            running.take_quotas(len(data))
            return fields

    async def _parsed(self, data: bytes, content_type: str, client: HttpClient) -> Fields:
        """The parameters in a body of a content type. Raises InvalidArgumentError."""
        kind = content_type.partition(";")[0].strip().lower()
        if kind == _FORM:
            return await self._form(data, client.host)
        if kind == MULTIPART:
            parse = functools.partial(parse_multipart, content_type=content_type)
            return await parsed(parse, data, client.host)
        if not data.strip():
            return Fields({})
        if kind != answers.JSON:
            client.http_status = 415
            raise InvalidArgumentError("content-type", f"must be {_KINDS}")
        values = await parsed(self._server.parser.load, data, client.host)
        if not isinstance(values, dict):
            raise InvalidArgumentError("body", "must be a JSON object")
        return Fields(values)

    async def _form(self, data: bytes, host: str) -> Fields:
        parse = functools.partial(parse_form, max_fields=self._server.parser.max_values)
        return await parsed(parse, data, host)

    async def _send_failure(
        self, send: Send, running: RunningCall, client: HttpClient, has_path: bool
    ) -> None:
        assert running.status is not None
        http_status = client.http_status or answers.http_status_of(running.code)
        message = _FIELD.sub(self._renamed, running.status.message)
        is_used_up = running.exhausted_quota is QuotaKind.CHARACTERS
        is_of_path = has_path and running.code is grpc.StatusCode.NOT_FOUND
        failure = Failure(http_status, running.code, message, is_used_up, is_of_path)
        headers = [(REQUEST_ID, running.request_id)]
        if running.retry_after_seconds is not None:
            headers.append(("retry-after", str(max(1, math.ceil(running.retry_after_seconds)))))
        await self._send_error(send, failure, headers)

    def _renamed(self, found: re.Match[str]) -> str:
        return self._front.field_names.get(found[0], found[0])

    async def _send_error(
        self, send: Send, failure: Failure, headers: list[tuple[str, str]]
    ) -> None:
        http_status, body = self._front.error(failure)
        await answers.send_body(send, _written(body), http_status, headers)


def _origin(scope: Scope) -> str:
    """The beginning of URLs of this server, as the client asks it."""
    headers = dict(scope["headers"])
    # Of a proxy that speaks TLS for the server. A client that sends it itself only misleads itself.
    forwarded = headers.get(b"x-forwarded-proto", b"").decode("latin-1").lower()
    scheme = forwarded if forwarded in ("http", "https") else scope["scheme"]
    host = headers.get(b"host", b"").decode("latin-1")
    return f"{scheme}://{host}{scope.get('root_path', '')}"


def _written(value: Any, *, is_large: bool = False) -> bytes:
    return value if isinstance(value, bytes) else dumped(value, is_large=is_large).encode()


def _size(value: Any) -> int:
    """About the bytes of a value as JSON."""
    if isinstance(value, bytes):
        return len(value)
    return sum(4 * len(text) + 8 for text in _strings(value))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)
