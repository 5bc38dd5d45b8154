"""Every call of our service, over gRPC or HTTP: limits, request id, metrics, log line, status."""

from __future__ import annotations

import asyncio
import logging
import time
from types import TracebackType
from typing import Any

import grpc
from google.rpc import status_pb2

from service import errors
from service.api.call_context import CallContext, Context
from service.api.request_parsing import RequestParser, UndecodableError
from service.api.status import code_of, status_of
from service.engine.quota import Quota
from service.observability import tracing
from service.observability.metrics import ServerMetrics
from service.observability.tracing import CallTrace, Tracing

# A deadline passes at the client first, by the time that the call was on its way.
_MAX_EARLY_SECONDS = 0.1
# The limit of all requests in progress together, in messages of the largest size.
_MAX_LARGEST_MESSAGES = 16
# The interval between log lines about undecodable messages.
_UNDECODABLE_LOG_SECONDS = 1.0
# Methods that use no model.
_METADATA_METHODS = ("ListModels", "GetModel", "ListLanguages")

_log = logging.getLogger("dragoman.access")


class CallTracker:
    """The calls in progress, of all fronts together.

    Args:
        metrics: counts calls.
        parser: parses requests of our service.
        max_calls: limit of calls in progress. Further ones are refused, and a single client is
            refused earlier, so that it does not keep others out. Health checks don't count, so that
            load does not look like a failure.
        max_message_bytes: limit of one message. All requests in progress together may have 16 times
            as much; calls beyond that are refused before their request is parsed.
        tracing: begins traces; None for none.

    Attributes:
        parser: as given.
        max_message_bytes, tracing: likewise.
        calls, bytes: quotas of the calls in progress and of the bytes of their requests.
        started: set when a call starts.
    """

    def __init__(
        self,
        metrics: ServerMetrics,
        parser: RequestParser,
        max_calls: int,
        max_message_bytes: int = 4 * 2**20,
        tracing: Tracing | None = None,
    ) -> None:
        self.metrics = metrics
        self.parser = parser
        self.max_message_bytes = max_message_bytes
        self.tracing = tracing
        self.calls = Quota(max_calls)
        self.bytes = Quota(_MAX_LARGEST_MESSAGES * max_message_bytes)
        self.started = asyncio.Event()
        self._undecodable_logged_at = -_UNDECODABLE_LOG_SECONDS
        self._num_undecodable = 0  # since the last line

    async def quiet(self, seconds: float) -> None:
        """Wait until no call has started for `seconds`."""
        while True:
            self.started.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self.started.wait()
            except TimeoutError:
                return

    def undecodable_calls_to_log(self) -> int:
        """Undecodable calls to log now, this one included; 0 if the last line is recent."""
        self._num_undecodable += 1
        now = time.monotonic()
        if now - self._undecodable_logged_at < _UNDECODABLE_LOG_SECONDS:
            return 0
        count, self._num_undecodable = self._num_undecodable, 0
        self._undecodable_logged_at = now
        return count


class RunningCall:
    """A call from its arrival to its log line: a context manager around its handler.

    It suppresses an exception of the block and turns it into a status, for the front to send.
    Nothing that outlives the block may refer to the request: gRPC keeps its own exception of an
    aborted call in a reference cycle if that exception's traceback leads to the call's context, and
    the garbage collector, which counts objects, does not see that such a cycle holds megabytes.

    Args:
        tracker: of all calls.
        method: its name in the contract.
        context: what the front knows of the call.

    Attributes:
        code: once it has ended.
        status: likewise; None if it succeeded, or was cancelled.
        retry_after_seconds: when to retry it, if it was refused for load.
    """

    def __init__(self, tracker: CallTracker, method: str, context: Context) -> None:
        self.code = grpc.StatusCode.OK
        self.status: status_pb2.Status | None = None
        self.retry_after_seconds: float | None = None
        self._tracker = tracker
        self._method = method
        self._context: Context | None = context
        self._call = call = CallContext(context)
        # Metadata methods end at once, so they don't count towards a client's share.
        self._client = "" if method in _METADATA_METHODS else call.client
        self._is_counted = False
        self._num_bytes = 0  # that it holds of the quota
        self._trace: CallTrace | None = None

    @property
    def request_id(self) -> str:
        """Identifies the call in the log."""
        return self._call.request_id

    def __enter__(self) -> None:
        self._call.enter()
        if self._tracker.tracing is not None:
            self._begin_trace(self._tracker.tracing)
        self._tracker.metrics.call_started(self._method)
        self._tracker.started.set()
        self._started_at = time.perf_counter()

    def _begin_trace(self, system: Tracing) -> None:
        assert self._context is not None
        metadata = self._context.invocation_metadata() or ()
        self._trace = system.begin(self._method, metadata)
        tracing.current.set(self._trace)

    def take_quotas(self, num_bytes: int) -> None:
        """Count the call and the bytes of its request, which has arrived, until the call ends.

        Raises:
            ResourceExhaustedError: they are not within the quotas.
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

    def parsed(self, data: bytes) -> Any:
        """The request, once the call is within the quotas.

        Raises:
            ResourceExhaustedError: it is not.
            InvalidArgumentError: `data` is not such a request, or has too many entries.
        """
        self.take_quotas(len(data))
        return self._tracker.parser.parse(self._method, data)

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
            self._record(is_undecodable=isinstance(error, UndecodableError))
        return self.status is not None

    def _end(self, error: BaseException | None) -> None:
        """Set code and status."""
        if isinstance(error, asyncio.CancelledError | GeneratorExit):
            # gRPC cancels the task of a call whose client disconnected or whose deadline passed.
            assert self._context is not None
            remaining = self._context.time_remaining()
            expired = remaining is not None and remaining <= _MAX_EARLY_SECONDS
            self.code = grpc.StatusCode.DEADLINE_EXCEEDED if expired else grpc.StatusCode.CANCELLED
        elif isinstance(error, Exception):
            self._call.facts["reason"] = errors.reason_of(error)
            self._set_status(error)
            _drop_tracebacks(error)
        elif error is not None:
            self.code = grpc.StatusCode.INTERNAL

    def _record(self, *, is_undecodable: bool) -> None:
        """Count the call, and log it."""
        seconds, code = time.perf_counter() - self._started_at, self.code.name
        trace_ids = None if self._trace is None else self._trace.ids
        self._tracker.metrics.call_finished(
            self._method, code, seconds, self._call.client, trace_ids
        )
        if self._trace is not None:
            self._trace.end(code, self._call.facts)
        facts = {"method": self._method, "code": code, "seconds": round(seconds, 6)}
        if not is_undecodable:
            _log.info("call", extra={**facts, **self._call.facts})
        elif num_calls := self._tracker.undecodable_calls_to_log():
            _log.info("undecodable calls", extra={**facts, **self._call.facts, "calls": num_calls})

    def _set_status(self, error: Exception) -> None:
        self.code = code_of(error)
        if self.code is grpc.StatusCode.INTERNAL:
            _log.error("%s failed", self._method, exc_info=error)
        self.status = status_of(error, self._call.request_id)
        if isinstance(error, errors.ResourceExhaustedError):
            self.retry_after_seconds = error.retry_after_seconds


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
