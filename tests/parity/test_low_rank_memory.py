"""Low-rank cross-attention in the runners: k rows in the cache, however long a source is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from model.bundle.sessions import SessionSettings
from service.domain.plan import ScoreItem
from service.runtime.cpu.kv_cache import cache_shape
from service.runtime.cpu.runner import OnnxRunner
from service.runtime.scoring import OnnxScorer
from tests.factories import random_model, random_sources, tiny_bundle, tiny_config
from tests.parity.device_runners import device_runner
from tests.runner_loops import greedy_steps, same_row, same_steps

FIELDS: dict[str, Any] = {
    "encoder_attention": "linformer",
    "cross_attention": "linformer",
    "attention_rank": 10,
    "max_source_positions": 200,
    "max_target_positions": 30,
}
CPU = SessionSettings(intra_op_threads=1)


def test_a_row_has_the_same_bits_alone_and_among_many(tmp_path: Path) -> None:
    for precision in ("fp32", "int8"):
        bundle = tiny_bundle(tmp_path / precision, precision=precision, **FIELDS)
        runner = OnnxRunner(bundle, max_rows=16, intra_op_threads=2)
        sources = random_sources(bundle.config, 16, max_length=200)
        together = greedy_steps(runner, sources, 6)
        for row in (0, 5, 15):
            alone = greedy_steps(runner, [sources[row]], 6)
            assert same_row(together, row, alone, 0)


def test_the_cache_holds_k_rows_of_a_source(tmp_path: Path) -> None:
    bundle = tiny_bundle(tmp_path / "bundle", **FIELDS)
    runner = OnnxRunner(bundle, max_rows=4)
    assert (runner.limits.max_source_positions, runner.limits.max_target_positions) == (200, 30)
    assert runner.cache.cross_attention[0].shape[2] == 10
    assert runner.cache.self_attention[0].shape[2] == 30
    assert cache_shape(bundle, runner.limits).max_source == 10


@pytest.mark.parametrize("cross_attention", ["full", "linformer"])
def test_the_runner_for_gpus_gives_the_same_bits(tmp_path: Path, cross_attention: str) -> None:
    fields = {**FIELDS, "cross_attention": cross_attention}
    bundle = tiny_bundle(tmp_path / "bundle", resident=True, **fields)
    device = device_runner(bundle, max_rows=8)
    sources = random_sources(bundle.config, 8, max_length=200)
    expected = greedy_steps(OnnxRunner(bundle, max_rows=8, intra_op_threads=1), sources, 8)
    assert same_steps(greedy_steps(device, sources, 8), expected)
    device.close()


@torch.inference_mode()
def test_scores_are_those_of_pytorch(tmp_path: Path) -> None:
    model = random_model(tiny_config(**FIELDS))
    bundle = tiny_bundle(tmp_path / "bundle", model=model)
    scorer = OnnxScorer(bundle, CPU, None)
    scorer.prepare()
    sources = random_sources(bundle.config, 5, max_length=200)
    targets = random_sources(bundle.config, 5, seed=1, max_length=30)
    items = [ScoreItem(*pair) for pair in zip(sources, targets, strict=True)]
    for item, score in zip(items, scorer.score(items), strict=True):
        fed = torch.tensor([[model.config.bos_id, *item.target_ids[:-1]]])
        everything = model(torch.tensor([item.source_ids]), fed)[0].double().log_softmax(-1)
        expected = everything[range(len(item.target_ids)), list(item.target_ids)]
        assert np.abs(score.log_probabilities - expected.numpy()).max() < 2e-3
        assert score.attention.shape == (len(item.target_ids), 10)
