"""Odd and invalid requests of all kinds, while other requests continue and get their answers."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, ResponseReceived, StreamEnded, TrailersReceived

from dragoman.client import AsyncClient, FinishReason, TranslationError
from dragoman.v1 import translation_pb2 as pb
from dragoman.v1 import translation_pb2_grpc
from model.bundle.tokenizer import Tokenizer
from service import process
from service.domain.plan import StepOutput, StepPlan
from service.errors import InternalError
from service.models.registry import Registry
from service.observability.metrics import ServerMetrics
from service.server import Server
from tests.fake_runner import FakeRunner
from tests.integration.servers import (
    Running,
    any_ports,
    fake_runner,
    running_bundle,
    running_fake,
    served,
)

NEIGHBOURS = ["A dog is running.", "Two men are playing the guitar in the street. The lake."]


@contextlib.asynccontextmanager
async def other_requests(server: Running) -> AsyncIterator[None]:
    """Four clients that translate during the `with` block; all their answers must be right.

    Each gets an answer before the block begins and one after it, so that they surround it.
    """
    expected = (await server.client.translate(NEIGHBOURS)).translations
    assert all(item.error is None and item.text for item in expected)
    ended = asyncio.Event()
    begun = asyncio.Semaphore(0)

    async def client() -> None:
        last = False
        while not last:
            last = ended.is_set()
            batch = await server.client.translate(NEIGHBOURS)
            assert batch.translations == expected
            begun.release()

    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(client())
        for _ in range(4):
            await begun.acquire()
        yield
        ended.set()


@pytest.fixture
async def server(bundle_path: Path) -> AsyncIterator[Running]:
    """A server of the tiny random model, busy with other requests."""
    async with (
        running_bundle(bundle_path, max_message_bytes=1_000_000, in_process=True) as made,
        other_requests(made),
    ):
        yield made


def assert_invalid(error: TranslationError | None, field: str, *parts: str) -> None:
    assert error is not None
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT
    assert error.field == field
    for part in parts:
        assert part in error.description
        assert part in error.message
    assert error.retry_after_seconds is None


# --- fine, and answered --------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", " ", "\n", " \t\r\n  \u00a0\u3000\n", "\u2028"])
async def test_blank_texts_are_returned_as_they_are(server: Running, text: str) -> None:
    (item,) = (await server.client.translate([text])).translations
    assert (item.text, item.error) == (text, None)
    events = [event async for event in server.client.stream(text)]
    assert "".join(event for event in events if isinstance(event, str)) == text


@pytest.mark.parametrize(
    "text",
    [
        "🎉🏳️‍🌈👩‍👩‍👧‍👦",
        "\x01\x02\x07\x1b[31m\x7f\x85",
        "漢字かな交じり文 العربية עברית हिन्दी ไทย 한국어 ᚠᛇᚻ 𓀀",
        "e\u0301\u0323\ufeff\u200b\u202e\ufffd\U0010ffff\ue000",
        "!!! ... ??? --- ,,,",
        '<b>&amp;</b> {"json": null} \'; DROP TABLE --',
    ],
)
async def test_any_characters_are_answered(server: Running, text: str) -> None:
    (item,) = (await server.client.translate([text])).translations
    assert item.error is None
    assert item.finish_reason in (FinishReason.EOS, FinishReason.LENGTH)


async def test_one_word_of_100_000_letters_is_split_and_says_so(server: Running) -> None:
    batch = await server.client.translate(["x" * 100_000, "A dog."], max_new_tokens=1)
    long, short = batch.translations
    assert long.error is None
    assert long.was_split
    assert long.text
    assert long.num_source_tokens >= 1000
    assert (short.error, short.was_split) == (None, False)


async def test_as_many_texts_as_allowed(server: Running) -> None:
    batch = await server.client.translate(["A dog."] * 1024, max_new_tokens=2)
    assert len(batch.translations) == 1024
    assert len({item.text for item in batch.translations}) == 1


# --- invalid arguments ---------------------------------------------------------------------------


async def test_nul_fails_its_item_only(server: Running) -> None:
    expected = (await server.client.translate(["A dog."])).translations[0]
    batch = await server.client.translate(["A dog.", "a\0b", "A dog."])
    first, bad, last = batch.translations
    assert first == last == expected
    assert_invalid(bad.error, "contents[1]", "NUL")
    assert (bad.text, bad.finish_reason) == ("", FinishReason.UNSPECIFIED)
    assert server.metric("dragoman_texts_total", code="INVALID_ARGUMENT") == 1


async def test_what_is_not_unicode_fails_its_item_only(server: Running) -> None:
    """The client can't send such a text, and reports it in the same way as the server."""
    expected = (await server.client.translate(["A dog."])).translations[0]
    batch = await server.client.translate(["A dog.", "ab\ud800", "A dog."])
    first, bad, last = batch.translations
    assert first == last == expected
    assert_invalid(bad.error, "contents[1]", "position 2 is not Unicode")
    assert (bad.text, bad.finish_reason) == ("", FinishReason.UNSPECIFIED)
    assert batch.request_id
    with pytest.raises(TranslationError) as caught:
        await anext(server.client.stream("ab\ud800"))
    assert_invalid(caught.value, "content", "position 2 is not Unicode")


async def test_nul_fails_a_stream(server: Running) -> None:
    with pytest.raises(TranslationError) as caught:
        await anext(server.client.stream("a\0b"))
    assert_invalid(caught.value, "content", "NUL")


async def test_too_many_texts(server: Running) -> None:
    with pytest.raises(TranslationError) as caught:
        await server.client.translate(["a"] * 1025)
    assert_invalid(caught.value, "contents", "1,025", "1,024")


async def test_no_text_at_all(server: Running) -> None:
    with pytest.raises(TranslationError) as caught:
        await server.client.translate([])
    assert_invalid(caught.value, "contents", "at least one")


async def test_too_many_characters(server: Running) -> None:
    with pytest.raises(TranslationError) as caught:
        await server.client.translate(["A dog.", "ä" * 100_001])
    assert_invalid(caught.value, "contents[1]", "100,001", "100,000")
    with pytest.raises(TranslationError) as caught:
        await anext(server.client.stream("ä" * 100_001))
    assert_invalid(caught.value, "content", "100,001", "100,000")


async def test_characters_that_grow_when_normalised_count_as_what_they_become(
    server: Running,
) -> None:
    ligature = "\ufdfa"  # NFKC makes 18 characters of it
    with pytest.raises(TranslationError) as caught:
        await server.client.translate(["A dog.", ligature * 6_000])
    assert_invalid(caught.value, "contents[1]", "108,000", "100,000", "NFKC")
    with pytest.raises(TranslationError) as caught:
        await anext(server.client.stream(ligature * 6_000))
    assert_invalid(caught.value, "content", "108,000", "100,000", "NFKC")
    batch = await server.client.translate([ligature * 200], max_new_tokens=1)
    assert batch.translations[0].error is None


async def test_too_many_characters_in_all_texts(bundle_path: Path) -> None:
    async with (
        running_bundle(bundle_path, max_request_characters=150_000, in_process=True) as server,
        other_requests(server),
    ):
        for texts, number in (
            (["ä" * 50_000] * 3 + ["."], "150,001"),
            (["\ufdfa" * 5_000] * 2, "180,000"),
        ):
            with pytest.raises(TranslationError) as caught:
                await server.client.translate(texts)
            assert_invalid(caught.value, "contents", number, "150,000")


@pytest.mark.parametrize("value", [0, -1, -(2**31)])
async def test_too_few_tokens_to_generate(server: Running, value: int) -> None:
    with pytest.raises(TranslationError) as caught:
        await server.client.translate(["A dog."], max_new_tokens=value)
    assert_invalid(caught.value, "options.max_new_tokens", "between 1 and 64")
    with pytest.raises(TranslationError) as caught:
        await anext(server.client.stream("A dog.", max_new_tokens=value))
    assert_invalid(caught.value, "options.max_new_tokens", "between 1 and 64")


async def test_more_tokens_than_the_model_has_positions_for(server: Running) -> None:
    with pytest.raises(TranslationError) as caught:
        await server.client.translate(["A dog."], max_new_tokens=2**31 - 1)
    assert_invalid(caught.value, "options.max_new_tokens", "2,147,483,647", "64")


async def test_an_option_of_a_newer_contract_is_refused_not_ignored(server: Running) -> None:
    options = pb.TranslateOptions.FromString(b"\x90\x03\x05")  # field 50, which is not there yet
    request = pb.TranslateRequest(contents=["A dog."], options=options)
    async with grpc.aio.insecure_channel(server.address) as channel:
        stub = translation_pb2_grpc.TranslationServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Translate(request)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "does not know option number 50" in (caught.value.details() or "")


# --- not found -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": "x" * 100_000}, "there are: tiny"),
        ({"model": "../../etc/passwd"}, "there are: tiny"),
        ({"source": "fr"}, "translates: en to de"),
        ({"target": "ja", "source": "en"}, "translates: en to de"),
        ({"source": "ä" * 10_000}, "translates: en to de"),
        ({"source": "en" + "-a" * 100_000}, "translates: en to de"),
        ({"source": "enm-GB"}, "translates: en to de"),
        ({"source": "x-en"}, "translates: en to de"),
    ],
)
async def test_unknown_models_and_languages(server: Running, arguments: Any, message: str) -> None:
    for call in (
        server.client.translate(["A dog."], **arguments),
        anext(server.client.stream("A dog.", **arguments)),
    ):
        with pytest.raises(TranslationError, match=message) as caught:
            await call
        assert caught.value.code is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("source", ["en-GB", "EN-latn-us", "en-x-pirate", "eng-GB", "eng_Latn"])
async def test_a_region_is_served_by_its_language(server: Running, source: str) -> None:
    plain, regional = [
        (await server.client.translate(["A dog."], source=code, target=target)).translations
        for code, target in (("en", "de"), (source, "de-CH"))
    ]
    assert regional[0].text == plain[0].text


async def test_an_unknown_method_is_unimplemented(server: Running) -> None:
    async with grpc.aio.insecure_channel(server.address) as channel:
        call: Any = channel.unary_unary("/dragoman.v1.TranslationService/Nothing")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(b"")
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_bytes_that_are_no_message(server: Running) -> None:
    async with grpc.aio.insecure_channel(server.address) as channel:
        call: Any = channel.unary_unary("/dragoman.v1.TranslationService/Translate")
        with pytest.raises(grpc.aio.AioRpcError):
            await call(b"\xff\xff\xff\xff")


# --- too much ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/grpc.health.v1.Health/Check",
        "/grpc.health.v1.Health/Watch",
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    ],
)
async def test_bytes_that_are_no_message_of_another_service(
    server: Running, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with grpc.aio.insecure_channel(server.address) as channel:
        call: Any = channel.stream_stream(path)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in call(iter([b"\x0a\xff\xff"]), timeout=60):
                pass
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "bad wire format" in str(caught.value.details())
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_a_message_over_grpc_s_limit_has_no_retry_hint(server: Running) -> None:
    with pytest.raises(TranslationError) as caught:
        await server.client.translate(["x" * 90_000] * 12)
    assert caught.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert caught.value.retry_after_seconds is None


async def test_load_is_refused_with_a_hint_and_recovers(tokenizer: Tokenizer) -> None:
    runner = fake_runner(tokenizer, max_rows=2)
    async with running_fake(runner, tokenizer, max_waiting=2) as made:
        runner.hold()
        held = [asyncio.ensure_future(made.client.translate(["A dog."])) for _ in range(4)]
        while made.metric("dragoman_requests_in_flight", method="Translate") < 4:
            await asyncio.sleep(0)
        await asyncio.to_thread(runner.wait_until_blocked)
        async with AsyncClient(made.address, patient=False) as hasty:
            with pytest.raises(TranslationError) as caught:
                await hasty.translate(["A dog."])
        assert caught.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert caught.value.retry_after_seconds is not None
        assert caught.value.retry_after_seconds > 0
        runner.release()
        for batch in await asyncio.gather(*held):
            assert batch.translations[0].text == "A dog."
        assert (await made.client.translate(["Two men."])).translations[0].text == "Two men."


async def test_a_failing_model_fails_its_texts_only_and_is_not_shown(tokenizer: Tokenizer) -> None:
    runner = fake_runner(tokenizer)
    async with running_fake(runner, tokenizer) as made:
        runner.fail_next(RuntimeError("secret details"))
        batch = await made.client.translate(["A dog."], request_id="that-one")
        error = batch.translations[0].error
        assert error is not None
        assert error.code is grpc.StatusCode.INTERNAL
        assert "that-one" in error.message
        assert "secret" not in error.message
        assert batch.translations[0].finish_reason is FinishReason.ERROR
        assert (await made.client.translate(["Two men."])).translations[0].text == "Two men."


class BrokenRunner(FakeRunner):
    """A runner that breaks its contract, after which no engine can continue."""

    def execute(self, plan: StepPlan) -> StepOutput:
        """No output at all."""
        output: Any = None
        return cast(StepOutput, output)


async def test_a_server_whose_engine_broke_ends_so_that_it_is_started_afresh(
    tokenizer: Tokenizer,
) -> None:
    runner = BrokenRunner(fake_runner(tokenizer).limits)
    metrics, settings = ServerMetrics(), any_ports()
    registry = Registry([served(runner, tokenizer, settings, metrics)])
    server = Server(settings, registry, metrics)
    serving = asyncio.ensure_future(process.serve(server))
    while not metrics.registry.get_sample_value("dragoman_serving"):
        await asyncio.sleep(0)
    request = pb.TranslateRequest(contents=["A dog."])
    # A client that does not retry, and calls again and again: the server must not wait for it.
    codes: list[grpc.StatusCode] = []
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stub = translation_pb2_grpc.TranslationServiceStub(channel)
        while not serving.done():
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.Translate(request)
            codes.append(caught.value.code())
    # gRPC resets a call that arrives while it stops. This client has one call at a time.
    assert set(codes) <= {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}
    assert codes.count(grpc.StatusCode.CANCELLED) <= 1
    with pytest.raises(InternalError, match="model fake stopped working"):
        await serving
    labels = {"method": "Translate", "code": "UNAVAILABLE"}
    num_refused = metrics.registry.get_sample_value("dragoman_requests_total", labels)
    assert num_refused is not None
    assert num_refused < 20, "it goes on to accept calls that it can only refuse"
    assert metrics.registry.get_sample_value("dragoman_serving") == 0


@pytest.mark.parametrize(
    "path", [b"/\xe9", b"\xff" * 100, b"/\xe9/Translate", b"", b"/no.Such/Method"]
)
async def test_whatever_bytes_name_no_method_are_unimplemented(
    server: Running, path: bytes
) -> None:
    assert await grpc_status_of_path(server.address, path) == b"12"


async def test_a_method_is_served_whatever_others_are_called(server: Running) -> None:
    for path in (b"/\xe9", b"/grpc.health.v1.Health/Check", b"/\xe9", b"/\xe9"):
        status = await grpc_status_of_path(server.address, path)
        assert status == (b"0" if path.endswith(b"Check") else b"12")


async def grpc_status_of_path(address: str, path: bytes) -> bytes:
    """The status of a call whose message is empty, for a path of any bytes."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    config = H2Configuration(
        header_encoding=None, validate_outbound_headers=False, normalize_outbound_headers=False
    )
    connection = H2Connection(config)
    connection.initiate_connection()
    headers = {b":method": b"POST", b":scheme": b"http", b":path": path, b":authority": b"x"}
    headers |= {b"content-type": b"application/grpc", b"te": b"trailers"}
    connection.send_headers(1, list(headers.items()))
    connection.send_data(1, bytes(5), end_stream=True)
    found: dict[bytes, bytes] = {}
    try:
        while True:
            writer.write(connection.data_to_send())
            received = await reader.read(65536)
            assert received, "the server closed the connection"
            for event in connection.receive_data(received):
                if isinstance(event, ResponseReceived | TrailersReceived):
                    found.update(cast(Any, event.headers))
                if isinstance(event, DataReceived):
                    connection.acknowledge_received_data(event.flow_controlled_length, 1)
                if isinstance(event, StreamEnded):
                    return found[b"grpc-status"]
    finally:
        writer.close()
