"""Traces of calls that a receiver of OTLP gets."""

from __future__ import annotations

import asyncio
import socket
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState, use_span
from prometheus_client.openmetrics.parser import text_string_to_metric_families

import dragoman
from dragoman import AsyncClient, Search, TranslationError
from dragoman.trace_context import trace_context
from dragoman.v1 import translation_pb2 as pb
from model.bundle.tokenizer import Tokenizer
from service.errors import StartupError
from service.observability.sequence_times import MAX_SEQUENCES
from service.observability.tracing import create_tracing
from tests.integration.http_client import post
from tests.integration.servers import (
    command_environment,
    fake_runner,
    python_process,
    running_fake,
    server_process,
)
from tests.otlp_receiver import Received, attributes, grpc_receiver, http_receiver

CALL = "dragoman.v1.TranslationService/Translate"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-00"
SECRET = "Xylophon"  # a text, which no span may hold


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Received]:
    """A gRPC receiver that this process exports to."""
    with grpc_receiver() as made:
        set_variables(monkeypatch, made)
        yield made


def set_variables(patch: pytest.MonkeyPatch, received: Received, **others: str) -> None:
    for name, value in received.variables(**others).items():
        patch.setenv(name, value)


def children(received: Received, call: Span) -> dict[str, list[Span]]:
    found: dict[str, list[Span]] = {}
    for span in received.spans():
        if span.parent_span_id == call.span_id:
            found.setdefault(span.name, []).append(span)
    return found


async def test_a_call_is_a_span_with_the_parts_of_its_sentences_below(
    receiver: Received, tokenizer: Tokenizer
) -> None:
    async with running_fake(fake_runner(tokenizer), tokenizer, tracing=True) as running:
        await running.client.translate(
            [f"A {SECRET} .", "A cat ."], source="en", target="de", search=Search(beam_size=2)
        )
    (call,) = receiver.named(CALL)
    shown = attributes(call)
    assert call.kind == Span.SPAN_KIND_SERVER
    assert not call.parent_span_id
    assert shown["rpc.method"] == "Translate"
    assert shown["dragoman.model"] == "fake"
    assert (shown["dragoman.source_language"], shown["dragoman.target_language"]) == ("en", "de")
    assert shown["dragoman.texts"] == shown["dragoman.sentences"] == 2
    assert shown["dragoman.code"] == "OK"
    below = children(receiver, call)
    assert {name: len(spans) for name, spans in below.items()} == {
        "admission": 1,
        "queue": 2,
        "encode": 2,
        "decode": 2,
    }
    for decode in below["decode"]:
        told = attributes(decode)
        assert told["dragoman.rows"] == 2
        assert isinstance(told["dragoman.steps"], int)
        assert told["dragoman.steps"] > 1
        assert told["dragoman.finish_reason"] == "eos"
    for span in receiver.spans():
        assert span.trace_id == call.trace_id
        assert span.start_time_unix_nano <= span.end_time_unix_nano
        assert call.start_time_unix_nano <= span.start_time_unix_nano
        assert span.end_time_unix_nano <= call.end_time_unix_nano
    assert SECRET.encode() not in b"".join(r.SerializeToString() for r in receiver.requests)


async def test_a_call_continues_the_trace_of_its_client(
    receiver: Received, tokenizer: Tokenizer
) -> None:
    async with running_fake(
        fake_runner(tokenizer), tokenizer, tracing=True, http_port=0
    ) as running:
        body = {"contents": ["A cat ."]}
        for header in (SAMPLED, UNSAMPLED, SAMPLED[:-1], "00-" + "x" * 5000):
            answer = await post(running, "/v1/translate", body, traceparent=header)
            assert answer.status == 200
        await running.client._stub.Translate(
            pb.TranslateRequest(contents=["A cat ."]), metadata=(("traceparent", SAMPLED),)
        )
    calls = receiver.named(CALL)
    assert [call.parent_span_id.hex() for call in calls] == [PARENT, "", "", PARENT]
    assert [call.trace_id.hex() == TRACE for call in calls] == [True, False, False, True]


async def test_the_client_sends_the_span_that_is_current(
    receiver: Received, tokenizer: Tokenizer
) -> None:
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("application")
    async with running_fake(fake_runner(tokenizer), tokenizer, tracing=True) as running:
        with tracer.start_as_current_span("work") as span:
            own = span.get_span_context()
            await running.client.translate(["A cat ."], source="en", target="de")
        await running.client.translate(["A cat ."], source="en", target="de")
    inside, outside = receiver.named(CALL)
    assert inside.parent_span_id.hex() == f"{own.span_id:016x}"
    assert inside.trace_id.hex() == f"{own.trace_id:032x}"
    assert not outside.parent_span_id


def test_the_client_sends_a_state_too_and_nothing_without_a_span() -> None:
    state = TraceState([("vendor", "1")])
    flags = TraceFlags(TraceFlags.SAMPLED)
    span = SpanContext(int(TRACE, 16), int(PARENT, 16), False, flags, state)
    with use_span(NonRecordingSpan(span)):
        assert trace_context() == (("traceparent", SAMPLED), ("tracestate", "vendor=1"))
    assert trace_context() == ()


async def test_spans_come_by_http_too(
    monkeypatch: pytest.MonkeyPatch, tokenizer: Tokenizer
) -> None:
    with http_receiver() as received:
        set_variables(monkeypatch, received, OTEL_SERVICE_NAME="mine")
        async with running_fake(fake_runner(tokenizer), tokenizer, tracing=True) as running:
            await running.client.translate(["A cat ."], source="en", target="de")
        assert len(received.named(CALL)) == 1
        assert received.resource()["service.name"] == "mine"
        assert received.resource()["service.version"] == dragoman.__version__


async def test_of_a_call_with_many_sentences_the_first_have_spans(
    receiver: Received, tokenizer: Tokenizer
) -> None:
    count = 3 * MAX_SEQUENCES
    async with running_fake(fake_runner(tokenizer), tokenizer, tracing=True) as running:
        await running.client.translate(["A cat ."] * count, source="en", target="de")
    (call,) = receiver.named(CALL)
    assert attributes(call)["dragoman.sentences"] == count
    assert len(receiver.named("decode")) == MAX_SEQUENCES


async def test_a_failed_call_has_its_code_and_no_text(
    receiver: Received, tokenizer: Tokenizer
) -> None:
    async with running_fake(fake_runner(tokenizer), tokenizer, tracing=True) as running:
        with pytest.raises(TranslationError):
            await running.client.translate([SECRET], source=SECRET, target="de")
    (call,) = receiver.named(CALL)
    assert attributes(call)["dragoman.code"] == "NOT_FOUND"
    assert call.status.code != call.status.STATUS_CODE_ERROR  # the client's fault
    assert not children(receiver, call)
    assert SECRET.encode() not in receiver.requests[0].SerializeToString()


async def test_the_sampler_is_that_of_the_standard_variables(
    receiver: Received, monkeypatch: pytest.MonkeyPatch, tokenizer: Tokenizer
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
    async with running_fake(
        fake_runner(tokenizer), tokenizer, tracing=True, http_port=0
    ) as running:
        body = {"contents": ["A cat ."]}
        await post(running, "/v1/translate", body)
        await post(running, "/v1/translate", body, traceparent=SAMPLED)
    assert [call.trace_id.hex() for call in receiver.named(CALL)] == [TRACE]


async def test_histograms_name_a_trace_where_open_metrics_is_asked_for(
    receiver: Received, tokenizer: Tokenizer
) -> None:
    async with running_fake(fake_runner(tokenizer), tokenizer, tracing=True) as running:
        await running.client.translate(["A cat ."], source="en", target="de")
        url = f"http://127.0.0.1:{running.server.metrics_port}/metrics"
        plain = await asyncio.to_thread(get, url, "text/plain")
        asked = await asyncio.to_thread(get, url, "application/openmetrics-text; version=1.0.0")
    assert "trace_id" not in plain
    found = [
        (family.name.removeprefix("dragoman_").removesuffix("_seconds"), sample.exemplar.labels)
        for family in text_string_to_metric_families(asked)  # type: ignore[no-untyped-call]
        for sample in family.samples
        if sample.exemplar
    ]
    (call,) = receiver.named(CALL)
    ids = {"trace_id": call.trace_id.hex(), "span_id": call.span_id.hex()}
    names = ("compute_duration", "queue_duration", "request_duration", "time_to_first_token")
    assert sorted(found, key=str) == [(name, ids) for name in names]


def get(url: str, accept: str) -> str:
    request = urllib.request.Request(url, headers={"accept": accept})
    with urllib.request.urlopen(request) as response:
        text: str = response.read().decode()
        return text


async def test_a_collector_that_is_gone_delays_neither_calls_nor_the_end(
    monkeypatch: pytest.MonkeyPatch, tokenizer: Tokenizer
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and never answers
        monkeypatch.setenv(
            "OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}"
        )
        monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4")
        monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4")
        async with asyncio.timeout(60):
            async with running_fake(fake_runner(tokenizer), tokenizer, tracing=True) as running:
                batch = await running.client.translate(["A cat ."] * 40, source="en", target="de")
    assert len(batch.translations) == 40


async def test_a_real_server_exports_and_its_log_lines_name_the_trace(bundle_path: Path) -> None:
    with grpc_receiver() as received:
        async with server_process(
            "--model", bundle_path, "--tracing", variables=received.variables()
        ) as server:
            async with AsyncClient(server.address, timeout=60) as client:
                await client.translate([f"A {SECRET} ."], source="en", target="de")
            (call,) = await asyncio.to_thread(received.wait, CALL)
            server.terminate()
            assert await server.end() == 0
        below = children(received, call)
        assert {"admission", "queue", "encode", "decode"} == set(below)
        (line,) = [entry for entry in server.log if entry["message"] == "call"]
        assert (line["trace_id"], line["span_id"]) == (call.trace_id.hex(), call.span_id.hex())
        assert SECRET.encode() not in b"".join(r.SerializeToString() for r in received.requests)


async def test_calls_before_the_end_are_exported_at_the_end(bundle_path: Path) -> None:
    with grpc_receiver() as received:
        slow = received.variables(OTEL_BSP_SCHEDULE_DELAY="3600000")
        async with server_process("--model", bundle_path, "--tracing", variables=slow) as server:
            async with AsyncClient(server.address, timeout=60) as client:
                await client.translate(["A cat ."], source="en", target="de")
            assert not received.requests
            server.terminate()
            assert await server.end() == 0
        assert len(received.named(CALL)) == 1


WITHOUT = """
import sys
for name in list(sys.modules):
    assert not name.startswith("opentelemetry")
sys.modules["opentelemetry"] = None  # importing it raises ImportError
from cli.main import app
app()
"""


async def test_a_server_needs_no_open_telemetry_until_it_is_asked_for(bundle_path: Path) -> None:
    options = ("--model", bundle_path, "--port", "0", "--metrics-port", "0", "--threads", "1")
    async with (
        python_process("-c", WITHOUT, "serve", *options) as server,
        AsyncClient(server.address, timeout=60) as client,
    ):
        await client.translate(["A cat ."], source="en", target="de")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", WITHOUT, "serve", *map(str, options), "--tracing"),
        env=command_environment(),
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await process.communicate()
    assert process.returncode == 1
    assert "dragoman[otel]" in errors.decode()


def test_an_unknown_protocol_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
    with pytest.raises(StartupError, match="OTEL_EXPORTER_OTLP_PROTOCOL"):
        create_tracing("1", "service")
