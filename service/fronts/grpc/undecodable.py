"""Refuses undecodable requests to methods of other services, which decode their own requests.

By itself, gRPC would end such a call with UNKNOWN and the text of an exception, and log the stack,
so that anyone could fill the log.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from service.calls.call_context import GrpcContext

Handler = Any  # grpc.RpcMethodHandler, whose types are for threads; ours are coroutines


def refusing_undecodable(handler: Handler) -> Handler:
    """Wrap a method, so that it ends with INVALID_ARGUMENT if a request is undecodable.

    The handler has a deserializer, and takes one request, or streams in both directions.
    """
    decode: Callable[[bytes], Any] = handler.request_deserializer
    unary, stream, streams = handler.unary_unary, handler.unary_stream, handler.stream_stream

    def checked(data: bytes) -> Any:
        """The request; None if it is undecodable."""
        try:
            return decode(data)
        except DecodeError:
            return None

    async def answer(request: Any, context: GrpcContext) -> Any:
        return await unary(await _refused_if_none(request, context), context)

    async def answer_with_stream(request: Any, context: GrpcContext) -> AsyncIterator[Any]:
        async for response in stream(await _refused_if_none(request, context), context):
            yield response

    async def answer_stream(requests: AsyncIterator[Any], context: GrpcContext) -> None:
        await streams((await _refused_if_none(each, context) async for each in requests), context)

    return handler._replace(
        request_deserializer=checked,
        unary_unary=unary and answer,
        unary_stream=stream and answer_with_stream,
        stream_stream=streams and answer_stream,
    )


async def _refused_if_none(request: Any, context: GrpcContext) -> Any:
    if request is None:
        message = "request: bad wire format, or a string that is not UTF-8"
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, message)
    return request
