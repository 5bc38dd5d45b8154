"""The service from a client's point of view."""

import asyncio
import dataclasses
import shutil
import subprocess
import urllib.error
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from prometheus_client.parser import text_string_to_metric_families

from dragoman.client import Client, FinishReason, StreamEnd, TranslationError
from dragoman.v1 import translation_pb2 as pb
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from model.bundle.directions import Directions
from model.bundle.tokenizer import Tokenizer
from service.engine.engine import Engine
from service.engine.interface import EngineProgress
from service.models.registry import Registry
from service.observability.metrics import ServerMetrics
from tests.client_errors import error_of, refused
from tests.integration.servers import (
    Running,
    any_ports,
    fake_runner,
    page,
    running,
    running_bundle,
    running_fake,
    served,
)

TEXTS = [
    "A dog is running.",
    "",
    "Two men are playing the guitar in the street. A woman is reading.\n\n  The children swim.\n",
    " \t\n ",
    "🎉 ünïcödé 漢字 العربية",
    "A dog is running.",
]


@pytest.fixture
async def echoing(tokenizer: Tokenizer) -> AsyncIterator[Running]:
    """A server that returns texts unchanged."""
    async with running_fake(fake_runner(tokenizer), tokenizer) as made:
        yield made


@pytest.fixture
async def real(bundle_path: Path) -> AsyncIterator[Running]:
    """A server of the tiny random model."""
    async with running_bundle(bundle_path) as made:
        yield made


async def test_texts_are_answered_in_order_white_space_and_all(echoing: Running) -> None:
    batch = await echoing.client.translate(TEXTS)
    assert [item.text for item in batch.translations] == TEXTS
    assert [item.error for item in batch.translations] == [None] * len(TEXTS)
    assert batch.model == "fake"
    assert batch.queue_seconds >= 0
    assert batch.compute_seconds > 0


async def test_counts_and_reasons(echoing: Running, tokenizer: Tokenizer) -> None:
    batch = await echoing.client.translate(["A dog is running.", ""], max_new_tokens=3)
    cut, blank = batch.translations
    source = tokenizer.encode("A dog is running.")
    assert cut.finish_reason is FinishReason.LENGTH
    assert (cut.num_source_tokens, cut.num_target_tokens) == (len(source), 3)
    assert cut.text == tokenizer.decode(source[:3])
    assert blank.finish_reason is FinishReason.EOS
    assert (blank.num_source_tokens, blank.num_target_tokens) == (0, 0)


async def test_without_splitting_a_text_is_one_sequence(
    echoing: Running, tokenizer: Tokenizer
) -> None:
    text = "A dog is running. Two men."
    whole = await echoing.client.translate([text], split_sentences=False, max_new_tokens=3)
    parts = await echoing.client.translate([text], split_sentences=True, max_new_tokens=3)
    assert whole.translations[0].num_target_tokens == 3
    assert parts.translations[0].num_target_tokens == 6


@pytest.mark.parametrize("max_new_tokens", [None, 5])
async def test_a_stream_s_pieces_joined_are_the_unary_answer(
    real: Running, max_new_tokens: int | None
) -> None:
    unary = await real.client.translate(TEXTS, max_new_tokens=max_new_tokens)
    for text, expected in zip(TEXTS, unary.translations, strict=True):
        *pieces, end = [
            event async for event in real.client.stream(text, max_new_tokens=max_new_tokens)
        ]
        assert "" not in pieces
        assert "".join(str(piece) for piece in pieces) == expected.text
        assert isinstance(end, StreamEnd)
        assert end.finish_reason is expected.finish_reason
        assert end.num_source_tokens == expected.num_source_tokens
        assert end.num_target_tokens == expected.num_target_tokens
        assert end.was_split is expected.was_split
        assert end.model == "tiny"


async def test_the_first_piece_comes_before_the_last_token_is_made(
    tokenizer: Tokenizer,
) -> None:
    runner, text = fake_runner(tokenizer), "A dog is running across the green field."
    async with running_fake(runner, tokenizer) as made:
        runner.hold()
        stream = made.client.stream(text)
        first = asyncio.ensure_future(anext(stream))
        runner.allow(len(tokenizer.encode(text)) // 2)
        assert text.startswith(str(await first))
        runner.release()
        rest = [event async for event in stream]
        assert isinstance(rest[-1], StreamEnd)


async def test_models_are_listed_in_order_of_preference_and_chosen_by_pair_or_name(
    tokenizer: Tokenizer,
) -> None:
    metrics, settings = ServerMetrics(), any_ports()
    pairs = {"best": ("en", "de"), "other": ("en", "de"), "french": ("en", "fr")}
    registry = Registry(
        [
            served(
                fake_runner(tokenizer), tokenizer, settings, metrics,
                name=name, source=source, target=target,
            )
            for name, (source, target) in pairs.items()
        ]
    )  # fmt: skip
    async with running(settings, metrics, registry) as made:
        client = made.client
        listed = await client.list_models()
        assert [model.name for model in listed] == list(pairs)
        assert listed[2].language_pairs == (("en", "fr"),)
        assert [
            (group.source_languages, group.target_languages, group.models)
            for group in await client.list_languages()
        ] == [(("en",), ("de",), ("best", "other")), (("en",), ("fr",), ("french",))]
        assert (await client.get_model("french")) == listed[2]
        assert (await client.translate(["a"], source="EN", target="de")).model == "best"
        assert (await client.translate(["a"], target="fr")).model == "french"
        assert (await client.translate(["a"], model="other")).model == "other"
        error = await error_of(client.translate(["a"], source="en"), r"one of: de, fr")
        assert error.field == "target_language_code"
        wrong: Any
        for wrong, message in (
            ({"model": "none"}, r"no model 'none'; there are: best, other, french"),
            ({"source": "de", "target": "en"}, r"'de' to 'en'; it translates: en to de, en to fr"),
            ({"model": "other", "target": "fr"}, r"model other .*it translates: en to de"),
        ):
            await refused(client.translate(["a"], **wrong), "NOT_FOUND", message)
        await refused(client.get_model("none"), "NOT_FOUND", "there are: best, other, french")


async def test_many_languages_are_listed_in_few_bytes(tokenizer: Tokenizer) -> None:
    metrics, settings = ServerMetrics(), any_ports()
    codes = tuple(f"{a}{b}" for a in "abcdefghij" for b in "abcdefghijklmnopqrst")
    between, model = (
        Directions(codes, codes),
        served(fake_runner(tokenizer), tokenizer, settings, metrics),
    )
    registry = Registry(
        [
            model,
            dataclasses.replace(
                served(fake_runner(tokenizer), tokenizer, settings, metrics),
                name="many",
                directions=between,
            ),
        ]
    )
    async with (
        running(settings, metrics, registry) as made,
        grpc.aio.insecure_channel(made.address) as channel,
    ):
        stub: Any = TranslationServiceStub(channel)
        models = await stub.ListModels(pb.ListModelsRequest())
        languages = await stub.ListLanguages(pb.ListLanguagesRequest())
        assert not models.models[1].language_pairs
        assert list(models.models[1].source_language_codes) == list(codes)
        assert [list(group.models) for group in languages.groups] == [["fake"], ["many"]]
        assert max(models.ByteSize(), languages.ByteSize()) < 5000
        error = await refused(made.client.translate(["a"], source="en", target="xx"), "NOT_FOUND")
        assert len(error.message) < 500
        error = await error_of(
            made.client.translate(["a"], model="many", source="aa"), "must be given, one of: aa"
        )
        assert error.field == "target_language_code"
        assert len(error.message) < 500


async def test_a_model_tells_its_limits(real: Running) -> None:
    model = await real.client.get_model("tiny")
    assert (model.limits.max_texts, model.limits.max_characters) == (1024, 100_000)
    assert model.limits.max_source_tokens == 64
    assert model.limits.max_rows == 64
    assert (model.precision, model.device, model.version) == ("fp32", "cpu", "1")


async def test_the_threaded_client_does_the_same(real: Running) -> None:
    expected = await real.client.translate(TEXTS)

    def in_a_thread() -> None:
        with Client(real.address, timeout=60) as client:
            batch = client.translate(TEXTS, request_id="mine")
            assert batch.translations == expected.translations
            assert batch.request_id == "mine"
            *pieces, end = client.stream(TEXTS[2])
            assert "".join(str(piece) for piece in pieces) == expected.translations[2].text
            assert isinstance(end, StreamEnd)
            assert [model.name for model in client.list_models()] == ["tiny"]
            assert [group.models for group in client.list_languages()] == [("tiny",)]
            with pytest.raises(TranslationError) as caught:
                client.get_model("none")
            assert caught.value.code is grpc.StatusCode.NOT_FOUND
            with pytest.raises(TranslationError):
                list(client.stream("a", model="none"))

    await asyncio.to_thread(in_a_thread)


async def test_health_of_the_server_and_of_the_service(echoing: Running) -> None:
    async with grpc.aio.insecure_channel(echoing.address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        for name in ("", "dragoman.v1.TranslationService"):
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=name))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_reflection_names_the_services_and_gives_their_contracts(
    echoing: Running, version: str
) -> None:
    reflection = f"grpc.reflection.{version}.ServerReflection"
    symbol = "dragoman.v1.TranslationService"
    async with grpc.aio.insecure_channel(echoing.address) as channel:
        connection: Any = channel
        # v1 has v1alpha's messages under another name.
        call = connection.stream_stream(
            f"/{reflection}/ServerReflectionInfo",
            reflection_pb2.ServerReflectionRequest.SerializeToString,
            reflection_pb2.ServerReflectionResponse.FromString,
        )()
        await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        names = {service.name for service in (await call.read()).list_services_response.service}
        assert {symbol, "grpc.health.v1.Health", reflection} <= names
        files = {}
        for name in names:
            await call.write(reflection_pb2.ServerReflectionRequest(file_containing_symbol=name))
            files[name] = (await call.read()).file_descriptor_response.file_descriptor_proto
        await call.done_writing()
    assert pb.DESCRIPTOR.serialized_pb in files[symbol]
    for name, described in files.items():
        (file, *_) = [descriptor_pb2.FileDescriptorProto.FromString(item) for item in described]
        assert name in [f"{file.package}.{service.name}" for service in file.service]


async def test_the_metrics_of_a_request(real: Running) -> None:
    batch = await real.client.translate(["A dog is running.", "Two men."])
    async for _ in real.client.stream("A dog is running."):
        pass
    page = await real.scrape()
    values = {
        (sample.name, *(sample.labels[key] for key in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
    tokens = sum(item.num_target_tokens for item in batch.translations)
    assert values["dragoman_serving",] == 1
    assert values["dragoman_requests_total", "OK", "Translate"] == 1
    assert values["dragoman_requests_total", "OK", "StreamTranslate"] == 1
    assert values["dragoman_request_duration_seconds_count", "Translate"] == 1
    assert values["dragoman_texts_total", "OK"] == 3
    assert values["dragoman_encoded_sentences_total", "tiny"] == 3
    assert values["dragoman_queue_duration_seconds_count", "tiny"] == 3
    assert values["dragoman_time_to_first_token_seconds_count", "tiny"] == 3
    assert values["dragoman_step_duration_seconds_count", "tiny"] > 1
    assert values["dragoman_step_rows_sum", "tiny"] > tokens
    assert values["dragoman_target_tokens_total", "tiny"] > tokens
    assert values["dragoman_rows", "tiny"] == 64
    assert values["dragoman_rows_used", "tiny"] == 0
    assert values["dragoman_waiting_sentences", "tiny"] == 0
    assert values["dragoman_cache_bytes", "tiny"] > 64 * 64 * 32 * 4
    ended = [values["dragoman_finished_sentences_total", "tiny", why] for why in ("eos", "length")]
    assert sum(ended) == 3
    assert values["dragoman_model_info", "cpu", "tiny", "fp32", "en", "de", "1"] == 1
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: apt-get install prometheus)")
    done = await asyncio.to_thread(
        subprocess.run, [promtool, "check", "metrics"], input=page.encode(), capture_output=True
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


async def test_a_watchdog_that_fails_is_logged_and_the_server_is_not_live(
    tokenizer: Tokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Engine):
        def pulse(self) -> EngineProgress | None:
            raise ValueError("no pulse")

    runner, settings, metrics = fake_runner(tokenizer), any_ports(), ServerMetrics()
    model = served(runner, tokenizer, settings, metrics)
    registry = Registry([dataclasses.replace(model, engine=Broken.of_runner(runner))])
    async with running(settings, metrics, registry) as made:
        await made.client.list_models()  # by now, the watchdog has looked
        with pytest.raises(urllib.error.HTTPError) as caught:
            await page(f"http://127.0.0.1:{made.server.metrics_port}/livez")
    assert (caught.value.code, caught.value.read()) == (503, b"the watchdog failed\n")
    (entry,) = [record for record in caplog.records if record.message == "watchdog failed"]
    assert entry.exc_info
    assert "no pulse" in caplog.text
