"""Translation memories through a server: corrections count at once, for their owner alone."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from typer.testing import CliRunner

from cli import memory as memory_command
from cli.main import app
from dragoman.v1 import translation_pb2 as pb
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from model.bundle.tokenizer import Tokenizer
from service.memory.pairs import TextPair
from service.memory.tmx import HEAD, TAIL, tmx_units
from service.settings import shipped_models
from tests.integration.http_client import ask, post
from tests.integration.keyed import KeyFile, by_bearer, failure, serving
from tests.integration.servers import fake_runner, running_bundle

LANGUAGES: dict[str, Any] = {"source_language_code": "en", "target_language_code": "de"}
SHIPPED = ("Order 17 was shipped.", "Bestellung 17 ging raus.")
DOG = ("A dog runs.", "Ein Köter rennt.")


@contextlib.asynccontextmanager
async def stub_with_memory(
    tmp_path: Path, *pairs: tuple[str, str], **settings: Any
) -> AsyncIterator[Any]:
    """A stub of a server with the included model, and a memory "ours"."""
    given = {"memory_store": str(tmp_path / "memories.db"), "http_port": 0, **settings}
    async with (
        running_bundle(*shipped_models(), **given) as running,
        grpc.aio.insecure_channel(running.address) as channel,
    ):
        stub: Any = TranslationServiceStub(channel)
        await stub.CreateMemory(pb.CreateMemoryRequest(name="ours"))
        for pair in pairs:
            await stub.AddTranslation(added(*pair))
        yield stub


def added(source: str, target: str, memory: str = "ours") -> pb.AddTranslationRequest:
    return pb.AddTranslationRequest(
        memory=memory, source_text=source, translated_text=target, **LANGUAGES
    )


def request(*texts: str, memory: str = "ours", **fields: Any) -> pb.TranslateRequest:
    return pb.TranslateRequest(contents=texts, memory=memory, **LANGUAGES, **fields)


async def translated(stub: Any, *texts: str, **fields: Any) -> list[pb.Translation]:
    answer = await stub.Translate(request(*texts, **fields))
    return list(answer.translations)


async def test_a_correction_is_used_at_once(tmp_path: Path) -> None:
    async with stub_with_memory(tmp_path, cache_memory=8) as stub:
        [model] = await translated(stub, SHIPPED[0])
        assert not model.memory_matches
        made = await stub.AddTranslation(added(*SHIPPED))
        assert not made.replaced
        [exact] = await translated(stub, f"  {SHIPPED[0]}\n")
        assert exact.translated_text == f"  {SHIPPED[1]}\n"
        assert (exact.source_token_count, exact.target_token_count) == (0, 0)
        [match] = exact.memory_matches
        assert match == pb.MemoryMatch(
            sentence=SHIPPED[0],
            source_text=SHIPPED[0],
            translated_text=SHIPPED[1],
            score=1,
            memory="ours",
        )
        made = await stub.AddTranslation(added(SHIPPED[0], "Raus!"))
        assert made.replaced
        [corrected] = await translated(stub, SHIPPED[0])
        assert corrected.translated_text == "Raus!"
        found = await stub.ListMemories(pb.ListMemoriesRequest())
        assert [(each.name, each.pair_count) for each in found.memories] == [("ours", 1)]
        await stub.DeleteMemory(pb.DeleteMemoryRequest(name="ours"))
        code, message, _ = await failure(stub.Translate(request("A dog.")))
        assert (code, message) == (grpc.StatusCode.NOT_FOUND, "memory: no such memory")
        await stub.CreateMemory(pb.CreateMemoryRequest(name="ours"))
        [again] = await translated(stub, SHIPPED[0])
        assert again.translated_text == model.translated_text


async def test_sentences_of_a_text_are_looked_up_one_by_one(tmp_path: Path) -> None:
    text = "I am tired. Order 23 was shipped. ORDER 5 WAS SHIPPED.\n- A dog runs. I am tired."
    async with stub_with_memory(tmp_path, SHIPPED, DOG, ("Yes. No.", "Janein.")) as stub:
        [tired] = await translated(stub, "I am tired.", memory="")
        [found] = await translated(stub, text)
        assert found.translated_text == (
            f"{tired.translated_text} Bestellung 23 ging raus. BESTELLUNG 5 GING RAUS.\n"
            f"- Ein Köter rennt. {tired.translated_text}"
        )
        assert [match.sentence for match in found.memory_matches] == [
            "Order 23 was shipped.",
            "ORDER 5 WAS SHIPPED.",
            "A dog runs.",
        ]
        [whole, alone, lines] = await translated(stub, "Yes. No.", "Yes.", "Yes.\nNo.")
        assert whole.translated_text == "Janein."
        assert not alone.memory_matches
        assert not lines.memory_matches  # a line break is no part of a match

        events = stub.StreamTranslate(
            pb.StreamTranslateRequest(content=text, memory="ours", **LANGUAGES)
        )
        *deltas, end = [event async for event in events]
        assert "".join(event.delta.text for event in deltas) == found.translated_text
        assert end.summary.memory_matches == found.memory_matches

        [html] = await translated(
            stub, "<p>A <b>dog</b> runs.</p><p>I am tired.</p>", mime_type="text/html"
        )
        assert html.translated_text.count("<b>") == 1
        assert [match.translated_text for match in html.memory_matches] == [DOG[1]]

        document = await stub.TranslateDocument(
            pb.TranslateDocumentRequest(
                content=b"A dog runs.\n\nA dog runs.\n",
                file_name="a.txt",
                memory="ours",
                **LANGUAGES,
            )
        )
        assert document.content.decode() == f"{DOG[1]}\n\n{DOG[1]}\n"
        assert document.memory_match_count


async def test_similar_sentences_are_alternatives(tmp_path: Path) -> None:
    async with stub_with_memory(tmp_path, SHIPPED, DOG) as stub:
        [found] = await translated(stub, "I am tired. The order 23 was shipped!")
        [similar] = found.alternatives
        assert (similar.sentence, similar.source_text) == ("The order 23 was shipped!", SHIPPED[0])
        assert 0.75 <= similar.score < 1
        assert similar.translated_text == SHIPPED[1]
        assert not found.memory_matches
        [none] = await translated(stub, "I am tired. The order 23 was shipped!", memory_threshold=1)
        assert not none.alternatives
        assert none.translated_text == found.translated_text


async def test_the_memory_comes_before_the_glossary(tmp_path: Path) -> None:
    entries = [
        pb.GlossaryEntry(source_term=term, target_term=f"{term}X") for term in ("dog", "cat")
    ]
    async with stub_with_memory(tmp_path, DOG) as stub:
        [found] = await translated(
            stub, "A dog runs. A cat runs.", glossary=pb.Glossary(entries=entries)
        )
        assert found.translated_text.startswith(f"{DOG[1]} ")
        assert "catX" in found.translated_text
        assert [term.source_term for term in found.terms] == ["cat"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"memory_threshold": 0.2}, "memory_threshold: must be from 0.5 to 1, not 0.2"),
        (
            {"options": pb.TranslateOptions(search=pb.SearchOptions(target_prefix="Ein"))},
            "memory: not together with options.search.target_prefix",
        ),
    ],
)
async def test_bad_requests(tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    async with stub_with_memory(tmp_path) as stub:
        code, said, _ = await failure(stub.Translate(request("A dog.", **fields)))
        assert (code, said) == (grpc.StatusCode.INVALID_ARGUMENT, message)


async def test_tenants_have_their_own_memories(tmp_path: Path, tokenizer: Tokenizer) -> None:
    file = KeyFile(tmp_path / "keys.jsonl")
    keys = [file.add("a", tenant="one"), file.add("b", tenant="two"), file.add("c", tenant="one")]
    one, two, same = ({"metadata": by_bearer(key)} for key in keys)
    settings = {"memory_store": str(tmp_path / "memories.db")}
    async with serving(fake_runner(tokenizer), tokenizer, file, **settings) as (_, stub):
        await stub.CreateMemory(pb.CreateMemoryRequest(name="ours"), **one)
        await stub.AddTranslation(added(*DOG), **one)
        assert not (await stub.ListMemories(pb.ListMemoriesRequest(), **two)).memories
        for method, message in (
            ("Translate", request(DOG[0])),
            ("AddTranslation", added(*DOG)),
            ("DeleteMemory", pb.DeleteMemoryRequest(name="ours")),
        ):
            code, _, _ = await failure(getattr(stub, method)(message, **two))
            assert code is grpc.StatusCode.NOT_FOUND
        await stub.CreateMemory(pb.CreateMemoryRequest(name="ours"), **two)
        answer = await stub.Translate(request(DOG[0]), **two)
        assert not answer.translations[0].memory_matches
        assert not answer.translations[0].alternatives
        answer = await stub.Translate(request(DOG[0]), **same)
        assert answer.translations[0].translated_text == DOG[1]


async def test_a_server_without_a_store_says_so(tmp_path: Path) -> None:
    async with (
        running_bundle(*shipped_models()) as running,
        grpc.aio.insecure_channel(running.address) as channel,
    ):
        stub: Any = TranslationServiceStub(channel)
        code, message, _ = await failure(stub.ListMemories(pb.ListMemoriesRequest()))
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert "--memory-store" in message


async def test_a_memory_is_exported_and_imported(tmp_path: Path) -> None:
    many = [(f"Line <{index}> & more.", f"Zeile <{index}>.") for index in range(1200)]
    async with stub_with_memory(tmp_path, SHIPPED) as stub:
        units = tmx_units(TextPair(*pair, "en-US", "de") for pair in many)
        file = HEAD + units + b'<tu srclang="en"/>' + TAIL
        made = await stub.ImportMemory(pb.ImportMemoryRequest(memory="ours", content=file))
        assert (made.added_count, made.replaced_count, made.skipped_count) == (1200, 0, 1)
        made = await stub.ImportMemory(pb.ImportMemoryRequest(memory="ours", content=file))
        assert (made.added_count, made.replaced_count) == (0, 1200)
        [found] = await translated(stub, "Line <7> & more.")
        assert found.translated_text == "Zeile <7>."
        events = stub.ExportMemory(pb.ExportMemoryRequest(name="ours"))
        exported = b"".join([event.content async for event in events])
        await stub.CreateMemory(pb.CreateMemoryRequest(name="copy"))
        made = await stub.ImportMemory(pb.ImportMemoryRequest(memory="copy", content=exported))
        assert (made.added_count, made.skipped_count) == (1201, 0)
        bad = pb.ImportMemoryRequest(
            memory="ours", content=b"<!DOCTYPE tmx [<!ENTITY a 'b'>]><tmx/>"
        )
        code, message, _ = await failure(stub.ImportMemory(bad))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert message.startswith("content: ")
        code, _, _ = await failure(stub.ImportMemory(pb.ImportMemoryRequest(memory="none")))
        assert code is grpc.StatusCode.NOT_FOUND


async def test_memories_as_json(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"memory_store": str(tmp_path / "memories.db"), "http_port": 0}
    languages = {"sourceLanguageCode": "en", "targetLanguageCode": "de"}
    async with running_bundle(*shipped_models(), **settings) as running:
        assert (await post(running, "/v1/memories", {"name": "ours"})).status == 200
        pair = {"sourceText": DOG[0], "translatedText": DOG[1], **languages}
        answer = await post(running, "/v1/memories:addTranslation", {"memory": "ours", **pair})
        assert answer.status == 200
        body = {"contents": [DOG[0]], "memory": "ours", "memoryThreshold": 0.9, **languages}
        answer = await post(running, "/v1/translate", body)
        [translation] = answer.json["translations"]
        assert translation["translatedText"] == DOG[1]
        assert translation["memoryMatches"][0]["memory"] == "ours"
        listed = await ask(running, "GET", "/v1/memories")
        assert listed.json["memories"] == [{"name": "ours", "pairCount": "1"}]
        exported = await post(running, "/v1/memories:export", {"name": "ours"})
        parts = [base64.b64decode(event["content"]) for _, event in exported.events]
        assert DOG[1] in b"".join(parts).decode()
        assert (await post(running, "/v1/memories:delete", {"name": "ours"})).status == 200
        answer = await post(running, "/v1/memories", {"name": "a b"})
        assert answer.status == 400


async def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_command, "_PORTION_BYTES", 500)  # of which the file has several
    file, exported = tmp_path / "in.tmx", tmp_path / "out.tmx"
    pairs = [TextPair(f"Line {index}.", f"Zeile {index}.", "en", "de") for index in range(20)]
    file.write_bytes(HEAD + tmx_units(pairs) + TAIL)
    bad = tmp_path / "bad.tmx"
    bad.write_text("<tmx><body><tu>")
    store = str(tmp_path / "memories.db")
    async with running_bundle(*shipped_models(), memory_store=store) as running:

        async def output(*arguments: str | Path, code: int = 0) -> str:
            given = ["memory", *map(str, arguments), "--server", running.address]
            result = await asyncio.to_thread(CliRunner().invoke, app, given)
            assert result.exit_code == code, result.output
            return result.output

        languages = ("--from", "en", "--to", "de")
        await output("create", "ours")
        await output("add", "ours", *DOG, *languages)
        assert await output("import", "ours", file) == "20 added, 0 replaced, 0 left out\n"
        assert await output("import", "ours", file, *languages) == (
            "0 added, 20 replaced, 0 left out\n"
        )
        assert await output("list") == "ours\t21\n"
        assert '"num_pairs": 21' in await output("list", "--json")
        await output("export", "ours", "--output", exported)
        assert exported.read_bytes().count(b"<tu ") == 21
        assert "no well-formed XML" in await output("import", "ours", bad, code=1)
        bad.write_bytes(file.read_bytes().replace(b' srclang="en"', b""))
        refused = await output("import", "ours", bad, code=1)
        assert "names no source language: name it in --from" in refused
        assert "NOT_FOUND" in await output("export", "none", code=1)
        await output("delete", "ours")
        assert await output("list") == ""
