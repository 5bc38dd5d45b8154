"""Odd and invalid requests of all kinds, while other requests continue and get their answers."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from dragoman.client import FinishReason, TranslationError
from dragoman.v1 import translation_pb2 as pb
from dragoman.v1 import translation_pb2_grpc
from tests.client_errors import error_of, refused, status_error_of
from tests.integration.neighbours import other_requests, running_busy
from tests.integration.servers import (
    Running,
    running_bundle,
    streamed,
)

# One server for all tests of this module, and so one event loop.
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(bundle_path: Path) -> AsyncIterator[Running]:
    async with running_busy(bundle_path) as made:
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
    assert (await streamed(server.client, text))[0] == text


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
    before = server.metric("dragoman_texts_total", code="INVALID_ARGUMENT")
    batch = await server.client.translate(["A dog.", "a\0b", "A dog."])
    first, bad, last = batch.translations
    assert first == last == expected
    assert_invalid(bad.error, "contents[1]", "NUL")
    assert (bad.text, bad.finish_reason) == ("", FinishReason.UNSPECIFIED)
    assert server.metric("dragoman_texts_total", code="INVALID_ARGUMENT") == before + 1


async def test_what_is_not_unicode_fails_its_item_only(server: Running) -> None:
    """The client can't send such a text, and reports it in the same way as the server."""
    expected = (await server.client.translate(["A dog."])).translations[0]
    batch = await server.client.translate(["A dog.", "ab\ud800", "A dog."])
    first, bad, last = batch.translations
    assert first == last == expected
    assert_invalid(bad.error, "contents[1]", "position 2 is not Unicode")
    assert (bad.text, bad.finish_reason) == ("", FinishReason.UNSPECIFIED)
    assert batch.request_id
    caught = await error_of(anext(server.client.stream("ab\ud800")))
    assert_invalid(caught, "content", "position 2 is not Unicode")


async def test_characters_that_grow_when_normalised_count_as_what_they_become(
    server: Running,
) -> None:
    ligature = "\ufdfa"  # NFKC makes 18 characters of it
    caught = await error_of(server.client.translate(["A dog.", ligature * 6_000]))
    assert_invalid(caught, "contents[1]", "108,000", "100,000", "NFKC")
    caught = await error_of(anext(server.client.stream(ligature * 6_000)))
    assert_invalid(caught, "content", "108,000", "100,000", "NFKC")
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
            error = await error_of(server.client.translate(texts))
            assert_invalid(error, "contents", number, "150,000")


async def test_an_option_of_a_newer_contract_is_refused_not_ignored(server: Running) -> None:
    options = pb.TranslateOptions.FromString(b"\x90\x03\x05")  # field 50, which is not there yet
    request = pb.TranslateRequest(contents=["A dog."], options=options)
    async with grpc.aio.insecure_channel(server.address) as channel:
        stub = translation_pb2_grpc.TranslationServiceStub(channel)
        error = await status_error_of(stub.Translate(request))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "does not know option number 50" in (error.details() or "")


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
        await refused(call, "NOT_FOUND", message)


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
        error = await status_error_of(call(b""))
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED


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
    error = await refused(server.client.translate(["x" * 90_000] * 12), "RESOURCE_EXHAUSTED")
    assert error.retry_after_seconds is None
