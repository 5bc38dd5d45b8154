"""Multilingual bundles of every family, served by processes of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

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


async def test_streams(made: Multilingual, server: Running) -> None:
    await multilingual.check_streams(made, server.client)


async def test_limits(made: Multilingual, server: Running) -> None:
    await multilingual.check_limits(made, server.client)


async def test_languages(made: Multilingual, server: Running) -> None:
    await multilingual.check_languages(made, server)
