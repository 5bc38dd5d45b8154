"""Errors as statuses."""

from __future__ import annotations

import pytest
from google.rpc import error_details_pb2

from service import errors
from service.calls.status import code_of
from service.fronts.status import status_of


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidArgumentError("contents[3]", "is too long"), "INVALID_ARGUMENT"),
        (errors.ResourceExhaustedError("the queue is full", 2.5), "RESOURCE_EXHAUSTED"),
        (errors.QuotaError("used up", 60.0, errors.QuotaKind.REQUESTS), "RESOURCE_EXHAUSTED"),
        (errors.NotFoundError("no such model"), "NOT_FOUND"),
        (errors.FailedPreconditionError("it cannot align"), "FAILED_PRECONDITION"),
        (errors.UnauthenticatedError("no key"), "UNAUTHENTICATED"),
        (errors.PermissionDeniedError("the key does not allow the model"), "PERMISSION_DENIED"),
        (errors.DeadlineExceededError("too late"), "DEADLINE_EXCEEDED"),
        (errors.RequestCancelledError("cancelled"), "CANCELLED"),
        (errors.UnavailableError("draining"), "UNAVAILABLE"),
        (errors.KeysUnavailableError("no keys"), "UNAVAILABLE"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_has_a_code_and_its_message(error: errors.DragomanError, code: str) -> None:
    status = status_of(error, "id")
    assert code_of(error).name == code
    assert (status.code, status.message) == (code_of(error).value[0], str(error))


def test_details_name_the_field_and_the_time_of_a_retry() -> None:
    bad, retry = error_details_pb2.BadRequest(), error_details_pb2.RetryInfo()
    [detail] = status_of(errors.InvalidArgumentError("contents[3]", "is too long"), "").details
    assert detail.Unpack(bad)
    [violation] = bad.field_violations
    assert (violation.field, violation.description) == ("contents[3]", "is too long")
    [detail] = status_of(errors.ResourceExhaustedError("full", 2.5), "").details
    assert detail.Unpack(retry)
    assert retry.retry_delay.ToMilliseconds() == 2500


def test_an_unknown_error_has_the_request_id_and_not_its_text() -> None:
    status = status_of(KeyError("secret"), "the-id")
    assert "the-id" in status.message
    assert "secret" not in status.message
