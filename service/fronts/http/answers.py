"""Answers of the HTTP front: messages as JSON, errors as google.rpc.Status with an HTTP status.

As gRPC transcoders do, such as Envoy's:
https://github.com/googleapis/googleapis/blob/master/google/rpc/code.proto
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import grpc
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from starlette.types import Send

from service.fronts.http.message_json import to_json

Headers = Iterable[tuple[str, str]]

_CODES = {
    grpc.StatusCode.OK: 200,
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.FAILED_PRECONDITION: 400,
    grpc.StatusCode.OUT_OF_RANGE: 400,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.ABORTED: 409,
    grpc.StatusCode.ALREADY_EXISTS: 409,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.CANCELLED: 499,
    grpc.StatusCode.UNIMPLEMENTED: 501,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
}
JSON = "application/json"
_CHUNK_BYTES = 64 * 1024


class HttpError(Exception):
    """An error of HTTP: a request that is refused before it is a call, or for a reason of HTTP.

    Attributes:
        http_status: HTTP status, such as 405.
        code: gRPC code.
        status: body of the answer.
        headers: further headers.
    """

    def __init__(
        self, http_status: int, message: str, code: grpc.StatusCode, headers: Headers = ()
    ) -> None:
        super().__init__(message)
        self.http_status = http_status
        self.code = code
        self.status = status_pb2.Status(code=code.value[0], message=message)
        self.headers = headers


def bad_request(http_status: int, field: str, description: str, headers: Headers = ()) -> HttpError:
    """An error of a header, a parameter or the body as a whole, with the field in its details."""
    message = f"{field}: {description}"
    error = HttpError(http_status, message, grpc.StatusCode.INVALID_ARGUMENT, headers)
    violation = error_details_pb2.BadRequest.FieldViolation(field=field, description=description)
    error.status.details.add().Pack(error_details_pb2.BadRequest(field_violations=[violation]))
    return error


def http_status_of(code: grpc.StatusCode) -> int:
    """The HTTP status of a call that ended with a code of gRPC."""
    return _CODES.get(code, 500)


def event(message: Message, name: str = "") -> bytes:
    """A server-sent event: https://html.spec.whatwg.org/multipage/server-sent-events.html."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {to_json(message)}\n\n".encode()


async def send_http_error(send: Send, error: HttpError) -> None:
    """Answer with the status of an error that is not a call's."""
    await send_body(send, to_json(error.status).encode(), error.http_status, error.headers)


async def send_head(send: Send, http_status: int, headers: Headers) -> None:
    """Begin an answer."""
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    await send({"type": "http.response.start", "status": http_status, "headers": raw})


async def send_body(
    send: Send, body: bytes, http_status: int = 200, headers: Headers = (), kind: str = JSON
) -> None:
    """Send a whole answer."""
    length = [("content-type", kind), ("content-length", str(len(body)))]
    await send_head(send, http_status, [*length, *headers])
    # In pieces, because the front waits between them for a client that reads slowly.
    for start in range(0, len(body) or 1, _CHUNK_BYTES):
        piece = body[start : start + _CHUNK_BYTES]
        is_last = start + _CHUNK_BYTES >= len(body)
        await send({"type": "http.response.body", "body": piece, "more_body": not is_last})
        if not is_last:
            await asyncio.sleep(0)  # as after an event
