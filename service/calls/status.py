"""Converts exceptions to gRPC status: codes, messages, details (https://google.aip.dev/193)."""

from __future__ import annotations

import grpc
from google.protobuf import duration_pb2
from google.rpc import error_details_pb2, status_pb2

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


# By their numbers. What INVALID_ARGUMENT is made of is in the details.
_ERRORS: dict[int, type[errors.DragomanError]] = {
    code.value[0]: kind for kind, code in _CODES.items() if kind is not errors.InvalidArgumentError
}


def code_of(error: BaseException) -> grpc.StatusCode:
    """The gRPC code of an exception; INTERNAL for unexpected ones."""
    for kind in type(error).__mro__:
        if kind in _CODES:
            return _CODES[kind]
    return grpc.StatusCode.INTERNAL


def status_of(error: BaseException, request_id: str) -> status_pb2.Status:
    """The status for an exception: code, message, and machine-readable details.

    Args:
        error: any exception. One that is no DragomanError is a defect: its text is only logged.
        request_id: for the message of an internal error.
    """
    code = code_of(error)
    number: int = code.value[0]
    if code is grpc.StatusCode.INTERNAL:
        return status_pb2.Status(
            code=number, message=f"internal error; the server's log has it as {request_id}"
        )
    status = status_pb2.Status(code=number, message=clipped(str(error)))
    if isinstance(error, errors.InvalidArgumentError):
        violation = error_details_pb2.BadRequest.FieldViolation(
            field=clipped(error.field, 200), description=clipped(error.description)
        )
        status.details.add().Pack(error_details_pb2.BadRequest(field_violations=[violation]))
    if isinstance(error, errors.ResourceExhaustedError):
        delay = duration_pb2.Duration()
        delay.FromMilliseconds(round(error.retry_after_seconds * 1000))
        status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    return status


def error_of(status: status_pb2.Status) -> errors.DragomanError:
    """The error that `status_of` made a status of."""
    bad, retry = error_details_pb2.BadRequest(), error_details_pb2.RetryInfo()
    for detail in status.details:
        if detail.Unpack(bad) and bad.field_violations:
            violation = bad.field_violations[0]
            return errors.InvalidArgumentError(violation.field, violation.description)
        if detail.Unpack(retry):
            return errors.ResourceExhaustedError(
                status.message, retry.retry_delay.ToNanoseconds() / 1e9
            )
    return _ERRORS.get(status.code, errors.InternalError)(status.message)


def clipped(text: str, max_bytes: int = 1000) -> str:
    """`text`, shortened to fit a header of 8 KiB, which has it twice, escaped or in base64."""
    encoded = text.encode(errors="backslashreplace")  # lone surrogates: no message may hold them
    if len(encoded) <= max_bytes:
        return encoded.decode()
    return encoded[: max_bytes - 3].decode(errors="ignore") + "..."
