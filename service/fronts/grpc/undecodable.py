"""Methods of other services, which decode their own requests: one that is undecodable is refused.

Left to gRPC, it would end the call with UNKNOWN and the text of an exception, and be logged with
its stack: anyone could fill the log.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from service.calls.call_context import GrpcContext

Handler = Any  # grpc.RpcMethodHandler, whose types are for threads; ours are coroutines


def refusing_undecodable(handler: Handler) -> Handler:
    """A method that ends with INVALID_ARGUMENT if a request is none; others it leaves alone.

    Args:
        handler: with a deserializer; of one request, or of streams in both directions.
    """
    decode = _checked(handler.request_deserializer)
    if handler.request_streaming:
        return grpc.stream_stream_rpc_method_handler(
            _streams(handler.stream_stream), decode, handler.response_serializer
        )
    if handler.response_streaming:
        return grpc.unary_stream_rpc_method_handler(
            _stream(handler.unary_stream), decode, handler.response_serializer
        )
    return grpc.unary_unary_rpc_method_handler(
        _unary(handler.unary_unary), decode, handler.response_serializer
    )


def _checked(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def decoded(data: bytes) -> Any:
        """The request; None if it is undecodable."""
        try:
            return decode(data)
        except DecodeError:
            return None

    return decoded


async def _refuse(context: GrpcContext) -> None:
    await context.abort(
        grpc.StatusCode.INVALID_ARGUMENT,
        "request: bad wire format, or a string that is not UTF-8",
    )


def _unary(behaviour: Handler) -> Handler:
    async def answer(request: Any, context: GrpcContext) -> Any:
        if request is None:
            await _refuse(context)
        return await behaviour(request, context)

    return answer


def _stream(behaviour: Handler) -> Handler:
    async def answer(request: Any, context: GrpcContext) -> AsyncIterator[Any]:
        if request is None:
            await _refuse(context)
        async for response in behaviour(request, context):
            yield response

    return answer


def _streams(behaviour: Handler) -> Handler:
    async def answer(requests: AsyncIterator[Any], context: GrpcContext) -> None:
        async def checked() -> AsyncIterator[Any]:
            async for request in requests:
                if request is None:
                    await _refuse(context)
                yield request

        await behaviour(checked(), context)

    return answer
