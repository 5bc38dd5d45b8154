"""The largest accepted requests do not block the event loop, which `running` checks."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

import dragoman
from model.bundle.tokenizer import Tokenizer
from service.memory.pairs import TextPair
from service.memory.tmx import HEAD, TAIL, tmx_units
from tests.integration.http_client import ask
from tests.integration.servers import fake_runner, running_fake, running_held

PAGE = "<p>A <b>dog</b> has 4 <i>legs</i> &amp; <a href='x'>runs</a>.</p>" * 30
REQUESTS: dict[str, dict[str, Any]] = {
    "sentences with numbers": {"texts": ["A 5. " * 4000] * 3},
    "sentences": {"texts": ["A dog. " * 4000] * 3},
    "texts with numbers": {"texts": ["A dog has 4 legs. " * 10] * 1000},
    "documents": {"texts": [PAGE] * 200, "mime_type": "text/html"},
    "long documents": {"texts": [PAGE * 15] * 3, "mime_type": "text/html"},
    "detected documents": {"texts": [PAGE] * 200, "mime_type": "text/html", "source": "auto"},
}


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_large_request(tokenizer: Tokenizer, name: str) -> None:
    async with running_held(tokenizer) as (made, _):
        arguments = {"source": "en", "target": "de", **REQUESTS[name]}
        texts = arguments.pop("texts")
        calls = (made.client.translate(texts, timeout=3.0, **arguments) for _ in range(3))
        for answer in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(answer, dragoman.TranslationError)
            assert answer.code.name in ("DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED")


async def test_a_large_stream(tokenizer: Tokenizer) -> None:
    async with running_held(tokenizer) as (made, _):
        with contextlib.suppress(dragoman.TranslationError):
            async for _ in made.client.stream("A 5. " * 20_000, timeout=3.0):
                pass


async def test_a_large_body(tokenizer: Tokenizer) -> None:
    emoji = "\U0001f600" * 99_000
    async with running_fake(fake_runner(tokenizer), tokenizer, http_port=0) as made:
        escaped = json.dumps({"contents": [emoji] * 10}).encode()
        assert (await ask(made, "POST", "/v1/translate", escaped)).status == 200
        values = json.dumps({"contents": [""] * 25_000}).encode()
        assert (await ask(made, "POST", "/v1/translate", values)).status == 400
        front = {"q": emoji, "source": "en", "target": "de"}
        assert (await ask(made, "POST", "/translate", front)).status == 200


async def test_large_requests_with_a_memory(tokenizer: Tokenizer, tmp_path: Path) -> None:
    pairs = [
        TextPair(f"A dog has {i} legs or {i}.", "Bein. " * 30, "en", "de") for i in range(1500)
    ]
    file = HEAD + tmx_units(pairs) + TAIL
    store = str(tmp_path / "memories.db")
    async with running_fake(fake_runner(tokenizer), tokenizer, memory_store=store) as made:
        client = made.client
        await client.create_memory("m")
        assert (await client.import_memory("m", file)).num_added == 1500
        await client.add_translation("m", "A dog.", "Hund. " * 30, source="en", target="de")
        texts = ["A dog. " * 4000], ["A dog has 4 legs. " * 20] * 100, ["A dog. " * 4000, PAGE]
        for given, mime_type in zip(texts, ("", "", "text/html"), strict=True):
            with contextlib.suppress(dragoman.TranslationError):
                answer = await client.translate(
                    given, source="en", target="de", memory="m", mime_type=mime_type, timeout=3.0
                )
                assert answer.translations[0].text
        assert len(b"".join([part async for part in client.export_memory("m")])) > len(file) / 2
        await client.delete_memory("m")
