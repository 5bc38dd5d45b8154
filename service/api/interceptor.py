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
from types import TracebackType
from typing import Any

import grpc
from google.rpc import status_pb2

from dragoman.conversions import CLIENT_ID, REQUEST_ID, VALID_ID
from service import errors
from service.api.request_parsing import RequestParser, UndecodableError
from service.api.status import code_of, status_of
from service.engine.quota import Quota
from service.observability import logs
from service.observability.metrics import ServerMetrics

_DETAILS = "grpc-status-details-bin"  # where gRPC's rich error model puts google.rpc.Status
# gRPC's own hint, for clients whose retry policy names RESOURCE_EXHAUSTED. Ours doesn't: load that
# was refused is for the caller to hold back, who finds the same time in the details.
_PUSHBACK = "grpc-retry-pushback-ms"
# A client's clock for a deadline begins before ours: it can give up so much before it passes here.
_MOST_EARLY_SECONDS = 0.1
# Bytes of the messages of all calls in progress, in messages of the largest size.
_MAX_LARGEST_MESSAGES = 16
# Calls with undecodable messages get one line of the log in so many seconds.
_UNDECODABLE_LOG_SECONDS = 1.0
# Methods that ask no model for anything.
_METADATA = ("ListModels", "GetModel")

_log = logging.getLogger("dragoman.access")

Context = grpc.aio.ServicerContext[Any, Any]
Handler = Any  # grpc.RpcMethodHandler: its callables are typed for threads, ours are coroutines


class CallContext:
    """One call in progress.

    Attributes:
        request_id: names it in the log.
        client: who asks: what it calls itself, or the peer's address, without the port.
        peer: the address and port that the call came from.
        facts: numbers and names for its log line; never a text.
    """

    def __init__(self, context: Context) -> None:
        # Kept, because gRPC puts it together anew for everybody who asks.
        self._metadata = context.invocation_metadata() or ()
        # Not uuid4: asking the kernel for random bytes costs more than the rest of this module.
        self.request_id = self.metadata(REQUEST_ID) or f"{random.getrandbits(128):032x}"
        self.peer: str = context.peer()
        self.client = self._client()
        self.facts: dict[str, object] = {"client": self.client, "peer": self.peer}

    def metadata(self, key: str) -> str | None:
        """What the client says under this key of the metadata, if it is fit for a log."""
        for name, value in self._metadata:
            if name == key and isinstance(value, str) and VALID_ID.fullmatch(value):
                return value
        return None

    def _client(self) -> str:
        if name := self.metadata(CLIENT_ID):
            return f"id:{name}"
        return host_of(self.peer)


class Interceptor(grpc.aio.ServerInterceptor):
    """Wraps every method of our own service. Others (health, reflection) pass through.

    Args:
        metrics: where calls are counted.
        parser: of our service's requests.
        max_calls: calls in progress; more are refused, and of one client some before that, so that
            it does not keep others out. Health checks don't count, so that load does not look like
            illness.
        max_message_bytes: of one message. Messages of calls in progress may have 16 times as much
            altogether; calls beyond that are refused before their message is parsed.

    Attributes:
        calls, bytes: places of the calls in progress, and bytes of their messages.
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
        self.calls = Quota(max_calls, reserve=0)
        self.bytes = Quota(_MAX_LARGEST_MESSAGES * max_message_bytes, reserve=0)
        self.started = asyncio.Event()
        self._prefix = f"/{parser.service}/"
        self._handlers: dict[str, Handler] = {}  # by path; of our own methods only
        self._undecodable_logged_at = -_UNDECODABLE_LOG_SECONDS
        self._num_undecodable = 0  # since then

    async def quiet(self, seconds: float) -> None:
        """Wait until no call has started for so long."""
        while True:
            self.started.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self.started.wait()
            except TimeoutError:
                return

    def undecodable_calls_to_log(self) -> int:
        """Undecodable calls since the last line about them, this one included; 0: too soon."""
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
        # The handlers get the message's bytes: an undecodable message is an error of the call like
        # any other, and a call that is refused costs no parsing.
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
    """A call from its arrival to its line in the log: a context manager around its handler.

    An exception of the block is suppressed and becomes a gRPC status, which `abort` sends. Nothing
    that outlives the block may refer to the request: gRPC keeps its own exception of an aborted
    call in a reference cycle if that exception's traceback leads to the call's context, and the
    garbage collector, which counts objects, does not see that such a cycle holds megabytes.
    """

    def __init__(
        self, boundary: Interceptor, method: str, context: Context, num_bytes: int
    ) -> None:
        self._boundary = boundary
        self._method = method
        self._context: Context | None = context
        self._num_bytes = num_bytes
        self._call = call = CallContext(context)
        # Asking what models there are ends at once, whoever else has calls in progress.
        self._client = "" if method in _METADATA else call.client
        self._has_place = self._has_bytes = False
        self._code = grpc.StatusCode.OK
        self._status: status_pb2.Status | None = None
        # Not in the initial metadata: once that is sent, a client can't retry the call elsewhere.
        self._trailing: list[tuple[str, str | bytes]] = [(REQUEST_ID, call.request_id)]

    def __enter__(self) -> None:
        # gRPC runs every call in a task of its own, so that these last as long as the call.
        logs.request_id.set(self._call.request_id)
        _current.set(self._call)
        assert self._context is not None
        self._context.set_trailing_metadata(self._trailing)
        self._boundary.metrics.call_started(self._method)
        self._has_place = self._boundary.calls.take(1, self._client)
        self._has_bytes = self._boundary.bytes.take(self._num_bytes, self._client)
        self._boundary.started.set()
        self._started_at = time.perf_counter()

    def parsed(self, data: bytes) -> Any:
        """The request, if there is room for it.

        Raises:
            ResourceExhaustedError: there is none.
            InvalidArgumentError: `data` is no such request, or has too many entries.
        """
        calls, held = self._boundary.calls, self._boundary.bytes
        if not self._has_place:
            raise errors.ResourceExhaustedError(
                f"{calls.num_taken} calls are in progress of at most {calls.capacity}, and there "
                "is no place for one more of this client",
                reason="calls",
            )
        if not self._has_bytes:
            raise errors.ResourceExhaustedError(
                f"the requests in progress have {held.num_taken:,} bytes of at most "
                f"{held.capacity:,}, and there is no room for {len(data):,} more of this client",
                reason="bytes",
            )
        return self._boundary.parser.parse(self._method, data)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        code = grpc.StatusCode.OK if error is None else grpc.StatusCode.INTERNAL
        if isinstance(error, asyncio.CancelledError | GeneratorExit):
            # gRPC cancels the task of a call whose client went away, or whose deadline passed.
            assert self._context is not None
            remaining = time_remaining(self._context)
            expired = remaining is not None and remaining <= _MOST_EARLY_SECONDS
            code = grpc.StatusCode.DEADLINE_EXCEEDED if expired else grpc.StatusCode.CANCELLED
        elif isinstance(error, Exception):
            code = self._set_status(error)
            self._call.facts["reason"] = errors.reason_of(error)
            _drop_tracebacks(error)
        if self._has_place:
            self._boundary.calls.release(1, self._client)
        if self._has_bytes:
            self._boundary.bytes.release(self._num_bytes, self._client)
        seconds = time.perf_counter() - self._started_at
        self._boundary.metrics.call_finished(self._method, code.name, seconds, self._call.client)
        facts = {"method": self._method, "code": code.name, "seconds": round(seconds, 6)}
        if not isinstance(error, UndecodableError):
            _log.info("call", extra={**facts, **self._call.facts})
        elif num_calls := self._boundary.undecodable_calls_to_log():
            _log.info("undecodable calls", extra={**facts, **self._call.facts, "calls": num_calls})
        return self._status is not None

    async def abort(self) -> None:
        """End the call with the status of the block's exception."""
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
    """Let go of the frames that an exception and its causes passed: they hold the request."""
    pending: list[BaseException | None] = [error]
    seen = set()  # causes and contexts together can go in circles
    while pending:
        current = pending.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        current.__traceback__ = None
        pending += (current.__cause__, current.__context__)


def host_of(peer: str) -> str:
    """A peer's address without the port, of which every connection has another."""
    return peer.rpartition(":")[0] if peer.startswith("ipv") else peer


def time_remaining(context: Context) -> float | None:
    """Seconds until the client's deadline, None if it set none (which gRPC's types leave out)."""
    remaining: float | None = context.time_remaining()
    return remaining


def current_call() -> CallContext:
    """The call that the running task answers."""
    return _current.get()


_current: contextvars.ContextVar[CallContext] = contextvars.ContextVar("call")
