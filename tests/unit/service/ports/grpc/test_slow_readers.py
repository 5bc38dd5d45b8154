"""gRPC clients that do not read the answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from dragoman.v1 import translation_pb2 as pb
from dragoman.v1 import translation_pb2_grpc
from service.calls.call_tracker import CallTracker
from service.calls.request_parsing import RequestParser
from service.engine.quota import Quota
from service.fronts.grpc.interceptor import Interceptor
from service.observability.metrics import ServerMetrics
from service.ports.grpc.accepting_server import AcceptingServer
from service.ports.grpc.front_processes.group import FrontProcesses, FrontSettings
from service.ports.grpc.server import bind_grpc
from service.settings import Settings

SERVICE = "dragoman.v1.TranslationService"
LARGE = "a" * 300_000
# A client with a fixed window of 64 KiB.
SMALL_WINDOW = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65_535)]


class LargeAnswers(translation_pb2_grpc.TranslationServiceServicer):
    """Answers with more than a client's window takes."""

    def __init__(self) -> None:
        self.has_ended = asyncio.Event()

    async def Translate(self, request: Any, context: Any) -> Any:
        return pb.TranslateResponse(translations=[pb.Translation(translated_text=LARGE)])

    async def StreamTranslate(self, request: Any, context: Any) -> Any:
        try:
            while True:
                yield pb.StreamTranslateResponse(delta=pb.TextDelta(text=LARGE))
        finally:
            self.has_ended.set()


def grpc_server(interceptor: Interceptor, num_fronts: int) -> Any:
    """A server in this process, or in front processes."""
    if not num_fronts:
        return AcceptingServer(interceptor.wrapped)
    fronts = FrontSettings(num_fronts, [], 8, [], 1, interceptor.write_seconds, "info", "json")
    return FrontProcesses(fronts, interceptor.wrapped)


@contextlib.asynccontextmanager
async def serving(
    write_seconds: float, num_fronts: int
) -> AsyncIterator[tuple[CallTracker, LargeAnswers, Any]]:
    service: Any = LargeAnswers()  # type: ignore[abstract]
    tracker = CallTracker(ServerMetrics(), RequestParser(SERVICE, {}), 8)
    server = grpc_server(Interceptor(tracker, write_seconds), num_fronts)
    port = bind_grpc(server, Settings(port=0), None)
    translation_pb2_grpc.add_TranslationServiceServicer_to_server(service, server)
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", SMALL_WINDOW) as channel:
            # A call of `Translate` too is read by hand: gRPC reads single answers by itself.
            yield tracker, service, channel
    finally:
        await server.stop(None)


@pytest.mark.parametrize("num_fronts", [0, 1])
async def test_a_stream_that_is_not_read_ends_and_holds_nothing(num_fronts: int) -> None:
    async with serving(0.2, num_fronts) as (tracker, service, channel):
        call = channel.unary_stream(f"/{SERVICE}/StreamTranslate")(b"")
        await service.has_ended.wait()
        while tracker.calls.num_taken:  # the interceptor ends in later iterations of the loop
            await asyncio.sleep(0)
        labels = {"method": "StreamTranslate", "code": "CANCELLED"}
        assert tracker.metrics.registry.get_sample_value("dragoman_requests_total", labels) == 1
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in call:
                pass
        assert caught.value.code() is grpc.StatusCode.CANCELLED
        assert caught.value.details() == "the client reads its answer too slowly"


@pytest.mark.parametrize("num_fronts", [0, 1])
async def test_answers_that_are_not_read_keep_their_client_from_further_ones(
    num_fronts: int,
) -> None:
    async with serving(30.0, num_fronts) as (tracker, _, channel):
        tracker.answers = Quota(4 * len(LARGE))

        async def ask() -> Any:
            call = channel.unary_stream(f"/{SERVICE}/Translate")(b"")
            await call.initial_metadata()
            return call

        calls = [await ask() for _ in range(3)]
        assert tracker.answers.num_taken > 3 * len(LARGE)
        refused = channel.unary_stream(f"/{SERVICE}/Translate")(b"")
        with pytest.raises(grpc.aio.AioRpcError, match="has not read enough of its own"):
            await refused.read()
        assert await refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        for call in calls:
            answer = pb.TranslateResponse.FromString(await call.read())
            assert answer.translations[0].translated_text == LARGE
            assert await call.read() is grpc.aio.EOF
        while tracker.answers.num_taken:
            await asyncio.sleep(0)
        assert await (await ask()).read()
