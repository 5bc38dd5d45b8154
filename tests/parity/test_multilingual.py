"""A multilingual bundle translates each direction like `transformers`, in mixed batches.

All families are in `tests/long/import`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests import multilingual
from tests.integration.servers import Running, running_bundle
from tests.multilingual import Multilingual


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Multilingual:
    return multilingual.make(tmp_path_factory.mktemp("multilingual"), "mbart")


@pytest.fixture
async def server(made: Multilingual) -> AsyncIterator[Running]:
    async with running_bundle(made.bundle.path, in_process=True) as real:
        yield real


async def test_directions_of_one_batch(made: Multilingual, server: Running) -> None:
    await multilingual.check_translations(made, server.client, beam_size=1)


async def test_scores_and_alignments(made: Multilingual, server: Running) -> None:
    await multilingual.check_scores(made, server.client)
    await multilingual.check_attention(made, server.client)


async def test_streams_limits_and_lists(made: Multilingual, server: Running) -> None:
    await multilingual.check_streams(made, server.client)
    await multilingual.check_limits(made, server.client)
    await multilingual.check_languages(made, server)
