"""Converts exceptions to codes and messages for clients, metrics and logs."""

from __future__ import annotations

import grpc

from service import errors

_CODES: dict[type[errors.DragomanError], grpc.StatusCode] = {
    errors.InvalidArgumentError: grpc.StatusCode.INVALID_ARGUMENT,
    errors.NotFoundError: grpc.StatusCode.NOT_FOUND,
    errors.FailedPreconditionError: grpc.StatusCode.FAILED_PRECONDITION,
    errors.UnauthenticatedError: grpc.StatusCode.UNAUTHENTICATED,
    errors.PermissionDeniedError: grpc.StatusCode.PERMISSION_DENIED,
    errors.ResourceExhaustedError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.DeadlineExceededError: grpc.StatusCode.DEADLINE_EXCEEDED,
    errors.RequestCancelledError: grpc.StatusCode.CANCELLED,
    errors.UnavailableError: grpc.StatusCode.UNAVAILABLE,
}

CHARGED = (grpc.StatusCode.OK, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED)
"""Codes of calls and texts that are charged; others cost nothing. A client that disconnects, or
whose deadline passes, is charged because the server has worked for it."""


def code_of(error: BaseException) -> grpc.StatusCode:
    """The gRPC code of an exception; INTERNAL for unexpected ones."""
    for kind in type(error).__mro__:
        if kind in _CODES:
            return _CODES[kind]
    return grpc.StatusCode.INTERNAL


def message_of(error: BaseException, request_id: str) -> str:
    """The message for a client. For a defect, it only names the id under which the log has it."""
    if code_of(error) is grpc.StatusCode.INTERNAL:
        return f"internal error; the server's log has it as {request_id}"
    return clipped(str(error))


def clipped(text: str, max_bytes: int = 1000) -> str:
    """`text`, shortened so that headers of 8 KiB can hold it twice, escaped or in base64."""
    encoded = text.encode(errors="backslashreplace")  # lone surrogates: no message may hold them
    if len(encoded) <= max_bytes:
        return encoded.decode()
    return encoded[: max_bytes - 3].decode(errors="ignore") + "..."
