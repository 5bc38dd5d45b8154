"""The peers behind the real gRPC server: the same texts give the same translations."""

from __future__ import annotations

import pytest

from bench.peers.batch_engine import BatchPolicy
from bench.peers.conversion import convert
from bench.peers.ctranslate2_backend import CTranslate2Options
from bench.peers.server import ctranslate2_model
from dragoman.options import Search
from model.bundle.bundle import Bundle
from service.models.registry import Registry
from service.models.served_model import ServedModel
from service.observability.metrics import ServerMetrics
from tests.factories import SENTENCES, random_model, tiny_bundle, tiny_config
from tests.integration.servers import any_ports, running, running_bundle

TEXTS = [*SENTENCES, "", f"{SENTENCES[0]}\n{SENTENCES[1]}", *SENTENCES[:4]]
POLICY = BatchPolicy(max_batch=4, window_seconds=0.001)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A tiny model, and beside it the same one for CTranslate2."""
    directory = tmp_path_factory.mktemp("peers")
    model = random_model(tiny_config())
    arrays = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    convert(model.config, arrays, directory / "converted")
    return tiny_bundle(directory / "bundle", model=model)


async def translations(model: ServedModel, metrics: ServerMetrics) -> list[str]:
    async with running(any_ports(), metrics, Registry([model])) as server:
        batch = await server.client.translate(TEXTS, source="en", target="de")
        assert server.metric("dragoman_waiting_sentences", model=model.name) == 0
        assert server.metric("dragoman_step_rows_count", model=model.name) >= 4
        pieces = [piece async for piece in server.client.stream(TEXTS[1])]
        assert "".join(p for p in pieces if isinstance(p, str)) == batch.translations[1].text
    assert all(one.error is None for one in batch.translations)
    return [one.text for one in batch.translations]


async def ours(bundle: Bundle) -> list[str]:
    async with running_bundle(bundle.path) as server:
        batch = await server.client.translate(TEXTS, source="en", target="de")
    return [one.text for one in batch.translations]


async def test_ctranslate2_translates_as_we_do(bundle: Bundle) -> None:
    metrics = ServerMetrics()
    options = CTranslate2Options("float32", inter_threads=2)
    converted = bundle.path.parent / "converted"
    got = await translations(
        ctranslate2_model(bundle, converted, options, POLICY, metrics), metrics
    )
    wanted = await ours(bundle)
    different = sum(a != b for a, b in zip(got, wanted, strict=True))
    assert different == 0, f"{different} of {len(wanted)} differ"


async def test_ctranslate2_searches_a_beam_as_we_do(bundle: Bundle) -> None:
    """With what the benchmark asks of both."""
    metrics = ServerMetrics()
    converted = bundle.path.parent / "converted"
    options = CTranslate2Options("float32", inter_threads=1)
    model = ctranslate2_model(bundle, converted, options, POLICY, metrics)
    search = Search(beam_size=4, early_stopping="first")
    async with running(any_ports(), metrics, Registry([model])) as server:
        theirs = await server.client.translate(TEXTS, search=search)
    async with running_bundle(bundle.path) as server:
        own = await server.client.translate(TEXTS, search=search)
        greedy = await server.client.translate(TEXTS)
    assert [one.text for one in theirs.translations] == [one.text for one in own.translations]
    assert own.translations != greedy.translations, "a beam would not be told from none"
