"""Connections end from time to time, so that clients find new servers; no call is affected."""

import asyncio
import contextlib
from collections import Counter
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dragoman.v1 import translation_pb2 as pb
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from model.bundle.tokenizer import Tokenizer
from tests.integration.servers import fake_runner, running_fake

TEXT = "A dog is running. " * 20


async def test_a_client_connects_anew_and_loses_no_call(tokenizer: Tokenizer) -> None:
    async with (
        running_fake(fake_runner(tokenizer), tokenizer, max_connection_seconds=1.0) as running,
        # No retry policy: nothing that has reached the server is sent twice. What had not been sent
        # yet when the connection was given up, gRPC itself sends on the next one.
        grpc.aio.insecure_channel(running.address) as channel,
    ):
        stub = TranslationServiceStub(channel)
        done = asyncio.Event()

        async def unary() -> int:
            calls = 0
            while not done.is_set():
                await stub.Translate(pb.TranslateRequest(contents=["A dog."]))
                calls += 1
            return calls

        async def stream() -> int:
            calls = 0
            while not done.is_set():
                request = pb.StreamTranslateRequest(content=TEXT)
                responses = [response async for response in stub.StreamTranslate(request)]
                assert responses[-1].HasField("summary")
                calls += 1
            return calls

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work()) for work in (unary, unary, stream, stream)]
            await channel.channel_ready()
            for _ in range(2):
                # The server asks for a new connection, and the next call opens it.
                await channel.wait_for_state_change(grpc.ChannelConnectivity.READY)
                await channel.channel_ready()
            done.set()
        assert all(task.result() > 0 for task in tasks)


@pytest.mark.parametrize("has_call", [False, True])
@pytest.mark.parametrize("least_seconds", [0.001, 10.0])
async def test_keepalive_pings_at_the_interval_of_the_setting_end_no_connection(
    tokenizer: Tokenizer, least_seconds: float, has_call: bool
) -> None:
    options = [("grpc.keepalive_time_ms", 50), ("grpc.keepalive_permit_without_calls", 1)]
    options.append(("grpc.http2.max_pings_without_data", 0))
    async with (
        running_fake(fake_runner(tokenizer), tokenizer, min_ping_seconds=least_seconds) as running,
        grpc.aio.insecure_channel(running.address, options=options) as channel,
    ):
        await channel.channel_ready()
        stub: Any = health_pb2_grpc.HealthStub(channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest())
        await watch.read()
        if has_call:
            ended = asyncio.ensure_future(watch.read())
        else:
            watch.cancel()
            ready = grpc.ChannelConnectivity.READY
            ended = asyncio.ensure_future(channel.wait_for_state_change(ready))
        # Either the connection ends, or some pings are sent.
        done, _ = await asyncio.wait({ended}, timeout=60.0 if least_seconds > 1.0 else 1.0)
        assert bool(done) == (least_seconds > 1.0)
        if done and has_call:
            with pytest.raises(grpc.aio.AioRpcError, match="Too many pings"):
                ended.result()
        ended.cancel()


async def test_thousands_of_calls_at_once_are_answered_or_refused_but_never_cancelled(
    tokenizer: Tokenizer,
) -> None:
    async with (
        running_fake(fake_runner(tokenizer), tokenizer, max_connection_calls=100) as running,
        contextlib.AsyncExitStack() as channels,
    ):
        stubs = []
        for number in range(30):
            # The number keeps gRPC from sharing one connection among the channels.
            options = [("dragoman.connection", number)]
            channel = grpc.aio.insecure_channel(running.address, options=options)
            stubs.append(TranslationServiceStub(await channels.enter_async_context(channel)))
            await channel.channel_ready()

        async def code(number: int) -> grpc.StatusCode:
            # Of one method gRPC lets 1,000 calls wait for the event loop, unless told otherwise.
            call = stubs[number % len(stubs)].GetModel(pb.GetModelRequest(name="fake"))
            return await call.code()

        codes = Counter(await asyncio.gather(*(code(number) for number in range(4_000))))
    assert codes == {grpc.StatusCode.OK: 4_000}
