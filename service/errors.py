"""Every error that the service raises on purpose.

    DragomanError
    ├── InvalidArgumentError     the request can never work as it stands; names the field
    ├── NotFoundError            no such model or language pair
    ├── FailedPreconditionError  the model was made without what is asked for
    ├── ResourceExhaustedError   too much load at the moment; says when to try again
    ├── DeadlineExceededError    the request's deadline passed first
    ├── RequestCancelledError    the client no longer wants the answer
    ├── UnavailableError         the server is starting, draining or stopped
    ├── InternalError            our fault; the details are in the log
    └── StartupError             the server cannot start; the message says what to do

They are translated to gRPC status codes in one place, `service.api.status`.
"""

from __future__ import annotations


class DragomanError(Exception):
    """Base of all errors of the service. `str(error)` may be shown to the client."""


class InvalidArgumentError(DragomanError):
    """The request is wrong in itself: trying again cannot help.

    Attributes:
        field: the request field at fault, such as `contents[3]` or `max_new_tokens`.
        description: what is wrong with it, with the limit if there is one.
    """

    def __init__(self, field: str, description: str) -> None:
        super().__init__(f"{field}: {description}")
        self.field = field
        self.description = description

    def __reduce__(self) -> tuple[type[InvalidArgumentError], tuple[str, str]]:
        """For pickling, which would otherwise call it with the whole message."""
        return type(self), (self.field, self.description)

    def within(self, field: str) -> InvalidArgumentError:
        """The same about a field of the message `field`."""
        return InvalidArgumentError(f"{field}.{self.field}", self.description)


class NotFoundError(DragomanError):
    """No model of that name, or none for that language pair. The message lists what there is."""


class FailedPreconditionError(DragomanError):
    """The model's bundle lacks what is asked for. The message says how to make it anew."""


class ResourceExhaustedError(DragomanError):
    """The server has as much work as it accepts; the same request may succeed later.

    Attributes:
        retry_after_seconds: an estimate of when there will be room.
        reason: a word for the log: of what there is too much; "" if there is no more to say.
    """

    def __init__(self, message: str, retry_after_seconds: float = 1.0, *, reason: str = "") -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds
        self.reason = reason


class DeadlineExceededError(DragomanError):
    """The deadline passed before the answer was complete."""


class RequestCancelledError(DragomanError):
    """The request was cancelled before the answer was complete."""


class UnavailableError(DragomanError):
    """The server does not take requests now: it is starting, draining or stopped."""


class InternalError(DragomanError):
    """Something failed that is not the client's fault. The cause is logged with the request id."""


class StartupError(DragomanError):
    """The server cannot start as configured. The message names the cause and what to do."""


def reason_of(error: Exception) -> str:
    """Why a call failed, in a word for the log: never a text."""
    reason = error.reason if isinstance(error, ResourceExhaustedError) else ""
    return reason or type(error).__name__
