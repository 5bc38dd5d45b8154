"""Errors as statuses, and back."""

from __future__ import annotations

import pytest

from service import errors
from service.calls.status import code_of, error_of, status_of


@pytest.mark.parametrize(
    "error",
    [
        errors.InvalidArgumentError("contents[3]", "is too long"),
        errors.ResourceExhaustedError("the queue is full", 2.5),
        errors.NotFoundError("no such model"),
        errors.FailedPreconditionError("it cannot align"),
        errors.UnauthenticatedError("no key"),
        errors.PermissionDeniedError("the key does not allow the model"),
        errors.DeadlineExceededError("too late"),
        errors.RequestCancelledError("cancelled"),
        errors.UnavailableError("draining"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_comes_back_from_its_status(error: errors.DragomanError) -> None:
    found = error_of(status_of(error, "id"))
    assert (type(found), str(found), code_of(found)) == (type(error), str(error), code_of(error))
    if isinstance(error, errors.ResourceExhaustedError):
        assert isinstance(found, errors.ResourceExhaustedError)
        assert found.retry_after_seconds == error.retry_after_seconds


def test_what_is_unknown_comes_back_without_its_text() -> None:
    found = error_of(status_of(KeyError("secret"), "the-id"))
    assert type(found) is errors.InternalError
    assert "the-id" in str(found)
    assert "secret" not in str(found)
