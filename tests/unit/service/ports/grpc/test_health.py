from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, TypeAlias

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dragoman.channel import channel_options
from service.ports.grpc.health import HealthService

NAME = "some.Service"
MAX_WATCHES = 16
Status = health_pb2.HealthCheckResponse
Health: TypeAlias = "tuple[HealthService, Any]"  # the stub is typed for no methods


@pytest.fixture
async def running() -> AsyncIterator[tuple[HealthService, str]]:
    service = HealthService((NAME,), MAX_WATCHES)
    server = grpc.aio.server()
    health_pb2_grpc.add_HealthServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield service, f"127.0.0.1:{port}"
    await server.stop(None)


@pytest.fixture
async def health(running: tuple[HealthService, str]) -> AsyncIterator[Health]:
    service, address = running
    async with grpc.aio.insecure_channel(address) as channel:
        yield service, health_pb2_grpc.HealthStub(channel)


@pytest.mark.parametrize("name", ["", NAME])
async def test_the_server_and_its_service_share_a_status(health: Health, name: str) -> None:
    service, stub = health
    request = health_pb2.HealthCheckRequest(service=name)
    assert (await stub.Check(request)).status == Status.NOT_SERVING
    service.start_serving()
    assert (await stub.Check(request)).status == Status.SERVING
    service.start_draining()
    assert (await stub.Check(request)).status == Status.NOT_SERVING


async def test_an_unknown_service_is_not_found_and_watched_as_unknown(health: Health) -> None:
    _, stub = health
    request = health_pb2.HealthCheckRequest(service="other")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Check(request)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    with pytest.raises(grpc.aio.AioRpcError) as caught:  # a message that would fit no header
        await stub.Check(health_pb2.HealthCheckRequest(service="x" * 30_000))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    watch = stub.Watch(request)
    assert (await watch.read()).status == Status.SERVICE_UNKNOWN
    watch.cancel()


async def test_many_watchers_see_every_change_and_are_let_go_on_drain(health: Health) -> None:
    service, stub = health
    watches = [stub.Watch(health_pb2.HealthCheckRequest()) for _ in range(5)]
    for watch in watches:
        assert (await watch.read()).status == Status.NOT_SERVING
    service.start_serving()
    for watch in watches:
        assert (await watch.read()).status == Status.SERVING
    service.start_draining()
    for watch in watches:
        assert (await watch.read()).status == Status.NOT_SERVING
        assert await watch.read() is grpc.aio.EOF
        assert await watch.code() is grpc.StatusCode.OK


async def test_a_watch_that_begins_while_draining_ends_at_once(health: Health) -> None:
    service, stub = health
    service.start_draining()
    async with asyncio.timeout(60):
        seen = [response.status async for response in stub.Watch(health_pb2.HealthCheckRequest())]
    assert seen == [Status.NOT_SERVING]


async def test_a_stalled_model_is_not_ready_and_watchers_see_it(health: Health) -> None:
    service, stub = health
    service.set_stalled(True)  # before it serves, and as it drains, it changes nothing
    assert not service.is_serving
    service.set_stalled(False)
    assert not service.is_serving
    service.start_serving()
    watch = stub.Watch(health_pb2.HealthCheckRequest())
    for expected in (Status.SERVING, Status.NOT_SERVING, Status.SERVING):
        assert (await watch.read()).status == expected
        assert service.is_serving == (expected == Status.SERVING)
        service.set_stalled(expected == Status.SERVING)
    service.start_draining()
    service.set_stalled(False)
    assert not service.is_serving
    watch.cancel()


async def test_watches_beyond_the_bound_leave_clients_without_health_checking(
    running: tuple[HealthService, str], health: Health
) -> None:
    address, (service, stub) = running[1], health
    service.start_serving()
    request = health_pb2.HealthCheckRequest()
    watches = [stub.Watch(request) for _ in range(MAX_WATCHES * 7 // 8)]
    for watch in watches:
        assert (await watch.read()).status == Status.SERVING
    refused = stub.Watch(request)
    assert await refused.code() is grpc.StatusCode.UNIMPLEMENTED
    # The rest is for other hosts.
    assert service.watches.is_open_to(MAX_WATCHES // 8, "ipv4:192.0.2.1")
    # A client with health checking goes on without.
    async with grpc.aio.insecure_channel(address, options=channel_options()) as channel:
        other: Any = health_pb2_grpc.HealthStub(channel)
        assert (await other.Check(request)).status == Status.SERVING
    # Watches that ended, by their client or by the drain, free their places.
    watches[0].cancel()
    while service.watches.num_taken == len(watches):
        await asyncio.sleep(0)
    watches[0] = stub.Watch(request)
    assert (await watches[0].read()).status == Status.SERVING
    service.start_draining()
    for watch in watches:
        assert (await watch.read()).status == Status.NOT_SERVING
        assert await watch.read() is grpc.aio.EOF
    await service.watches.empty.wait()
