"""Multilingual bundles of every family, served by processes of their own."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from dragoman.client import TranslationError
from model.bundle.directions import Directions
from tests import multilingual
from tests.integration.servers import Running, running_bundle
from tests.multilingual import Multilingual


@pytest.fixture(scope="module", params=multilingual.FAMILIES)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Multilingual:
    return multilingual.make(tmp_path_factory.mktemp("multilingual"), str(request.param))


@pytest.fixture
async def server(made: Multilingual) -> AsyncIterator[Running]:
    async with running_bundle(made.bundle.path) as real:
        yield real


@pytest.mark.parametrize("beam_size", [1, 4])
async def test_directions_of_one_batch(made: Multilingual, server: Running, beam_size: int) -> None:
    await multilingual.check_translations(made, server.client, beam_size)


async def test_scores_and_alignments(made: Multilingual, server: Running) -> None:
    await multilingual.check_scores(made, server.client)


async def test_attention(made: Multilingual, server: Running) -> None:
    await multilingual.check_attention(made, server.client)


async def test_streams(made: Multilingual, server: Running) -> None:
    await multilingual.check_streams(made, server.client)


async def test_limits(made: Multilingual, server: Running) -> None:
    await multilingual.check_limits(made, server.client)


async def test_languages(made: Multilingual, server: Running) -> None:
    await multilingual.check_languages(made, server)


async def test_all_directions_of_nllb(tmp_path: Path) -> None:
    made = multilingual.make(tmp_path, "nllb", None)
    directions = made.directions
    assert directions.count == 202 * 201
    assert (made.bundle.path / "bundle.json").stat().st_size < 30_000
    draw = random.Random(0)
    pairs = draw.sample([("en", target) for target in directions.targets if target != "en"], 5)
    pairs += [(source, "zh-Hant") for source in ("de", "eu", "uz", "zu", "pt")]
    async with running_bundle(made.bundle.path) as server:
        await multilingual.check_translations(made, server.client, 1, pairs)
        with pytest.raises(TranslationError, match="any of zh-Hans, zh-Hant") as caught:
            await server.client.translate(["A dog."], source="en", target="zh")
        assert caught.value.field == "target_language_code"
        [info] = await server.client.list_models()
        assert not info.language_pairs
        assert len(info.source_languages) == len(info.target_languages) == 202


def test_an_older_server_has_one_of_the_directions(made: Multilingual) -> None:
    """It does not know the field: the others say what they say of a bundle with one direction."""
    manifest = {**made.bundle.manifest}
    del manifest["directions"]
    old = replace(made.bundle, manifest=manifest)
    source, target = made.directions.first
    assert old.directions == Directions.one(source, target)
    here, there = old.tokenizer(), made.direction(source, target)
    assert here.encode("A dog.") == there.encode("A dog.")
    assert here.target.start_ids == there.target.start_ids
