"""A receiver of traces over OTLP, by gRPC or HTTP, which keeps all requests."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace_pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as trace_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass
class Received:
    """Received requests.

    Attributes:
        address: address of the receiver, for `OTEL_EXPORTER_OTLP_ENDPOINT`.
        protocol: protocol, for `OTEL_EXPORTER_OTLP_PROTOCOL`.
        requests: requests in order.
    """

    address: str
    protocol: str
    requests: list[Any] = field(default_factory=list)
    _arrived: threading.Condition = field(default_factory=threading.Condition)

    def add(self, request: Any) -> None:
        with self._arrived:
            self.requests.append(request)
            self._arrived.notify_all()

    def variables(self, **others: str) -> dict[str, str]:
        """Environment variables of a server that exports to the receiver without delay."""
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.address,
            "OTEL_EXPORTER_OTLP_PROTOCOL": self.protocol,
            "OTEL_BSP_SCHEDULE_DELAY": "20",
            **others,
        }

    def wait(self, name: str, count: int = 1) -> list[Span]:
        """Wait at most a minute for spans of this name; returns all of them so far."""
        with self._arrived:
            self._arrived.wait_for(lambda: len(self.named(name)) >= count, timeout=60)
        return self.named(name)

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans() if span.name == name]

    def spans(self) -> list[Span]:
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def resource(self) -> dict[str, object]:
        return attributes(self.requests[0].resource_spans[0].resource)


def attributes(holder: Any) -> dict[str, object]:
    """The attributes of a span or a resource, as Python values."""
    return {
        each.key: getattr(each.value, each.value.WhichOneof("value")) for each in holder.attributes
    }


class _Servicer(trace_grpc.TraceServiceServicer):
    def __init__(self, received: list[Received]) -> None:
        self._received = received

    def Export(self, request: Any, context: Any) -> Any:
        self._received[0].add(request)
        return trace_pb.ExportTraceServiceResponse()


@contextlib.contextmanager
def grpc_receiver() -> Iterator[Received]:
    server = grpc.server(ThreadPoolExecutor(2))
    held: list[Received] = []
    trace_grpc.add_TraceServiceServicer_to_server(_Servicer(held), server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    held.append(Received(f"http://127.0.0.1:{port}", "grpc"))
    server.start()
    try:
        yield held[0]
    finally:
        server.stop(None).wait()


@contextlib.contextmanager
def http_receiver() -> Iterator[Received]:
    held: list[Received] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            body = self.rfile.read(int(self.headers["content-length"]))
            held[0].add(trace_pb.ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        held.append(Received(f"http://127.0.0.1:{server.server_port}", "http/protobuf"))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield held[0]
        finally:
            server.shutdown()
