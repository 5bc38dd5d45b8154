"""The engine on an fp32 bundle searches like the PyTorch reference, alone and under load.

Two implementations of the same sums round differently, so a difference is allowed only if the two
answers are nearly equal by the reference itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from model.bundle.bundle import Bundle
from model.bundle.padding import pad_right
from model.evaluation.search import BeamOptions, ReferenceHypothesis, beam_search, greedy_search
from model.network.transformer import Transformer
from service.domain.requests import (
    FinishReason,
    GenerationResult,
    SearchOptions,
)
from service.domain.requests import Hypothesis as Found
from service.runtime.cpu.runner import OnnxRunner
from tests.engine_searches import search_all
from tests.factories import random_model, random_sources, tiny_bundle, tiny_config

NEAR_TIE = 1e-4
ROUNDING = 5e-3  # of one log-probability; this model's weights are drawn to make much of little
NUM_SENTENCES = 300


@dataclass(frozen=True)
class Case:
    model: Transformer
    bundle: Bundle
    sources: list[tuple[int, ...]]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    model = random_model(tiny_config(), seed=5)
    bundle = tiny_bundle(tmp_path_factory.mktemp("parity") / "bundle", model=model)
    sources = random_sources(model.config, NUM_SENTENCES, seed=3, max_length=24)
    return Case(model, bundle, sources)


SEARCHES = [
    SearchOptions(),
    SearchOptions(beam_size=4, num_hypotheses=4),
    SearchOptions(
        beam_size=3, length_penalty_kind="gnmt", length_penalty=0.6, early_stopping="never"
    ),
    SearchOptions(beam_size=8, num_hypotheses=2, early_stopping="first"),
]


async def search(
    bundle: Bundle, sources: Sequence[tuple[int, ...]], options: SearchOptions, max_rows: int
) -> list[GenerationResult]:
    runner = OnnxRunner(bundle, max_rows=max_rows, intra_op_threads=1)
    return await search_all(bundle, runner, sources, options)


def reference(
    model: Transformer, sources: Sequence[tuple[int, ...]], options: SearchOptions
) -> list[list[ReferenceHypothesis]]:
    beam = BeamOptions(
        options.beam_size,
        options.num_hypotheses,
        options.length_penalty,
        options.length_penalty_kind,
        options.early_stopping,
    )
    found: list[list[ReferenceHypothesis]] = []
    for start in range(0, len(sources), 100):
        some = sources[start : start + 100]
        source_ids = torch.from_numpy(pad_right(some, model.config.pad_id))
        if options.beam_size == 1:
            found += [[hypothesis] for hypothesis in greedy_search(model, source_ids)]
        else:
            found += beam_search(model, source_ids, options=beam)
    return found


@torch.inference_mode()
def score_of(
    model: Transformer, source: tuple[int, ...], found: Found, options: SearchOptions
) -> float:
    """The reference's score of the engine's tokens."""
    tokens = list(found.token_ids)
    if found.ended:
        tokens.append(model.config.eos_id)
    target = torch.tensor([[model.config.bos_id, *tokens[:-1]]])
    logits = model(torch.tensor([source]), target)[0].double()
    total = logits.log_softmax(-1)[range(len(tokens)), tokens].sum().item()
    return options.score(total, len(tokens))


def check(case: Case, results: list[GenerationResult], options: SearchOptions) -> None:
    expected = reference(case.model, case.sources[: len(results)], options)
    num_equal = 0
    for source, result, hypotheses in zip(case.sources, results, expected, strict=False):
        if [tuple(h.token_ids) for h in result.hypotheses] != [h.token_ids for h in hypotheses]:
            # Not the same answers: then each is as good as its counterpart, up to rounding.
            for found, wanted in zip(result.hypotheses, hypotheses, strict=True):
                gap = wanted.score - score_of(case.model, source, found, options)
                assert abs(gap) < NEAR_TIE
            continue
        num_equal += 1
        for found, wanted in zip(result.hypotheses, hypotheses, strict=True):
            assert found.ended == wanted.finished
            assert found.score == pytest.approx(wanted.score, abs=ROUNDING)
            assert found.token_log_probabilities == pytest.approx(wanted.log_probs, abs=ROUNDING)
    assert num_equal >= len(results) - 1


@pytest.mark.parametrize("options", SEARCHES, ids=lambda o: f"beam-{o.beam_size}")
async def test_at_load_64(case: Case, options: SearchOptions) -> None:
    results = await search(case.bundle, case.sources, options, max_rows=64)
    check(case, results, options)
    # Otherwise the model would be too dull for this test to mean much.
    assert {result.finish_reason for result in results} == {FinishReason.EOS, FinishReason.LENGTH}
    assert len({tuple(result.token_ids) for result in results}) > NUM_SENTENCES / 2


async def test_wider_than_the_bundle_s_own_candidates(tmp_path: Path) -> None:
    model = random_model(tiny_config(), seed=5)
    bundle = tiny_bundle(tmp_path / "bundle", model=model, top_k=1)
    sources = random_sources(model.config, 20, seed=4)
    options = SearchOptions(beam_size=16)
    results = await search(bundle, sources, options, max_rows=64)
    check(Case(model, bundle, sources), results, options)


@pytest.mark.parametrize("max_rows", [8, 64])
async def test_with_a_recurrent_decoder(tmp_path: Path, max_rows: int) -> None:
    """States begin at zero in each row, and move with hypotheses and requests."""
    fields = {"decoder": "ssru", "embed_start": False, "positions": "marian"}
    model = random_model(tiny_config(**fields), seed=5)
    bundle = tiny_bundle(tmp_path / "bundle", model=model)
    sources = random_sources(model.config, 50, seed=3, max_length=24)
    for options in SEARCHES[:3]:
        results = await search(bundle, sources, options, max_rows)
        check(Case(model, bundle, sources), results, options)
        assert len({tuple(result.token_ids) for result in results}) > len(sources) / 2
