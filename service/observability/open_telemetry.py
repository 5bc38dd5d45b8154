"""Tracing with OpenTelemetry: spans of calls, exported by OTLP.

The standard variables configure it (`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_TRACES_SAMPLER` ...). A
thread of the SDK sends spans from a bounded queue, which drops the oldest. So neither a slow
collector nor a missing one delays a call.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
import time
from collections.abc import Iterable, Mapping

from opentelemetry.context import Context
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from service.errors import StartupError
from service.observability.sequence_times import MAX_SEQUENCES, SequenceTimes

# Fields of the log line that spans show: no names of clients, addresses or ids.
_SHOWN = frozenset(
    {
        *("model", "source_language", "target_language", "pivot_model", "pivot_language"),
        *("texts", "pairs", "source_tokens", "target_tokens", "reason"),
    }
)
# Codes that are the server's fault, for which OpenTelemetry marks a span as failed:
# https://opentelemetry.io/docs/specs/semconv/rpc/grpc/
_FAILURES = frozenset(
    {"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"}
)
_PROTOCOLS = ("grpc", "http/protobuf")
_PROTOCOL_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_CONTEXT_HEADERS = ("traceparent", "tracestate")
# These loggers quote bad headers in warnings, but client data must not be logged.
_QUOTING_LOGGERS = ("opentelemetry.trace.span", "opentelemetry.trace.propagation.tracecontext")


class OpenTelemetryTracing:
    """Makes a span for each sampled call, with child spans of its sentences.

    Args:
        service: full name of the gRPC service, with which the name of each span begins.
        exporter: exporter of the spans; by default OTLP's, by the standard variables.

    Raises:
        StartupError: a variable has an unsupported value.
    """

    def __init__(self, version: str, service: str, exporter: SpanExporter | None = None) -> None:
        defaults = Resource({"service.name": "dragoman", "service.version": version})
        try:
            self._provider = TracerProvider(
                resource=Resource.create().merge(defaults).merge(OTELResourceDetector().detect()),
                shutdown_on_exit=False,  # `close` is bounded
            )
            self._provider.add_span_processor(BatchSpanProcessor(exporter or _exporter()))
        except ValueError as exc:
            raise StartupError(f"tracing: {exc}") from exc
        self._tracer = self._provider.get_tracer("dragoman", version)
        for name in _QUOTING_LOGGERS:
            logging.getLogger(name).setLevel(logging.ERROR)
        self._propagator = TraceContextTextMapPropagator()
        self._service = service

    def begin(self, method: str, metadata: Iterable[tuple[str, object]]) -> SpanTrace | None:
        """Begin the trace of a call; None if the call is not sampled."""
        # The last of several values counts: a client's instrumentation adds its own after ours.
        carrier = {
            key: value
            for key, value in metadata
            if key in _CONTEXT_HEADERS and isinstance(value, str)
        }
        parent = self._propagator.extract(carrier, Context()) if carrier else Context()
        span = self._tracer.start_span(
            f"{self._service}/{method}",
            parent,
            SpanKind.SERVER,
            {"rpc.system": "grpc", "rpc.service": self._service, "rpc.method": method},
        )
        return SpanTrace(self._tracer, span) if span.is_recording() else None

    def close(self, seconds: float) -> None:
        """Export the remaining spans within `seconds`, and drop the rest. Blocks."""
        # The SDK's own bound is half a minute. A daemon thread, so that an export that hangs does
        # not keep the process from ending.
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        closing.join(seconds)


class SpanTrace:
    """The spans of one call.

    Attributes:
        ids: `trace_id` and `span_id` in hexadecimal.
    """

    def __init__(self, tracer: Tracer, span: Span) -> None:
        context = span.get_span_context()
        self.ids: Mapping[str, str] = {
            "trace_id": f"{context.trace_id:032x}",
            "span_id": f"{context.span_id:016x}",
        }
        self._tracer = tracer
        self._span = span
        self._children = set_span_in_context(span, Context())
        self._offset = time.time_ns() - time.monotonic_ns()
        self._begun_at = time.monotonic()
        self._is_admitted = False
        self._num_sequences = 0
        self._num_shown = 0

    def admitted(self) -> None:
        """Add a span of the time until admission: of splitting and tokenizing the first text."""
        if not self._is_admitted:
            self._is_admitted = True
            self._child("admission", self._begun_at, time.monotonic())

    def sequences_ended(self, times: Iterable[SequenceTimes], count: int) -> None:
        """Add spans of sentences, up to `MAX_SEQUENCES` in a call."""
        self._num_sequences += count
        for each in itertools.islice(times, MAX_SEQUENCES - self._num_shown):
            self._num_shown += 1
            self._show(each, {"dragoman.sentence": self._num_shown})

    def _show(self, times: SequenceTimes, number: Mapping[str, int]) -> None:
        tokens = {"dragoman.source_tokens": times.num_source_tokens}
        decode_from = times.started_at
        self._child("queue", times.submitted_at, times.started_at, number)
        if times.encoded_at is not None:
            begun = times.encoded_at - times.encode_seconds
            self._child("encode", begun, times.encoded_at, {**number, **tokens})
            decode_from = max(decode_from, times.encoded_at)
        self._child(
            "decode" if times.num_rows else "score",
            decode_from,
            times.ended_at,
            {
                **number,
                **tokens,
                "dragoman.rows": times.num_rows,
                "dragoman.steps": times.num_steps,
                "dragoman.finish_reason": times.finish_reason,
            },
        )

    def end(self, code: str, facts: Mapping[str, object]) -> None:
        """End the span of the call."""
        span = self._span
        for name, value in facts.items():
            if name in _SHOWN and isinstance(value, str | int | float):
                span.set_attribute(f"dragoman.{name}", value)
        span.set_attribute("dragoman.code", code)
        span.set_attribute("dragoman.sentences", self._num_sequences)
        if code in _FAILURES:
            span.set_status(Status(StatusCode.ERROR))
        span.end()

    def _child(
        self,
        name: str,
        begun: float,
        ended: float,
        attributes: Mapping[str, str | int] | None = None,
    ) -> None:
        child = self._tracer.start_span(
            name, self._children, attributes=attributes, start_time=self._nanoseconds(begun)
        )
        child.end(self._nanoseconds(max(begun, ended)))

    def _nanoseconds(self, moment: float) -> int:
        """Convert a time of `time.monotonic` to nanoseconds since 1970."""
        return round(moment * 1e9) + self._offset


def _exporter() -> SpanExporter:
    """The exporter by the standard variables. Raises ValueError."""
    values = (os.environ.get(name, "").strip() for name in _PROTOCOL_VARIABLES)
    protocol = next(filter(None, values), _PROTOCOLS[0])
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

        return OTLPSpanExporter()
    if protocol == "http/protobuf":
        from opentelemetry.exporter.otlp.proto.http import trace_exporter

        return trace_exporter.OTLPSpanExporter()
    raise ValueError(f"OTEL_EXPORTER_OTLP_PROTOCOL must be one of {', '.join(_PROTOCOLS)}")
