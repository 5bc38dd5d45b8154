"""Padding that a model never chooses keeps its probability: graphs, engine and reference agree."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from export.parity import check_parity
from model.bundle.bundle import Bundle
from model.bundle.config import ConfigError, ModelConfig
from model.evaluation.search import BeamOptions, beam_search, greedy_search
from model.network.transformer import Transformer
from service.domain.requests import GenerationResult, SearchOptions
from service.runtime.cpu.runner import OnnxRunner
from tests.engine_searches import search_all
from tests.factories import SENTENCES, random_model, random_sources, tiny_bundle, tiny_config

PAD = 0
ROUNDING = 5e-3  # of one log-probability; these weights are drawn to make much of little


@pytest.fixture(scope="module")
def model() -> Transformer:
    """A model for which padding would often be the best token."""
    made = random_model(tiny_config(output_bias=True, forbid_pad=True), seed=3)
    with torch.no_grad():
        made.output_projection.bias[PAD] += 3.0
    return made


@pytest.fixture(scope="module", params=["fp32", "int8"])
def bundle(
    request: pytest.FixtureRequest, model: Transformer, tmp_path_factory: pytest.TempPathFactory
) -> Bundle:
    path = tmp_path_factory.mktemp("forbidden") / "bundle"
    return tiny_bundle(path, model=model, precision=request.param)


async def search(
    bundle: Bundle, sources: list[tuple[int, ...]], beam_size: int, max_rows: int
) -> list[GenerationResult]:
    runner = OnnxRunner(bundle, max_rows=max_rows, intra_op_threads=1)
    return await search_all(bundle, runner, sources, SearchOptions(beam_size=beam_size))


@pytest.mark.parametrize("beam_size", [1, 4])
async def test_searches(model: Transformer, bundle: Bundle, beam_size: int) -> None:
    sources = random_sources(model.config, 20, seed=1)
    results = await search(bundle, sources, beam_size, 32)
    assert all(PAD not in result.token_ids for result in results)
    # The same bits alone.
    alone = await search(bundle, sources[:5], beam_size, beam_size)
    assert [result.hypotheses for result in alone] == [r.hypotheses for r in results[:5]]
    if bundle.precision != "fp32":
        return
    for source, result in zip(sources, results, strict=True):
        ids = torch.tensor([source])
        if beam_size == 1:
            [wanted] = greedy_search(model, ids)
        else:
            [[wanted, *_]] = beam_search(model, ids, options=BeamOptions(beam_size))
        found = result.hypotheses[0]
        assert tuple(found.token_ids) == wanted.token_ids
        assert found.token_log_probabilities == pytest.approx(wanted.log_probs, abs=ROUNDING)
        assert min(np.exp(wanted.log_probs)) < 0.5  # padding has its share


def test_the_bundle_is_proven(model: Transformer, bundle: Bundle) -> None:
    """The check also covers the scoring graph's result for a translation."""
    if bundle.precision == "fp32":
        assert check_parity(bundle, model, SENTENCES, threads=1).largest_difference < 1e-3


def test_a_resident_graph_has_it_too(model: Transformer, tmp_path: Path) -> None:
    bundle = tiny_bundle(tmp_path / "bundle", model=model, resident=True)
    assert check_parity(bundle, model, SENTENCES, threads=1).largest_difference < 1e-3


def test_the_configuration() -> None:
    fields = tiny_config().to_dict()
    assert "forbid_pad" not in fields  # older programs read it
    with pytest.raises(ConfigError, match="forbid_pad needs output_bias"):
        ModelConfig.from_dict({**fields, "forbid_pad": True})
