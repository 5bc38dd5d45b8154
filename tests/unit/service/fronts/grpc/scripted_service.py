"""A server with a scripted service behind the interceptor."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc

from dragoman.client import AsyncClient
from dragoman.v1 import translation_pb2 as pb
from dragoman.v1 import translation_pb2_grpc
from service.access.authentication import AccessControl
from service.calls.call_tracker import CallTracker
from service.calls.request_parsing import RequestParser
from service.fronts.grpc.interceptor import Interceptor
from service.observability.metrics import ServerMetrics
from service.ports.grpc.accepting_server import AcceptingServer
from tests.only_translations import OnlyTranslations

SERVICE = "dragoman.v1.TranslationService"
Behaviour = Callable[[], Awaitable[None]]


class ScriptedService(OnlyTranslations, translation_pb2_grpc.TranslationServiceServicer):
    """Calls `behaviour`, then answers with an empty message."""

    def __init__(self) -> None:
        self.behaviour: Behaviour = self.nothing
        self.contexts: list[Any] = []

    async def nothing(self) -> None:
        pass

    async def Translate(self, request: Any, context: Any) -> Any:
        self.contexts.append(context)
        texts = list(request.contents)  # as a real service has them
        await self.behaviour()
        del texts
        return pb.TranslateResponse()

    async def StreamTranslate(self, request: Any, context: Any) -> Any:
        content = request.content
        yield pb.StreamTranslateResponse(delta=pb.TextDelta(text="first"))
        await self.behaviour()
        del content
        yield pb.StreamTranslateResponse(summary=pb.StreamSummary())

    async def ListModels(self, request: Any, context: Any) -> Any:
        return pb.ListModelsResponse()


class Setup:
    """A server with the interceptor, and a client."""

    def __init__(self, server: grpc.aio.Server, port: int, metrics: ServerMetrics) -> None:
        self.server = server
        self.service = ScriptedService()
        self.metrics = metrics
        self.address = f"127.0.0.1:{port}"
        self.client = AsyncClient(self.address, timeout=60, patient=False)

    def count(self, code: str, method: str = "Translate") -> float:
        labels = {"method": method, "code": code}
        return self.metrics.registry.get_sample_value("dragoman_requests_total", labels) or 0

    def in_flight(self, method: str = "Translate") -> float | None:
        name = "dragoman_requests_in_flight"
        return self.metrics.registry.get_sample_value(name, {"method": method})

    async def until_idle(self, method: str = "Translate") -> None:
        """Wait until every call has been counted.

        An error is on its way to the client before the interceptor has finished.
        """
        while self.in_flight(method):
            await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def serving(
    max_calls: int, max_message_bytes: int = 10**6, access: AccessControl | None = None
) -> AsyncIterator[Setup]:
    metrics, parser = ServerMetrics(), RequestParser(SERVICE, {})
    tracker = CallTracker(metrics, parser, max_calls, max_message_bytes, access)
    server = AcceptingServer(Interceptor(tracker).wrapped)
    made = Setup(server, server.add_insecure_port("127.0.0.1:0"), metrics)
    translation_pb2_grpc.add_TranslationServiceServicer_to_server(made.service, server)
    await server.start()
    try:
        yield made
    finally:
        await made.client.close()
        await server.stop(None)


class Held:
    """A behaviour that notes a call, and waits until all calls are released."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.arrived = asyncio.Semaphore(0)

    async def __call__(self) -> None:
        self.arrived.release()
        await self.release.wait()


def raising(error: Exception) -> Behaviour:
    async def behaviour() -> None:
        raise error

    return behaviour
