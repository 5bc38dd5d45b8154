"""The interceptor of every call: request id, limits, metrics, log line, errors to gRPC status.

Exceptions become gRPC status codes with details (https://google.aip.dev/193) here and nowhere else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Any

import grpc
from google.rpc import status_pb2

from dragoman.conversions import REQUEST_ID
from service import errors
from service.api.call_context import CallContext, Context, time_remaining
from service.api.request_parsing import RequestParser, UndecodableError
from service.api.status import code_of, status_of
from service.engine.quota import Quota
from service.observability.metrics import ServerMetrics

_DETAILS = "grpc-status-details-bin"  # the key of google.rpc.Status in gRPC's rich error model
# gRPC's own hint, for clients whose retry policy names RESOURCE_EXHAUSTED. Our client's doesn't: it
# reads the same time from the details.
_PUSHBACK = "grpc-retry-pushback-ms"
# A deadline passes at the client first, by the time that the call was on its way.
_MAX_EARLY_SECONDS = 0.1
# The limit of all requests in progress together, in messages of the largest size.
_MAX_LARGEST_MESSAGES = 16
# The interval between log lines about undecodable messages.
_UNDECODABLE_LOG_SECONDS = 1.0
# Methods that use no model.
_METADATA_METHODS = ("ListModels", "GetModel", "ListLanguages")

_log = logging.getLogger("dragoman.access")

Handler = Any  # grpc.RpcMethodHandler, whose types are for threads; ours are coroutines


class Interceptor(grpc.aio.ServerInterceptor):
    """Wraps every method of our own service. Others (health, reflection) pass through.

    Args:
        metrics: counts calls.
        parser: parses requests of our service.
        max_calls: limit of calls in progress. Further ones are refused, and a single client is
            refused earlier, so that it does not keep others out. Health checks don't count, so that
            load does not look like a failure.
        max_message_bytes: limit of one message. All requests in progress together may have 16 times
            as much; calls beyond that are refused before their request is parsed.

    Attributes:
        calls, bytes: quotas of the calls in progress and of the bytes of their requests.
        started: set when a call starts.
    """

    def __init__(
        self,
        metrics: ServerMetrics,
        parser: RequestParser,
        max_calls: int,
        max_message_bytes: int = 4 * 2**20,
    ) -> None:
        self.metrics = metrics
        self.parser = parser
        self.calls = Quota(max_calls)
        self.bytes = Quota(_MAX_LARGEST_MESSAGES * max_message_bytes)
        self.started = asyncio.Event()
        self._prefix = f"/{parser.service}/"
        self._handlers: dict[str, Handler] = {}  # by path; our own methods only
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

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """The handler of a method, wrapped if it is ours."""
        path: Any = handler_call_details.method
        if path in self._handlers:
            return self._handlers[path]
        handler = await continuation(handler_call_details)
        if handler is None or not path.startswith(self._prefix):
            return handler
        self._handlers[path] = self._wrapped(path.removeprefix(self._prefix), handler)
        return self._handlers[path]

    def _wrapped(self, method: str, handler: Handler) -> Handler:
        # The handlers get bytes: an undecodable message is an error of the call like any other, and
        # refused calls are not parsed.
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(
                self._stream(method, handler.unary_stream),
                response_serializer=handler.response_serializer,
            )
        return grpc.unary_unary_rpc_method_handler(
            self._unary(method, handler.unary_unary),
            response_serializer=handler.response_serializer,
        )

    def _unary(self, method: str, behaviour: Handler) -> Handler:
        async def answer(data: bytes, context: Context) -> Any:
            running = _RunningCall(self, method, context, len(data))
            with running:
                return await behaviour(running.parsed(data), context)
            del data, context
            await running.abort()

        return answer

    def _stream(self, method: str, behaviour: Handler) -> Handler:
        async def answer(data: bytes, context: Context) -> AsyncIterator[Any]:
            running = _RunningCall(self, method, context, len(data))
            with running:
                async with contextlib.aclosing(
                    behaviour(running.parsed(data), context)
                ) as responses:
                    async for response in responses:
                        yield response
                return
            del data, context
            await running.abort()

        return answer


class _RunningCall:
    """A call from its arrival to its log line: a context manager around its handler.

    It suppresses an exception of the block and turns it into a gRPC status, which `abort` sends.
    Nothing that outlives the block may refer to the request: gRPC keeps its own exception of an
    aborted call in a reference cycle if that exception's traceback leads to the call's context, and
    the garbage collector, which counts objects, does not see that such a cycle holds megabytes.
    """

    def __init__(
        self, interceptor: Interceptor, method: str, context: Context, num_bytes: int
    ) -> None:
        self._interceptor = interceptor
        self._method = method
        self._context: Context | None = context
        self._num_bytes = num_bytes
        self._call = call = CallContext(context)
        # Metadata methods end at once, so they don't count towards a client's share.
        self._client = "" if method in _METADATA_METHODS else call.client
        self._is_counted = self._has_bytes = False
        self._code = grpc.StatusCode.OK
        self._status: status_pb2.Status | None = None
        # Not in the initial metadata: once that is sent, a client can't retry the call elsewhere.
        self._trailing: list[tuple[str, str | bytes]] = [(REQUEST_ID, call.request_id)]

    def __enter__(self) -> None:
        self._call.enter()
        assert self._context is not None
        self._context.set_trailing_metadata(self._trailing)
        self._interceptor.metrics.call_started(self._method)
        self._is_counted = self._interceptor.calls.take(1, self._client)
        self._has_bytes = self._interceptor.bytes.take(self._num_bytes, self._client)
        self._interceptor.started.set()
        self._started_at = time.perf_counter()

    def parsed(self, data: bytes) -> Any:
        """The request, once the call is within the quotas.

        Raises:
            ResourceExhaustedError: it is not.
            InvalidArgumentError: `data` is not such a request, or has too many entries.
        """
        calls, held = self._interceptor.calls, self._interceptor.bytes
        if not self._is_counted:
            raise errors.ResourceExhaustedError(
                f"{calls.num_taken} calls are in progress of at most {calls.capacity}; this client "
                "may not have another one now",
                reason="calls",
            )
        if not self._has_bytes:
            raise errors.ResourceExhaustedError(
                f"the requests in progress have {held.num_taken:,} bytes of at most "
                f"{held.capacity:,}; this client may not send {len(data):,} more now",
                reason="bytes",
            )
        return self._interceptor.parser.parse(self._method, data)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        code = grpc.StatusCode.OK if error is None else grpc.StatusCode.INTERNAL
        if isinstance(error, asyncio.CancelledError | GeneratorExit):
            # gRPC cancels the task of a call whose client disconnected or whose deadline passed.
            assert self._context is not None
            remaining = time_remaining(self._context)
            expired = remaining is not None and remaining <= _MAX_EARLY_SECONDS
            code = grpc.StatusCode.DEADLINE_EXCEEDED if expired else grpc.StatusCode.CANCELLED
        elif isinstance(error, Exception):
            code = self._set_status(error)
            self._call.facts["reason"] = errors.reason_of(error)
            _drop_tracebacks(error)
        if self._is_counted:
            self._interceptor.calls.release(1, self._client)
        if self._has_bytes:
            self._interceptor.bytes.release(self._num_bytes, self._client)
        seconds = time.perf_counter() - self._started_at
        self._interceptor.metrics.call_finished(self._method, code.name, seconds, self._call.client)
        facts = {"method": self._method, "code": code.name, "seconds": round(seconds, 6)}
        if not isinstance(error, UndecodableError):
            _log.info("call", extra={**facts, **self._call.facts})
        elif num_calls := self._interceptor.undecodable_calls_to_log():
            _log.info("undecodable calls", extra={**facts, **self._call.facts, "calls": num_calls})
        return self._status is not None

    async def abort(self) -> None:
        """End the call with the status of the exception."""
        context, self._context = self._context, None
        status = self._status
        assert context is not None
        assert status is not None
        try:
            await context.abort(self._code, status.message, tuple(self._trailing))
        except grpc.aio.AbortError as exc:
            del context
            raise exc.with_traceback(None) from None

    def _set_status(self, error: Exception) -> grpc.StatusCode:
        self._code = code = code_of(error)
        if code is grpc.StatusCode.INTERNAL:
            _log.error("%s failed", self._method, exc_info=error)
        self._status = status = status_of(error, self._call.request_id)
        self._trailing.append((_DETAILS, status.SerializeToString()))
        if isinstance(error, errors.ResourceExhaustedError):
            self._trailing.append((_PUSHBACK, str(round(error.retry_after_seconds * 1000))))
        return code


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
