"""Runs a request of another service's API as a call of the contract."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import grpc
from starlette.types import Scope, Send

from service.access.authentication import credential_of
from service.calls.backend import Backend
from service.errors import (
    InvalidArgumentError,
    QuotaError,
    QuotaKind,
    UnauthenticatedError,
)
from service.fronts.http import answers
from service.fronts.http.answers import HttpError
from service.fronts.http.endpoint import FrontServer, HttpCall, HttpEndpoint
from service.fronts.http.fields import Fields, parse_form
from service.fronts.http.message_json import dumped
from service.fronts.http.multipart import MULTIPART, parse_multipart
from service.fronts.http.transfers import LARGE_BYTES

T = TypeVar("T")

_FORM = "application/x-www-form-urlencoded"
_KINDS = f"{answers.JSON}, {_FORM} or {MULTIPART}"
# Of an error's message, the name of the field at its beginning, if it has one.
_FIELD = re.compile(r"\A[\w.]+(?=[\[:])")


@dataclass(frozen=True)
class FrontCall:
    """The use cases, the parameters of the path, and the beginning of the server's URLs."""

    backend: Backend
    path: Mapping[str, str]
    origin: str


Handler = Callable[[Fields, FrontCall], Awaitable[Any]]


@dataclass(frozen=True)
class FrontAnswer:
    """An answer with more than a value.

    Attributes:
        value: value to write as JSON; bytes are sent as they are.
        http_status: HTTP status, such as 201.
        kind: the content type.
        headers: further headers.
    """

    value: Any
    http_status: int = 200
    kind: str = answers.JSON
    headers: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Failure:
    """The failure of a request.

    Attributes:
        http_status: status by the front's table, or of the contract's HTTP API.
        code: gRPC code.
        message: message for the client.
        is_quota_used_up: whether the key has no characters left.
    """

    http_status: int
    code: grpc.StatusCode
    message: str
    is_quota_used_up: bool = False


@dataclass(frozen=True)
class Operation:
    """The operation of one path of a front.

    Attributes:
        method: method of the contract that calls are counted as.
        handler: makes the answer from the parameters of a request: a `FrontAnswer`, or a value to
            write as JSON. May raise DragomanError.
        summary: a short description, for documentation.
        parameters: meanings of the parameters, by name, for documentation.
        needs_key: whether callers need a key, on a server that has keys.
        file: the parameter that is a file; "" for none.
    """

    method: str
    handler: Handler
    summary: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    needs_key: bool = True
    file: str = ""


def operation(
    verbs: str, path: str, method: str, summary: str, *parameters: Mapping[str, str], **options: Any
) -> Callable[[T], T]:
    """Make a method of a front the handler of a path, for HTTP methods with spaces between.

    The other arguments are attributes of the path's `Operation`.
    """

    def mark(handler: T) -> T:
        for verb in verbs.split():
            handler.__dict__.setdefault("operations", {})[verb, path] = functools.partial(
                Operation, method, summary=summary, parameters=dict(*parameters), **options
            )
        return handler

    return mark


class Front:
    """An API of another service: its paths are methods with the decorator `operation`.

    Attributes:
        name: name in the log.
        title: title in the documentation.
        prefixes: beginnings of its paths, unknown ones included; the longest decides.
        field_names: its names for fields of the contract, for messages.
        statuses: its HTTP statuses where they differ from those of the contract's HTTP API.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    prefixes: ClassVar[Sequence[str]]
    field_names: ClassVar[Mapping[str, str]] = {}
    statuses: ClassVar[Mapping[grpc.StatusCode, int]] = {}

    def operations(self) -> dict[tuple[str, str], Operation]:
        """The operations of the front, by HTTP method and path."""
        return {
            route: operation(getattr(self, name))
            for kind in type(self).__mro__
            for name, member in vars(kind).items()
            for route, operation in getattr(member, "operations", {}).items()
        }

    def credential(self, fields: Fields) -> str:
        """The key among the parameters; "" leaves it to the headers."""
        return ""

    def error(self, failure: Failure) -> tuple[int, Any]:
        """The HTTP status and the body of an error; by default, `{"error": ...}`."""
        return failure.http_status, {"error": failure.message}


class FrontEndpoint(HttpEndpoint):
    """Answers one path of a front."""

    def __init__(self, server: FrontServer, front: Front, operation: Operation) -> None:
        super().__init__(server, operation.method, front.name)
        self._front = front
        self._operation = operation

    async def _run(self, call: HttpCall) -> None:
        fields = await self._fields(call)
        path = call.scope.get("path_params", {})
        front_call = FrontCall(self._server.backend, path, _origin(call.scope))
        async with call.watched():
            answer = await self._operation.handler(fields, front_call)
            del fields  # holds the body
            if not isinstance(answer, FrontAnswer):
                answer = FrontAnswer(answer)
            size = _size(answer.value)
            write = functools.partial(_written, answer.value, is_large=size > LARGE_BYTES)
            await call.send_answer(write, size, answer.http_status, answer.headers, answer.kind)

    async def _fields(self, call: HttpCall) -> Fields:
        """The parameters, of a request that is within the quotas.

        Raises:
            DragomanError: it is not, or they can't be read.
        """
        headers, limit = call.context.headers, call.transfers.max_body_bytes
        if headers.get("content-encoding", "identity") != "identity":
            call.http_status = 415
            raise InvalidArgumentError("content-encoding", "not supported")
        if int(headers.get("content-length", 0)) > limit:
            call.http_status = 413
            raise InvalidArgumentError("body", f"more than {limit:,} bytes, the limit")
        query = await self._form(call.scope["query_string"], call)
        has_key = bool(credential_of(call.context.invocation_metadata()))
        must_have_key = self._operation.needs_key
        if must_have_key and has_key:
            await call.authenticate()
        async with call.body() as data:
            fields = (await self._parsed(data, headers.get("content-type", ""), call)).over(query)
            credential = "" if has_key else self._front.credential(fields)
            if must_have_key and not has_key:
                await call.authenticate(credential)
            elif not must_have_key and (has_key or credential):
                # The models of the key, if it is one: a path for everybody refuses nobody.
                with contextlib.suppress(UnauthenticatedError):
                    await call.authenticate(credential)
            call.take_quotas(len(data))
            return fields

    async def _parsed(self, data: bytes, content_type: str, call: HttpCall) -> Fields:
        """The parameters in a body of a content type. Raises InvalidArgumentError."""
        kind = content_type.partition(";")[0].strip().lower()
        if kind == _FORM:
            return await self._form(data, call)
        if kind == MULTIPART:
            parse = functools.partial(parse_multipart, content_type=content_type)
            return await call.read(parse, data)
        if not data.strip():
            return Fields({})
        if kind != answers.JSON:
            call.http_status = 415
            raise InvalidArgumentError("content-type", f"must be {_KINDS}")
        values = await call.read(self._server.parser.load, data)
        if not isinstance(values, dict):
            raise InvalidArgumentError("body", "must be a JSON object")
        return Fields(values)

    async def _form(self, data: bytes, call: HttpCall) -> Fields:
        parse = functools.partial(parse_form, max_fields=self._server.parser.max_values)
        return await call.read(parse, data)

    async def _send_error(self, call: HttpCall, headers: list[tuple[str, str]]) -> None:
        error, code = call.error, call.code
        http_status = call.http_status or answers.http_status_of(code)
        is_of_path = bool(call.scope.get("path_params")) and code is grpc.StatusCode.NOT_FOUND
        if not is_of_path:  # a path that names nothing stays 404
            http_status = self._front.statuses.get(code, http_status)
        is_used_up = isinstance(error, QuotaError) and error.kind is QuotaKind.CHARACTERS
        message = _FIELD.sub(self._renamed, call.message)
        failure = Failure(http_status, code, message, is_used_up)
        await self._send_failure(call.send, failure, headers)

    async def _send_http_error(self, send: Send, error: HttpError) -> None:
        code = grpc.StatusCode.INVALID_ARGUMENT
        await self._send_failure(send, Failure(error.http_status, code, str(error)), [])

    def _renamed(self, found: re.Match[str]) -> str:
        return self._front.field_names.get(found[0], found[0])

    async def _send_failure(
        self, send: Send, failure: Failure, headers: list[tuple[str, str]]
    ) -> None:
        http_status, body = self._front.error(failure)
        await answers.send_body(send, _written(body), http_status, headers)


def _origin(scope: Scope) -> str:
    """The beginning of URLs of this server, as the client asks it."""
    headers = dict(scope["headers"])
    # Of a proxy that speaks TLS for the server. A client that sends it itself only misleads itself.
    forwarded = headers.get(b"x-forwarded-proto", b"").decode("latin-1").lower()
    forwarded = forwarded.partition(",")[0].strip()  # of several, the client's
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
