from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from grpc_reflection.v1alpha import reflection_pb2

from service.ports.grpc.reflection import Reflection

MAX_STREAMS = 2
METHOD = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
LIST = reflection_pb2.ServerReflectionRequest(list_services="")


@pytest.fixture
async def described() -> AsyncIterator[tuple[Reflection, Any]]:
    service, server = Reflection((), MAX_STREAMS), grpc.aio.server()
    service.add_to(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        connection: Any = channel
        yield (
            service,
            connection.stream_stream(
                METHOD,
                reflection_pb2.ServerReflectionRequest.SerializeToString,
                reflection_pb2.ServerReflectionResponse.FromString,
            ),
        )
    await server.stop(None)


async def opened(method: Any) -> Any:
    call = method()
    await call.write(LIST)
    assert (await call.read()).HasField("list_services_response")
    return call


async def test_streams_are_bounded_and_end_when_the_server_drains(
    described: tuple[Reflection, Any],
) -> None:
    service, method = described
    for _ in range(MAX_STREAMS + 1):  # those that ended leave room
        call = await opened(method)
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK
    calls = [await opened(method) for _ in range(MAX_STREAMS)]
    assert await method().code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    service.start_draining()
    for call in calls:
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK
    assert await method().code() is grpc.StatusCode.UNAVAILABLE
