"""Every call of our service, over gRPC or HTTP: limits, request id, metrics, log line, status."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

import grpc

from service import errors
from service.access.authentication import AccessControl, credential_of
from service.calls.call_context import CallContext, Context
from service.calls.refusals import RefusalPace
from service.calls.request_parsing import RequestParser, UndecodableError
from service.calls.status import CHARGED, code_of, message_of
from service.engine.quota import Quota
from service.observability import tracing
from service.observability.metrics import ServerMetrics

if TYPE_CHECKING:
    from service.observability.open_telemetry import OpenTelemetryTracing, SpanTrace

# The limit of all requests in progress together, in messages of the largest size.
_MAX_LARGEST_MESSAGES = 16
# The limit of large answers that gRPC has not sent yet, at least.
_MIN_ANSWER_BYTES = 128 * 2**20
# Errors that are logged together, by the message of the line, and the seconds between two lines.
# They cost a client nothing, so their number has no other limit.
_GATHERED: dict[type[BaseException | None], str] = {
    UndecodableError: "undecodable calls",
    errors.UnauthenticatedError: "unauthenticated calls",
    errors.KeysUnavailableError: "calls whose token can't be checked",
    errors.QuotaError: "calls over quota",
}
_GATHER_SECONDS = 1.0
# How many lines are gathered at the same time: of each of these errors, one for each key.
_MAX_GATHERED = 1024
# Methods that use no model.
_METADATA_METHODS = ("ListModels", "GetModel", "ListLanguages")

_log = logging.getLogger("dragoman.access")


class CallTracker:
    """The calls in progress, of all fronts together.

    Args:
        max_calls: limit of calls in progress. Further ones are refused, and a single client is
            refused earlier, so that it does not keep others out. Health checks don't count, so that
            load does not look like a failure.
        max_message_bytes: limit of one message. All requests in progress together may have 16 times
            as much; calls beyond that are refused before their request is parsed.
        access: admits calls by their credentials; by default, all.

    Attributes:
        calls, bytes: quotas of the calls in progress and of the bytes of their requests.
        answers: quota of the bytes of large answers until gRPC has sent them, by address.
        refusals: holds refusals back, at most `max_calls` at a time.
        started: event that is set when a call starts.
    """

    def __init__(
        self,
        metrics: ServerMetrics,
        parser: RequestParser,
        max_calls: int,
        max_message_bytes: int = 4 * 2**20,
        access: AccessControl | None = None,
        tracing: OpenTelemetryTracing | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.metrics = metrics
        self.parser = parser
        self.access = access or AccessControl()
        self.max_message_bytes = max_message_bytes
        self.tracing = tracing
        self.clock = clock
        self.calls = Quota(max_calls)
        self.bytes = Quota(_MAX_LARGEST_MESSAGES * max_message_bytes)
        self.answers = Quota(max(_MIN_ANSWER_BYTES, self.bytes.capacity))
        self.refusals = RefusalPace(max_calls, clock)
        self.started = asyncio.Event()
        self._gathered: dict[tuple[str, str], _GatheredLines] = {}

    async def quiet(self, seconds: float) -> None:
        """Wait until no call has started for `seconds`."""
        while True:
            self.started.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self.started.wait()
            except TimeoutError:
                return

    def calls_to_log(self, message: str, key: str) -> int:
        """Count a failed call, and return how many to log now; 0 if the last line is recent.

        Calls with the same message (of `_GATHERED`) and the same key are logged together.
        """
        lines = self._gathered.setdefault((message, key), _GatheredLines())
        if len(self._gathered) > _MAX_GATHERED:
            del self._gathered[next(iter(self._gathered))]  # the oldest
        return lines.count()


class _GatheredLines:
    """At most one log line a second of failed calls that a client can repeat at will."""

    def __init__(self) -> None:
        self._logged_at = -_GATHER_SECONDS
        self._num_calls = 0  # since the last line

    def count(self) -> int:
        """Calls to log now, this one included; 0 if the last line is recent."""
        self._num_calls += 1
        now = time.monotonic()
        if now - self._logged_at < _GATHER_SECONDS:
            return 0
        num_calls, self._num_calls, self._logged_at = self._num_calls, 0, now
        return num_calls


class RunningCall:
    """A call from its arrival to its log line: a context manager around its handler.

    An exception of the block is suppressed and kept as `error`, for the interface to send.
    Nothing that outlives the block may refer to the request: gRPC keeps its own exception of an
    aborted call in a reference cycle if that exception's traceback leads to the call's context, and
    the garbage collector, which counts objects, does not see that such a cycle holds megabytes.

    Args:
        front: the API that the client uses, for the log; "" for the contract.

    Attributes:
        code: status of the call, once it has ended.
        error: the error of a call that failed; None if it succeeded, or was cancelled.
        message: the message for the client, if the call failed.
    """

    def __init__(
        self, tracker: CallTracker, method: str, context: Context, front: str = ""
    ) -> None:
        self.code = grpc.StatusCode.OK
        self.error: Exception | None = None
        self.message = ""
        self._tracker = tracker
        self._metrics = tracker.metrics
        self._method = method
        self._context: Context | None = context
        self._call = CallContext(context, tracker.clock)
        if front:
            self._call.facts["front"] = front
        self._client = self._client_of_quotas()
        self._is_counted = False
        self._num_bytes = 0  # that it holds of the quota
        self._trace: SpanTrace | None = None

    @property
    def request_id(self) -> str:
        """The id of the call in the log."""
        return self._call.request_id

    @property
    def retry_after_seconds(self) -> float | None:
        """Seconds until a retry, if the call was refused for load or a quota; otherwise None."""
        if isinstance(self.error, errors.ResourceExhaustedError):
            return self.error.retry_after_seconds
        return None

    def __enter__(self) -> None:
        self._call.enter()
        if self._tracker.tracing is not None:
            self._begin_trace(self._tracker.tracing)
        self._metrics.call_started(self._method)
        self._tracker.started.set()
        self._started_at = time.perf_counter()

    def _begin_trace(self, system: OpenTelemetryTracing) -> None:
        assert self._context is not None
        metadata = self._context.invocation_metadata() or ()
        self._trace = system.begin(self._method, metadata)
        tracing.current.set(self._trace)

    async def authenticate(self, credential: str = "") -> None:
        """Identify the caller by its credential. Call this before anything else in the block.

        Args:
            credential: a credential that the interface found in the body; "" to take the one in
                the headers.

        Raises:
            UnauthenticatedError: the credential is missing or unknown.
            PermissionDeniedError: the key does not allow this method.
            QuotaError: the key has no request left in this minute.
        """
        access = self._tracker.access
        if access.is_open:
            return
        assert self._context is not None
        credential = credential or credential_of(self._context.invocation_metadata() or ())
        self._call.identify(await access.identify(credential))
        self._client = self._client_of_quotas()
        self._call.grant.begin(self._method)

    def _client_of_quotas(self) -> str:
        # Metadata methods end at once, so they don't count towards a client's share.
        return "" if self._method in _METADATA_METHODS else self._call.client

    def take_quotas(self, num_bytes: int) -> None:
        """Take the call and the bytes of its request from the quotas, until the call ends.

        Raises:
            ResourceExhaustedError: a quota is used up.
        """
        calls, held = self._tracker.calls, self._tracker.bytes
        if not calls.take(1, self._client):
            raise errors.ResourceExhaustedError(
                f"{calls.num_taken} calls are in progress of at most {calls.capacity}; this client "
                "may not have another one now",
                reason="calls",
            )
        self._is_counted = True
        if not held.take(num_bytes, self._client):
            raise errors.ResourceExhaustedError(
                f"the requests in progress have {held.num_taken:,} bytes of at most "
                f"{held.capacity:,}; this client may not send {num_bytes:,} more now",
                reason="bytes",
            )
        self._num_bytes = num_bytes

    async def hold_refusal(self) -> None:
        """Wait before the error is sent, if it is a refusal of a client that has had many."""
        if self.retry_after_seconds is not None:
            await self._tracker.refusals.hold(self._call.client, self._call.seconds_left)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        try:
            self._end(error)
        finally:  # whatever fails, a call that has ended holds nothing, and is counted
            if self._is_counted:
                self._tracker.calls.release(1, self._client)
            if self._num_bytes:
                self._tracker.bytes.release(self._num_bytes, self._client)
            if self.code not in CHARGED:
                self._call.grant.give_back()
            self._record(_GATHERED.get(type(error)))
        return self.error is not None

    def _end(self, error: BaseException | None) -> None:
        """Set code, error and message."""
        late = self._call.has_expired
        if isinstance(error, asyncio.CancelledError | GeneratorExit):
            # gRPC cancels the task of a call whose client disconnected or whose deadline passed.
            self.code = grpc.StatusCode.DEADLINE_EXCEEDED if late else grpc.StatusCode.CANCELLED
        elif isinstance(error, Exception):
            is_cancelled = isinstance(error, errors.RequestCancelledError)
            self._set_error(
                errors.DeadlineExceededError("the deadline passed")
                if late and is_cancelled
                else error
            )
            _drop_tracebacks(error)
            if self.code is not grpc.StatusCode.INTERNAL:  # a cause may hold the body
                error.__cause__ = error.__context__ = None
        elif error is not None:
            self.code = grpc.StatusCode.INTERNAL

    def _record(self, gathered: str | None) -> None:
        """Count the call, and log it: by itself, or with others under a message."""
        seconds, call, metrics = time.perf_counter() - self._started_at, self._call, self._metrics
        trace, code = self._trace, self.code.name
        ids = None if trace is None else trace.ids
        metrics.call_finished(self._method, code, seconds, call.client, ids)
        is_over_quota = isinstance(self.error, errors.QuotaError)
        if self.code is grpc.StatusCode.RESOURCE_EXHAUSTED and not is_over_quota:
            metrics.requests_refused.inc()
        key = ""
        if (principal := call.grant.principal) is not None:
            key = principal.name
            metrics.key_used(key, code, call.grant.num_characters)
        if trace is not None:
            trace.end(code, call.facts)
        facts = {"method": self._method, "code": code, "seconds": round(seconds, 6)}
        if gathered is None:
            _log.info("call", extra={**facts, **call.facts})
        elif num_calls := self._tracker.calls_to_log(gathered, key):
            _log.info(gathered, extra={**facts, **call.facts, "calls": num_calls})

    def _set_error(self, error: Exception) -> None:
        self._call.facts["reason"] = errors.reason_of(error)
        self.code = code_of(error)
        if self.code is grpc.StatusCode.INTERNAL:
            _log.error("%s failed", self._method, exc_info=error)
        self.message = message_of(error, self._call.request_id)
        self.error = error


def _drop_tracebacks(error: BaseException) -> None:
    """Release the frames of an exception and its causes, which hold the request."""
    pending: list[BaseException | None] = [error]
    seen = set()  # causes and contexts can form cycles
    while pending:
        current = pending.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        current.__traceback__ = None
        pending += (current.__cause__, current.__context__)
