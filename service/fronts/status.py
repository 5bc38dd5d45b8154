"""Errors as google.rpc.Status: codes, messages, details (https://google.aip.dev/193)."""

from __future__ import annotations

from google.protobuf import duration_pb2
from google.rpc import error_details_pb2, status_pb2

from service import errors
from service.calls.status import clipped, code_of, message_of


def status_of(error: BaseException, request_id: str) -> status_pb2.Status:
    """The status for any exception: code, message, and machine-readable details."""
    number: int = code_of(error).value[0]
    status = status_pb2.Status(code=number, message=message_of(error, request_id))
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
