"""Multilingual bundles of every family, served by processes of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from dragoman.client import AsyncClient
from tests import multilingual
from tests.integration.servers import running_bundle
from tests.multilingual import Multilingual


@pytest.fixture(scope="module", params=multilingual.FAMILIES)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Multilingual:
    return multilingual.make(tmp_path_factory.mktemp("multilingual"), str(request.param))


@pytest.fixture
async def client(made: Multilingual) -> AsyncIterator[AsyncClient]:
    async with running_bundle(made.bundle.path) as real:
        yield real.client


@pytest.mark.parametrize("beam_size", [1, 4])
async def test_directions_of_one_batch(
    made: Multilingual, client: AsyncClient, beam_size: int
) -> None:
    await multilingual.check_translations(made, client, beam_size)


async def test_scores_and_alignments(made: Multilingual, client: AsyncClient) -> None:
    await multilingual.check_scores(made, client)


async def test_streams(made: Multilingual, client: AsyncClient) -> None:
    await multilingual.check_streams(made, client)


async def test_limits(made: Multilingual, client: AsyncClient) -> None:
    await multilingual.check_limits(made, client)


async def test_languages(made: Multilingual, client: AsyncClient) -> None:
    await multilingual.check_languages(made, client)
