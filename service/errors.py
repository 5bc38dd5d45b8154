"""The errors of the service.

    DragomanError
    ├── InvalidArgumentError     the request is invalid; names the field
    ├── NotFoundError            no such model or language pair
    ├── FailedPreconditionError  the model's bundle lacks a requested feature
    ├── UnauthenticatedError     the credential is missing or wrong
    ├── PermissionDeniedError    the credential does not allow this
    ├── ResourceExhaustedError   overload; has the time until a retry
    │   └── QuotaError           a key's quota is used up
    ├── DeadlineExceededError    the request's deadline passed
    ├── RequestCancelledError    the client cancelled the request
    ├── UnavailableError         the server is starting, draining or stopped
    │   └── KeysUnavailableError the keys of a token's issuer have not arrived
    ├── InternalError            a defect; details are in the log
    └── StartupError             the server can't start; the message says what to do

They are translated to gRPC status codes in one place, `service.calls.status`.
"""

from __future__ import annotations

import enum


class DragomanError(Exception):
    """Base of all errors of the service. `str(error)` may be sent to the client."""


class InvalidArgumentError(DragomanError):
    """The request is invalid, and a retry can't help.

    Attributes:
        field: the invalid field, such as `contents[3]` or `max_new_tokens`.
        description: error of the field, and its limit.
    """

    def __init__(self, field: str, description: str) -> None:
        super().__init__(f"{field}: {description}")
        self.field = field
        self.description = description

    def __reduce__(self) -> tuple[type[InvalidArgumentError], tuple[str, str]]:
        """Pickle the arguments of the constructor, not the message."""
        return type(self), (self.field, self.description)

    def within(self, field: str) -> InvalidArgumentError:
        """The same error for a field nested in the message `field`."""
        return InvalidArgumentError(f"{field}.{self.field}", self.description)


class NotFoundError(DragomanError):
    """No such model, or none for the language pair. The message lists the available ones."""


class FailedPreconditionError(DragomanError):
    """The model's bundle lacks a requested feature. The message says how to export it again."""


class UnauthenticatedError(DragomanError):
    """The credential is missing or wrong."""


class PermissionDeniedError(DragomanError):
    """The credential is valid and does not allow the call, its model or its priority."""


class ResourceExhaustedError(DragomanError):
    """The server is overloaded; the same request may succeed later.

    Attributes:
        retry_after_seconds: estimated time after which a retry may succeed.
        reason: name of the exhausted resource, for the log; "" if there is none.
    """

    def __init__(self, message: str, retry_after_seconds: float = 1.0, *, reason: str = "") -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds
        self.reason = reason


class QuotaKind(enum.StrEnum):
    """The unit of a quota, which is the `reason` of a `QuotaError` in the log."""

    REQUESTS = "rate"
    CHARACTERS = "characters"


class QuotaError(ResourceExhaustedError):
    """A quota of the key is used up until its period ends; the retry time is that end.

    Attributes:
        kind: unit of the quota.
    """

    def __init__(self, message: str, retry_after_seconds: float, kind: QuotaKind) -> None:
        super().__init__(message, retry_after_seconds, reason=str(kind))
        self.kind = kind


class DeadlineExceededError(DragomanError):
    """The deadline passed before the result was complete."""


class RequestCancelledError(DragomanError):
    """The request was cancelled before the result was complete."""


class UnavailableError(DragomanError):
    """The server accepts no requests: it is starting, draining or stopped."""


class KeysUnavailableError(UnavailableError):
    """A token can't be checked now: the keys of its issuer have not arrived."""


class InternalError(DragomanError):
    """A defect of the server. The cause is logged with the request id."""


class StartupError(DragomanError):
    """The server can't start as configured. The message names the cause and what to do."""


def reason_of(error: Exception) -> str:
    """The reason for the failure of a call, as a word for the log."""
    reason = error.reason if isinstance(error, ResourceExhaustedError) else ""
    return reason or type(error).__name__
