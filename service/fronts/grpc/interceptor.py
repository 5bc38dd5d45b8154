"""The interceptor of gRPC's calls: each runs as a `RunningCall`, whose error it sends."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.message import Message

from dragoman.conversions import REQUEST_ID
from service.calls.call_context import GrpcContext, host_of
from service.calls.call_tracker import CallTracker, RunningCall
from service.calls.request_parsing import SMALL_BYTES, RequestParser
from service.common.fairness import turn
from service.engine.quota import Quota
from service.errors import RequestCancelledError, ResourceExhaustedError
from service.fronts.grpc.undecodable import refusing_undecodable
from service.fronts.status import status_of

# For a client to read so much of a stream that the next message can be sent, as over HTTP.
WRITE_SECONDS = 30.0
# From a failed write until gRPC has noticed that the client is gone.
_GONE_SECONDS = 1.0
# Smaller answers are not counted while they leave.
_LARGE_BYTES = 32 * 1024
_DETAILS = "grpc-status-details-bin"  # the key of google.rpc.Status in gRPC's rich error model
# gRPC's own hint, for clients whose retry policy names RESOURCE_EXHAUSTED. Our client's doesn't: it
# reads the same time from the details.
_PUSHBACK = "grpc-retry-pushback-ms"

Handler = Any  # grpc.RpcMethodHandler, whose types are for threads; ours are coroutines


@dataclass(frozen=True)
class GrpcFront:
    """A service that translates.

    Attributes:
        parser: parses its requests.
        name: its name for the log; "" for the contract.
        methods: the method of the contract that each of its methods counts as; by default, the one
            of the same name.
    """

    parser: RequestParser
    name: str = ""
    methods: Mapping[str, str] = field(default_factory=dict)


class Interceptor:
    """Wraps every method of the contract and of other fronts, once, before the server starts.

    gRPC would call an interceptor of its own kind again for each call. Methods of other services
    (health, reflection) refuse undecodable bytes.

    Attributes:
        write_seconds: time for a client to read so much of a stream that its next message can be
            sent.
    """

    def __init__(
        self,
        tracker: CallTracker,
        write_seconds: float = WRITE_SECONDS,
        fronts: Sequence[GrpcFront] = (),
    ) -> None:
        self._tracker = tracker
        self.write_seconds = write_seconds
        self._fronts = {
            front.parser.service: front for front in (GrpcFront(tracker.parser), *fronts)
        }

    def wrapped(self, service: str, method: str, handler: Handler) -> Handler:
        """The handler of a method, wrapped.

        Args:
            service: full name of the service.
            method: name of the method.
            handler: the method of the servicer.
        """
        if (front := self._fronts.get(service)) is None:
            return refusing_undecodable(handler) if handler.request_deserializer else handler
        # The handlers get bytes: an undecodable message is an error of the call like any other, and
        # refused calls are not parsed.
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(
                self._stream(front, method, handler.unary_stream),
                response_serializer=handler.response_serializer,
            )
        return grpc.unary_unary_rpc_method_handler(
            self._unary(front, method, handler.unary_unary, handler.response_serializer),
            response_serializer=bytes,
        )

    def _unary(
        self, front: GrpcFront, method: str, behaviour: Handler, serialize: Callable[[Any], bytes]
    ) -> Handler:
        async def answer(data: bytes, context: GrpcContext) -> Any:
            running = GrpcCall(self._tracker, front, method, context)
            with running:
                message = await behaviour(await running.request(data), context)
                # Here, since protobuf takes as long for a message's size as for its bytes.
                return running.leaving(serialize(message))
            del data, context
            await running.abort()

        return answer

    def _stream(self, front: GrpcFront, method: str, behaviour: Handler) -> Handler:
        async def answer(data: bytes, context: GrpcContext) -> None:
            running = GrpcCall(self._tracker, front, method, context)
            with running:
                async with contextlib.aclosing(
                    behaviour(await running.request(data), context)
                ) as responses:
                    await _send(context, responses, self.write_seconds)
                return
            del data, context
            await running.abort()

        return answer


async def _send(context: GrpcContext, responses: AsyncIterator[Any], write_seconds: float) -> None:
    """Send the messages of a stream.

    Raises:
        RequestCancelledError: the client has not read enough in time, or is gone.
    """
    is_begun = False
    try:
        async for response in responses:
            if not is_begun:  # or else no status could follow a first message that is given up
                await context.send_initial_metadata(())
                is_begun = True
            async with asyncio.timeout(write_seconds) as timeout:
                await context.write(response)
    except TimeoutError as exc:
        if is_begun and timeout.expired():
            raise RequestCancelledError("the client reads its answer too slowly") from exc
        raise
    except grpc.aio.InternalError as exc:
        # gRPC cancels this task in a moment. Until then, a status would be an error too.
        await asyncio.sleep(_GONE_SECONDS)
        raise RequestCancelledError("the client disconnected") from exc


class GrpcCall(RunningCall):
    """A call over gRPC."""

    def __init__(
        self, tracker: CallTracker, front: GrpcFront, method: str, context: GrpcContext
    ) -> None:
        super().__init__(tracker, front.methods.get(method, method), context, front.name)
        self._parse = functools.partial(front.parser.parse, method)
        # Not in the initial metadata: once that is sent, a client can't retry the call elsewhere.
        self._trailing: list[tuple[str, str | bytes]] = [(REQUEST_ID, self.request_id)]
        context.set_trailing_metadata(self._trailing)

    async def request(self, data: bytes) -> Message:
        """The request of an authenticated caller. Raises DragomanError."""
        await self.authenticate()
        self.take_quotas(len(data))
        if len(data) > SMALL_BYTES:
            await turn()  # the fields are counted
        request = self._parse(data)
        # Once it is the client's turn: calls that gRPC still holds come first.
        await turn()
        return request

    def leaving(self, answer: bytes) -> bytes:
        """Count an answer, if it is large, until it has been sent: a client may never read it.

        Raises:
            ResourceExhaustedError: this client has not read enough of its other answers.
        """
        size, quota = len(answer), self._tracker.answers
        if size > _LARGE_BYTES:
            host = host_of(self._call.peer)
            size = min(size, quota.capacity // 2)  # so that each answer can be sent
            if not quota.take(size, host):
                raise ResourceExhaustedError(
                    f"answers of {quota.num_taken:,} bytes are on their way, of at most "
                    f"{quota.capacity:,}; this client has not read enough of its own",
                    reason="answers",
                )
            context: Any = self._context
            context.add_done_callback(functools.partial(_release, quota, size, host))
        return answer

    async def abort(self) -> None:
        """End the call with the status of its error, after the wait if a refusal is held back."""
        await self.hold_refusal()
        context: Any = self._context
        self._context = None
        assert self.error is not None
        status = status_of(self.error, self.request_id)
        self._trailing.append((_DETAILS, status.SerializeToString()))
        if self.retry_after_seconds is not None:
            self._trailing.append((_PUSHBACK, str(round(self.retry_after_seconds * 1000))))
        try:
            await context.abort(self.code, status.message, tuple(self._trailing))
        except grpc.aio.AbortError as exc:
            del context
            raise exc.with_traceback(None) from None


def _release(quota: Quota, size: int, host: str, context: object) -> None:
    quota.release(size, host)
