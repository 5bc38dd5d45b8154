"""The boundary between the service and gRPC: what happens to every call, whatever it asks.

A call gets a request id, is counted, timed and logged, and its exceptions become gRPC status codes
with details (https://google.aip.dev/193), here and nowhere else.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from google.protobuf import duration_pb2
from google.rpc import error_details_pb2, status_pb2

from dragoman.conversions import CLIENT_ID, REQUEST_ID, VALID_ID
from service import errors, logs
from service.admission import Places
from service.metrics import ServerMetrics

_DETAILS = "grpc-status-details-bin"  # where gRPC's rich error model puts google.rpc.Status
# gRPC's own hint, for clients whose retry policy names RESOURCE_EXHAUSTED. Ours doesn't: load that
# was refused is for the caller to hold back, who finds the same time in the details.
_PUSHBACK = "grpc-retry-pushback-ms"
# A client's clock for a deadline begins before ours: it can give up so much before it passes here.
_MOST_EARLY_SECONDS = 0.1
# Methods that ask no model for anything.
_METADATA = ("ListModels", "GetModel")

_CODES: dict[type[errors.DragomanError], grpc.StatusCode] = {
    errors.InvalidArgumentError: grpc.StatusCode.INVALID_ARGUMENT,
    errors.NotFoundError: grpc.StatusCode.NOT_FOUND,
    errors.FailedPreconditionError: grpc.StatusCode.FAILED_PRECONDITION,
    errors.ResourceExhaustedError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.DeadlineExceededError: grpc.StatusCode.DEADLINE_EXCEEDED,
    errors.RequestCancelledError: grpc.StatusCode.CANCELLED,
    errors.UnavailableError: grpc.StatusCode.UNAVAILABLE,
}

_log = logging.getLogger("dragoman.access")

Context = grpc.aio.ServicerContext[Any, Any]
Handler = Any  # grpc.RpcMethodHandler: its callables are typed for threads, ours are coroutines


def code_of(error: BaseException) -> grpc.StatusCode:
    """The gRPC code of an exception; INTERNAL for what nobody raised on purpose."""
    for kind in type(error).__mro__:
        if kind in _CODES:
            return _CODES[kind]
    return grpc.StatusCode.INTERNAL


def status_of(error: BaseException, request_id: str) -> status_pb2.Status:
    """What a client is told about an exception: code, message, and details to act on.

    Args:
        error: anything. What is not a DragomanError is a defect, and its text stays in the log.
        request_id: for the message of an internal error.
    """
    code = code_of(error)
    number: int = code.value[0]
    if code is grpc.StatusCode.INTERNAL:
        return status_pb2.Status(
            code=number, message=f"internal error; the server's log has it as {request_id}"
        )
    status = status_pb2.Status(code=number, message=_clipped(str(error)))
    if isinstance(error, errors.InvalidArgumentError):
        violation = error_details_pb2.BadRequest.FieldViolation(
            field=_clipped(error.field, 200), description=_clipped(error.description)
        )
        status.details.add().Pack(error_details_pb2.BadRequest(field_violations=[violation]))
    if isinstance(error, errors.ResourceExhaustedError):
        delay = duration_pb2.Duration()
        delay.FromMilliseconds(round(error.retry_after_seconds * 1000))
        status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    return status


def _clipped(text: str, max_bytes: int = 1000) -> str:
    """`text` in a size that fits a header (8 KiB, where it stands twice, escaped or in base64)."""
    if len(text.encode()) <= max_bytes:
        return text
    return text.encode()[: max_bytes - 3].decode(errors="ignore") + "..."


class Call:
    """One call in progress.

    Attributes:
        request_id: names it in the log.
        client: who asks: what it calls itself, or the peer's address, without the port: every
            connection has another.
        facts: numbers for its log line; never a text.
    """

    def __init__(self, context: Context) -> None:
        # Kept, because gRPC puts it together anew for everybody who asks.
        self._metadata = context.invocation_metadata() or ()
        # Not uuid4: asking the kernel for random bytes costs more than the rest of this module.
        self.request_id = self.metadata(REQUEST_ID) or f"{random.getrandbits(128):032x}"
        self.client = self._client(context)
        self.facts: dict[str, object] = {}

    def metadata(self, key: str) -> str | None:
        """What the client says under this key of the metadata, if it is fit for a log."""
        for name, value in self._metadata:
            if name == key and isinstance(value, str) and VALID_ID.fullmatch(value):
                return value
        return None

    def _client(self, context: Context) -> str:
        if name := self.metadata(CLIENT_ID):
            return f"id:{name}"
        peer: str = context.peer()
        return peer.rpartition(":")[0] if peer.startswith("ipv") else peer


class Boundary(grpc.aio.ServerInterceptor):
    """Wraps every method of our own service. Others (health, reflection) pass through.

    Args:
        metrics: where calls are counted.
        service: the full name of our service.
        max_calls: calls in progress; more are refused, and of one client some before that, so that
            it does not keep others out. Health checks don't count, so that load does not look like
            illness.
    """

    def __init__(self, metrics: ServerMetrics, service: str, max_calls: int) -> None:
        self._metrics = metrics
        self._prefix = f"/{service}/"
        self._calls = Places(max_calls, reserve=0)
        self._started = asyncio.Event()
        self._handlers: dict[str, Handler] = {}  # by path; of our own methods only

    async def quiet(self, seconds: float) -> None:
        """Wait until no call has started for so long."""
        while True:
            self._started.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._started.wait()
            except TimeoutError:
                return

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
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(
                self._stream(method, handler.unary_stream),
                handler.request_deserializer,
                handler.response_serializer,
            )
        return grpc.unary_unary_rpc_method_handler(
            self._unary(method, handler.unary_unary),
            handler.request_deserializer,
            handler.response_serializer,
        )

    def _unary(self, method: str, behaviour: Handler) -> Handler:
        async def answer(request: Any, context: Context) -> Any:
            async with self._call(method, context):
                return await behaviour(request, context)

        return answer

    def _stream(self, method: str, behaviour: Handler) -> Handler:
        async def answer(request: Any, context: Context) -> AsyncIterator[Any]:
            async with (
                self._call(method, context),
                contextlib.aclosing(behaviour(request, context)) as responses,
            ):
                async for response in responses:
                    yield response

        return answer

    @contextlib.asynccontextmanager
    async def _call(self, method: str, context: Context) -> AsyncIterator[None]:
        call = Call(context)
        # gRPC runs every call in a task of its own, so that these last as long as the call.
        logs.request_id.set(call.request_id)
        _current.set(call)
        # Not in the initial metadata: once that is sent, a client can't retry the call elsewhere.
        trailing: list[tuple[str, str | bytes]] = [(REQUEST_ID, call.request_id)]
        context.set_trailing_metadata(trailing)
        self._metrics.call_started(method)
        # Asking what models there are ends at once, whoever else has calls in progress.
        client = "" if method in _METADATA else call.client
        is_taken = self._calls.take(1, client)
        self._started.set()
        started, code = time.perf_counter(), grpc.StatusCode.OK
        try:
            if not is_taken:
                raise errors.ResourceExhaustedError(
                    f"{self._calls.num_taken} calls are in progress of at most "
                    f"{self._calls.capacity}, and there is no place for one more of this client"
                )
            yield
        except (asyncio.CancelledError, GeneratorExit):
            # gRPC cancels the task of a call whose client went away, or whose deadline passed.
            remaining = time_remaining(context)
            expired = remaining is not None and remaining <= _MOST_EARLY_SECONDS
            code = grpc.StatusCode.DEADLINE_EXCEEDED if expired else grpc.StatusCode.CANCELLED
            raise
        except Exception as exc:
            code = code_of(exc)
            if code is grpc.StatusCode.INTERNAL:
                _log.exception("%s failed", method)
            status = status_of(exc, call.request_id)
            trailing.append((_DETAILS, status.SerializeToString()))
            if isinstance(exc, errors.ResourceExhaustedError):
                trailing.append((_PUSHBACK, str(round(exc.retry_after_seconds * 1000))))
            await context.abort(code, status.message, tuple(trailing))
        finally:
            if is_taken:
                self._calls.release(1, client)
            seconds = time.perf_counter() - started
            self._metrics.call_finished(method, code.name, seconds)
            facts = {"method": method, "code": code.name, "seconds": round(seconds, 6)}
            _log.info("call", extra={**facts, **call.facts})


def time_remaining(context: Context) -> float | None:
    """Seconds until the client's deadline, None if it set none (which gRPC's types leave out)."""
    remaining: float | None = context.time_remaining()
    return remaining


def current_call() -> Call:
    """The call that the running task answers."""
    return _current.get()


_current: contextvars.ContextVar[Call] = contextvars.ContextVar("call")
