"""Envoy itself, on free ports, before scripted replicas."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from dragoman.v1 import translation_pb2 as pb
from service.fronts.dragoman.servicer import SERVICE
from tests.containers.tools import tool
from tests.robustness.envoy import Envoy, running_envoy

OK = grpc.StatusCode.OK
SERVING = health_pb2.HealthCheckResponse.SERVING


@dataclass
class Script:
    """Outcomes of the next calls on any replica, and a record of the calls that arrived.

    Attributes:
        codes: status codes of the next calls; OK after these.
        go_on: calls are answered only while it is set.
    """

    go_on: threading.Event = field(default_factory=threading.Event)
    codes: deque[grpc.StatusCode] = field(default_factory=deque)
    replicas: list[str] = field(default_factory=list)
    metadata: list[dict[str, str | bytes]] = field(default_factory=list)
    seconds_left: list[float | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.go_on.set()

    def arrived(self, replica: str, context: grpc.ServicerContext) -> grpc.StatusCode:
        self.replicas.append(replica)
        self.metadata.append(dict(context.invocation_metadata()))
        self.seconds_left.append(context.time_remaining())
        self.go_on.wait()
        return self.codes.popleft() if self.codes else OK


def methods(name: str, script: Script) -> grpc.GenericRpcHandler:
    """A service that follows the script; a failing stream fails after its first piece."""

    def translate(request: Any, context: grpc.ServicerContext) -> pb.TranslateResponse:
        code = script.arrived(name, context)
        if code is not OK:
            context.abort(code, "as the script says")
        return pb.TranslateResponse(model=name)

    def stream(
        request: pb.StreamTranslateRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.StreamTranslateResponse]:
        code = script.arrived(name, context)
        if request.content != "fail at once" or code is OK:
            yield pb.StreamTranslateResponse(delta=pb.TextDelta(text=name))
        if code is not OK:
            context.abort(code, "as the script says")

    return grpc.method_handlers_generic_handler(
        SERVICE,
        {
            "Translate": grpc.unary_unary_rpc_method_handler(
                translate,
                pb.TranslateRequest.FromString,
                pb.TranslateResponse.SerializeToString,
            ),
            "StreamTranslate": grpc.unary_stream_rpc_method_handler(
                stream,
                pb.StreamTranslateRequest.FromString,
                pb.StreamTranslateResponse.SerializeToString,
            ),
        },
    )


@dataclass(frozen=True)
class Backend:
    """A replica: where it listens, and its server."""

    port: int
    server: grpc.Server
    health: health.HealthServicer


@contextlib.contextmanager
def backend(name: str, script: Script) -> Iterator[Backend]:
    """Run a replica on a free port."""
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers([methods(name, script)])
    servicer = health.HealthServicer()
    servicer.set(SERVICE, SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield Backend(port, server, servicer)
    finally:
        server.stop(None).wait()


@contextlib.contextmanager
def envoy(directory: Path, ports: list[int], **options: Any) -> Iterator[Envoy]:
    """Run Envoy with the options of `running_envoy`, and print its log at the end."""
    with running_envoy(tool("envoy"), directory, ports, **options) as made:
        try:
            yield made
        finally:
            print(made.log.read_text())
