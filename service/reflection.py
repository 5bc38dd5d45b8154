"""Server reflection under both of its names, v1 and v1alpha, so that tools need no .proto files.

The library serves v1alpha only. Newer tools ask for v1 first, and some ask for nothing else. Both
have the same messages on the wire, so one servicer answers both.
"""

from __future__ import annotations

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, text_format
from grpc_reflection.v1alpha import reflection, reflection_pb2

_V1ALPHA = reflection.SERVICE_NAME
_V1 = _V1ALPHA.replace("v1alpha", "v1")


def add_reflection(services: tuple[str, ...], server: grpc.aio.Server) -> None:
    """Let `server` describe `services`, and reflection itself."""
    _describe_v1()
    servicer = reflection.aio.ReflectionServicer((*services, _V1, _V1ALPHA))
    method = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    for name in (_V1, _V1ALPHA):
        handler = grpc.method_handlers_generic_handler(name, {"ServerReflectionInfo": method})
        server.add_generic_rpc_handlers((handler,))


def _describe_v1() -> None:
    """Put v1's descriptor, which is v1alpha's with another name, where reflection looks for it."""
    v1alpha, v1 = descriptor_pb2.FileDescriptorProto(), descriptor_pb2.FileDescriptorProto()
    reflection_pb2.DESCRIPTOR.CopyToProto(v1alpha)
    text_format.Parse(str(v1alpha).replace("v1alpha", "v1"), v1)
    v1.options.ClearField("deprecated")
    descriptor_pool.Default().Add(v1)
