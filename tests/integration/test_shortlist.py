"""A served shortlist: used by default, and turned off by a request or a setting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dragoman import Search
from tests.factories import random_shortlist, tiny_bundle
from tests.integration.http_client import post
from tests.integration.servers import Running, running_bundle

TEXTS = ["A dog is running.", "The children are swimming in the lake."]
PLAIN: dict[str, Any] = dict(max_new_tokens=12, split_sentences=False)


@pytest.mark.parametrize("in_process", [True, False])
async def test_exact_searches_the_whole_vocabulary(tmp_path: Path, in_process: bool) -> None:
    bundle = tiny_bundle(tmp_path / "bundle", precision="int8", shortlist=random_shortlist())
    settings = dict(in_process=in_process, http_port=0)
    async with running_bundle(bundle.path, no_shortlist=True, **settings) as server:
        whole = await texts_of(server)
        assert await texts_of(server, search=Search(exact=True)) == whole
    async with running_bundle(bundle.path, **settings) as server:
        assert await texts_of(server) != whole
        assert await texts_of(server, search=Search(exact=True)) == whole
        options = {"maxNewTokens": 12, "splitSentences": False, "search": {"exact": True}}
        answer = await post(server, "/v1/translate", {"contents": TEXTS, "options": options})
        assert [found["translatedText"] for found in answer.json["translations"]] == whole


async def texts_of(server: Running, **options: Any) -> list[str]:
    batch = await server.client.translate(TEXTS, **PLAIN, **options)
    return [translation.text for translation in batch.translations]
