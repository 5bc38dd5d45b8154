"""The largest accepted requests do not block the event loop, which `running` checks."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest

import dragoman
from model.bundle.tokenizer import Tokenizer
from tests.integration.http_client import ask
from tests.integration.servers import fake_runner, running_fake

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
    runner = fake_runner(tokenizer)
    async with running_fake(runner, tokenizer) as made:
        runner.hold()
        arguments = {"source": "en", "target": "de", **REQUESTS[name]}
        texts = arguments.pop("texts")
        calls = (made.client.translate(texts, timeout=3.0, **arguments) for _ in range(3))
        for answer in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(answer, dragoman.TranslationError)
            assert answer.code.name in ("DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED")


async def test_a_large_stream(tokenizer: Tokenizer) -> None:
    runner = fake_runner(tokenizer)
    async with running_fake(runner, tokenizer) as made:
        runner.hold()
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
