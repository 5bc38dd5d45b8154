"""Server reflection under both of its names, v1 and v1alpha, so that tools need no .proto files.

The library serves v1alpha only. Newer tools try v1 first, and some only v1. Both have the same
messages on the wire, so one servicer answers both.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, text_format
from grpc_reflection.v1alpha import reflection, reflection_pb2

_V1ALPHA = reflection.SERVICE_NAME
_V1 = _V1ALPHA.replace("v1alpha", "v1")


class Reflection:
    """Describes `services`, and reflection itself.

    Args:
        services: full names.
        max_streams: limit of open streams; further ones end with RESOURCE_EXHAUSTED.

    Attributes:
        services, max_streams: the arguments.

    Streams end when the server drains: an idle one would hold the drain until its bound.
    """

    def __init__(self, services: tuple[str, ...], max_streams: int) -> None:
        _describe_v1()
        # Any: its types omit that its method is an asynchronous generator.
        self._servicer: Any = reflection.aio.ReflectionServicer((*services, _V1, _V1ALPHA))
        self.services = services
        self.max_streams = max_streams
        self._streams: set[asyncio.Timeout] = set()
        self._draining = False

    def add_to(self, server: grpc.aio.Server) -> None:
        """Add the service to `server`."""
        method = grpc.stream_stream_rpc_method_handler(
            self._answer,
            request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
            response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
        )
        for name in (_V1, _V1ALPHA):
            server.add_registered_method_handlers(name, {"ServerReflectionInfo": method})

    def start_draining(self) -> None:
        """End all streams, and refuse new ones."""
        self._draining = True
        for stream in self._streams:
            stream.reschedule(asyncio.get_running_loop().time())

    async def _answer(
        self, requests: AsyncIterator[Any], context: grpc.aio.ServicerContext[Any, Any]
    ) -> None:
        if self._draining:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the server is draining")
        if len(self._streams) == self.max_streams:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{self.max_streams} reflection streams are open, which is the limit",
            )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None) as stream:
                self._streams.add(stream)
                try:
                    async for response in self._servicer.ServerReflectionInfo(requests, context):
                        await context.write(response)
                finally:
                    self._streams.remove(stream)


def _describe_v1() -> None:
    """Add v1's descriptor, which is v1alpha's under another name, to the descriptor pool."""
    v1alpha, v1 = descriptor_pb2.FileDescriptorProto(), descriptor_pb2.FileDescriptorProto()
    reflection_pb2.DESCRIPTOR.CopyToProto(v1alpha)
    text_format.Parse(str(v1alpha).replace("v1alpha", "v1"), v1)
    v1.options.ClearField("deprecated")
    descriptor_pool.Default().Add(v1)
