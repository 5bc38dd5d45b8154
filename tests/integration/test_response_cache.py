"""Servers with a response cache: the same answers, charged and shown as the settings say."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from dragoman.v1 import translation_pb2 as pb
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from model.bundle.tokenizer import Tokenizer
from service.errors import StartupError
from service.models.loading import load_models
from service.observability.metrics import ServerMetrics
from tests.factories import tiny_bundle
from tests.integration.http_client import post
from tests.integration.keyed import KeyFile, by_bearer, request, serving
from tests.integration.replacing import NUM_TOKENS, put, texts_of
from tests.integration.replacing import TEXTS as TRANSLATED
from tests.integration.servers import (
    Running,
    any_ports,
    fake_runner,
    needs_two_cores,
    running_bundle,
    running_fake,
)

TEXTS = ["A dog runs. A cat sleeps, and a bird sings.", "A dog runs.", "Numbers: 3 and 40."]
HTML = ["<p>A <b>dog</b> runs. A cat <i>sleeps</i>.</p><p>A dog runs.</p>"]
SAMPLED = pb.Sampling(seed=7, top_k=5, temperature=0.8)
REQUESTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "beam": {"num_hypotheses": 3, "search": pb.SearchOptions(beam_size=4, length_penalty=0.6)},
    "gnmt": {
        "search": pb.SearchOptions(
            beam_size=2,
            length_penalty_kind=pb.LENGTH_PENALTY_KIND_GNMT,
            early_stopping=pb.EARLY_STOPPING_FIRST,
        )
    },
    "constraints": {
        "search": pb.SearchOptions(
            min_new_tokens=3, repetition_penalty=1.3, no_repeat_ngram_size=2, target_prefix="Ein"
        )
    },
    "tokens": {"max_new_tokens": 9, "return_tokens": True},
    "sampling": {"search": pb.SearchOptions(sampling=SAMPLED), "return_tokens": True},
    "exact": {"search": pb.SearchOptions(exact=True)},
    "hard alignments": {"return_alignments": pb.ALIGNMENT_KIND_HARD},
    "soft alignments": {"return_alignments": pb.ALIGNMENT_KIND_SOFT},
    "whole texts": {"split_sentences": False},
    "markup": {"mime_type": "text/html"},
}


def translate_request(name: str) -> pb.TranslateRequest:
    options = dict(REQUESTS[name])
    mime_type = options.pop("mime_type", "text/plain")
    return pb.TranslateRequest(
        contents=HTML if mime_type == "text/html" else TEXTS,
        mime_type=mime_type,
        options=pb.TranslateOptions(**options),
    )


@contextlib.asynccontextmanager
async def stub_of(server: Running) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(server.address) as channel:
        yield TranslationServiceStub(channel)


def without_times(response: pb.TranslateResponse) -> bytes:
    """All bits of an answer but what it may not have in common with another one."""
    copy = pb.TranslateResponse.FromString(response.SerializeToString())
    copy.ClearField("timing")
    for each in copy.translations:
        assert not each.HasField("status")
        each.ClearField("cached_character_count")
    return copy.SerializeToString(deterministic=True)


async def test_answers_are_equal_bit_by_bit_with_every_kind_of_option(bundle_path: Path) -> None:
    async with running_bundle(bundle_path, in_process=True) as plain, stub_of(plain) as stub:
        expected = {name: await stub.Translate(translate_request(name)) for name in REQUESTS}
    async with (
        running_bundle(bundle_path, cache_memory=16, in_process=True) as cached,
        stub_of(cached) as stub,
    ):
        for name in REQUESTS:
            for number in range(3):
                answer = await stub.Translate(translate_request(name))
                assert without_times(answer) == without_times(expected[name]), (name, number)
                counts = [each.cached_character_count for each in answer.translations]
                assert number == 0 or min(counts) > 10, (name, counts)
        computed = cached.metric("dragoman_scored_translations_total", model="tiny")
        await stub.Translate(translate_request("markup"))
        assert cached.metric("dragoman_scored_translations_total", model="tiny") == computed


@needs_two_cores
async def test_a_replaced_model_gives_no_old_answers(tmp_path: Path) -> None:
    versions = [tmp_path / "1", tmp_path / "2"]
    for seed, path in enumerate(versions):
        tiny_bundle(path, name="tiny", seed=seed)
    expected = [await texts_of(path) for path in versions]
    assert expected[0] != expected[1]
    live = tmp_path / "live"
    put(versions[0], live)
    async with running_bundle(live, cache_memory=16) as server:
        for old, new in ((0, 1), (1, 0)):
            for _ in range(2):
                batch = await server.client.translate(list(TRANSLATED), max_new_tokens=NUM_TOKENS)
                assert [each.text for each in batch.translations] == expected[old]
            put(versions[new], live)
            await server.registry.lifecycles["tiny"].replace(None, 30.0)
        # The first version is back, and so are its results.
        batch = await server.client.translate(list(TRANSLATED), max_new_tokens=NUM_TOKENS)
        assert [each.text for each in batch.translations] == expected[0]
        assert all(each.num_cached_characters for each in batch.translations)


async def test_streams_and_documents(bundle_path: Path) -> None:
    async with (
        running_bundle(bundle_path, cache_memory=16, in_process=True) as server,
        stub_of(server) as stub,
    ):
        document = pb.TranslateDocumentRequest(content=TEXTS[0].encode(), file_name="a.txt")
        streams, documents = [], []
        for _ in range(2):
            pieces = stub.StreamTranslate(pb.StreamTranslateRequest(content=TEXTS[0]))
            streams.append([each async for each in pieces])
            documents.append(await stub.TranslateDocument(document))
        texts = ["".join(each.delta.text for each in pieces) for pieces in streams]
        assert texts[0] == texts[1]
        assert [each[-1].summary.cached_character_count for each in streams] == [0, 42]
        assert documents[0].content == documents[1].content
        assert documents[1].cached_character_count == 42


async def test_hits_are_in_answers_the_log_and_metrics(
    tokenizer: Tokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "dragoman.access")
    async with running_fake(fake_runner(tokenizer), tokenizer, cache_memory=1, http_port=0) as made:
        body = {"contents": ["A dog.", "A cat."]}
        first = (await post(made, "/v1/translate", body)).json
        assert [each["cachedCharacterCount"] for each in first["translations"]] == [0, 0]
        body["contents"].append("A cow.")
        again = (await post(made, "/v1/translate", body)).json
        assert [each["cachedCharacterCount"] for each in again["translations"]] == [6, 6, 0]
        labels = {"model": "fake"}
        lookups = "dragoman_response_cache_lookups_total"
        assert made.metric(lookups, result="hit", **labels) == 2
        assert made.metric(lookups, result="miss", **labels) == 3
        assert made.metric("dragoman_response_cache_bytes") > 3 * 256
    lines = [vars(each) for each in caplog.records if each.name == "dragoman.access"]
    assert [line.get("cached_characters") for line in lines] == [None, 12]


@pytest.mark.parametrize(("is_free", "charged"), [(False, 12), (True, 6)])
async def test_hits_are_charged_unless_they_are_free(
    tokenizer: Tokenizer, tmp_path: Path, is_free: bool, charged: int
) -> None:
    file = KeyFile(tmp_path / "keys.jsonl")
    key = by_bearer(file.add("me"))
    settings = {"cache_memory": 1, "cache_free": is_free}
    async with serving(fake_runner(tokenizer), tokenizer, file, **settings) as (server, stub):

        def used() -> float:
            return server.metric("dragoman_key_characters_total", key="me")

        for _ in range(2):
            await stub.Translate(request("A dog."), metadata=key)
        assert used() == charged
        stream = stub.StreamTranslate(pb.StreamTranslateRequest(content="A dog."), metadata=key)
        assert [response async for response in stream]
        document = pb.TranslateDocumentRequest(content=b"A dog.\n", file_name="a.txt")
        await stub.TranslateDocument(document, metadata=key)
        assert used() == (6 if is_free else 24)


async def test_keys_of_different_tenants_share_nothing(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    file = KeyFile(tmp_path / "keys.jsonl")
    keys = [file.add("a", tenant="x"), file.add("b", tenant="x"), file.add("c"), file.add("d")]
    async with serving(fake_runner(tokenizer), tokenizer, file, cache_memory=1) as (_, stub):
        counts = []
        for key in keys:
            answer = await stub.Translate(request("A dog."), metadata=by_bearer(key))
            counts.append(answer.translations[0].cached_character_count)
    assert counts == [0, 6, 0, 0]


async def test_many_cached_sentences_do_not_block_the_event_loop(tokenizer: Tokenizer) -> None:
    text = "A dog runs. " * 1500
    async with running_fake(fake_runner(tokenizer), tokenizer, cache_memory=8) as made:
        await made.client.translate([text] * 2, source="en", target="de")
        async for _ in made.client.stream(text, source="en", target="de"):
            pass


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cache_url": "redis://127.0.0.1"}, "cache_url: there is no cache without cache_memory"),
        ({"cache_free": True}, "cache_free: there is no cache without cache_memory"),
        ({"cache_memory": 1, "cache_url": "http://:secret@a"}, "cache_url: must be a URL such as"),
        ({"cache_memory": 1, "cache_url": "redis://:secret@a:b"}, "cache_url: must be a URL"),
        ({"cache_memory": -1}, "cache_memory: must be from 0"),
    ],
)
def test_bad_settings_are_named(bundle_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(StartupError, match=message) as caught:
        load_models(any_ports(model=(bundle_path,), **settings), ServerMetrics())
    assert "secret" not in str(caught.value)


@contextlib.asynccontextmanager
async def silent_server() -> AsyncIterator[int]:
    """A port that takes connections and never answers."""
    open_ended: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: open_ended.append(writer), "127.0.0.1")
    async with server:
        yield server.sockets[0].getsockname()[1]
        for writer in open_ended:
            writer.close()


@contextlib.asynccontextmanager
async def rude_server() -> AsyncIterator[int]:
    """A port that answers everything with bytes of another protocol."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while await reader.read(1000):
                writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                await writer.drain()

    server = await asyncio.start_server(answer, "127.0.0.1")
    async with server:
        yield server.sockets[0].getsockname()[1]


@contextlib.asynccontextmanager
async def closed_port() -> AsyncIterator[int]:
    yield 1  # which nobody is given


@pytest.mark.parametrize("store", [silent_server, rude_server, closed_port])
async def test_calls_go_on_without_the_store(
    bundle_path: Path, store: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with store() as port:
        url = f"redis://user:secret@127.0.0.1:{port}/0"
        settings = {"cache_memory": 1, "cache_url": url, "in_process": True}
        async with running_bundle(bundle_path, **settings) as made:
            for _ in range(3):
                batch = await made.client.translate(TEXTS, source="en", target="de")
                assert not [each.error for each in batch.translations if each.error]
            async with asyncio.timeout(60):
                while "can't be used" not in caplog.text:
                    await asyncio.sleep(0.01)
    lines = [each for each in caplog.records if each.name == "dragoman.cache"]
    assert [each.getMessage().split(";")[0] for each in lines] == ["the shared cache can't be used"]
    assert all("secret" not in str(vars(each)) for each in lines)
