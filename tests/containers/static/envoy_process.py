"""Envoy itself, on free ports, before scripted replicas."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import threading
import urllib.request
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from email.message import Message
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from dragoman.v1 import translation_pb2 as pb
from service.fronts.dragoman.servicer import SERVICE
from tests.containers.tools import tool
from tests.containers.waiting import eventually
from tests.robustness.envoy import local_configuration, running_command

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


def encoded(body: Any) -> bytes:
    """As JSON, without escapes that it can do without."""
    return json.dumps(body, ensure_ascii=False).encode()


@dataclass(frozen=True)
class Envoy:
    """Envoy, and where it says how it does."""

    address: str
    ask: Callable[[str], Any]
    log: Path

    def figure(self, name: str, cluster: str = "dragoman") -> int:
        """One of the figures of a cluster."""
        (found,) = self.ask(f"/stats?format=json&filter=^cluster.{cluster}.{name}$")["stats"]
        return int(found["value"])

    def calls(self) -> list[dict[str, Any]]:
        """Logged calls so far."""
        return [json.loads(line) for line in self.log.read_text().splitlines() if line[:1] == "{"]

    def post(
        self, path: str, body: Any = None, method: str = "POST", **headers: str
    ) -> tuple[int, Message, Any]:
        """Status, headers and JSON of the answer to a request.

        Args:
            path: and query.
            body: bytes as they are, or what is sent as JSON.
            method: of HTTP.
            headers: names with "_" instead of "-".
        """
        host, port = self.address.split(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=30)
        sent = body if body is None or isinstance(body, bytes) else encoded(body)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        with contextlib.closing(connection):
            connection.request(method, path, sent, {"content-type": "application/json", **named})
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, answer.headers, json.loads(text) if text else None


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
def envoy(
    directory: Path,
    ports: list[int],
    check_interval: str | None = None,
    longest: str | None = None,
    http_ports: Sequence[int] = (),
) -> Iterator[Envoy]:
    """Run Envoy before replicas on `ports`, until it knows that all are healthy.

    Args:
        directory: directory for Envoy's files.
        ports: gRPC ports of the replicas.
        check_interval: time between health checks, such as "1s", instead of the configured one.
        longest: how long a call without a deadline may take, instead of what is configured.
        http_ports: HTTP ports of the replicas.
    """
    configuration, admin = directory / "envoy.yaml", directory / "admin"
    configuration.write_text(local_configuration(ports, check_interval, longest, http_ports))

    def ask(path: str) -> Any:
        with urllib.request.urlopen(f"http://{admin.read_text()}{path}", timeout=10) as response:
            return json.load(response)

    command = running_command(tool("envoy"), configuration, admin)
    with (
        (directory / "log").open("w") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as process,
    ):
        try:
            eventually(lambda: admin.exists() and admin.read_text(), "Envoy runs")
            (listener,) = [
                item
                for item in ask("/listeners?format=json")["listener_statuses"]
                if item["name"] == "translation"
            ]
            place = listener["local_address"]["socket_address"]
            made = Envoy(f"{place['address']}:{place['port_value']}", ask, directory / "log")
            for cluster, on in (("dragoman", ports), ("dragoman_http", http_ports)):
                eventually(
                    lambda: made.figure("membership_healthy", cluster) == len(on),  # noqa: B023
                    "all are healthy",
                )
            yield made
        finally:
            process.terminate()
            print((directory / "log").read_text())
