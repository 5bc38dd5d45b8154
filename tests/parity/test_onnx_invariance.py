"""A row's bits don't depend on the batch, its neighbours, its position, or padding."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.domain.plan import EncodeItem, RowCopy, StepOutput, StepPlan
from service.runtime.cpu.runner import OnnxRunner
from tests.factories import random_sources, tiny_bundle, with_limits
from tests.runner_loops import (
    NO_ROWS,
    first_plan,
    greedy_steps,
    rows_equal,
    same,
    same_row,
    same_steps,
)

# Widths that are no multiple of any vector's length, among others.
SHAPES: list[dict[str, Any]] = [
    {},
    {"norm": "pre", "activation": "gelu", "ffn_dim": 50, "positions": "sinusoidal"},
    {"d_model": 24, "num_heads": 3, "ffn_dim": 33, "activation": "silu", "vocab_size": 333},
    {"d_model": 128, "num_heads": 2, "ffn_dim": 260, "vocab_size": 2048},
    {"d_model": 24, "num_heads": 3, "decoder": "ssru", "embed_start": False},
]


@pytest.fixture(
    params=[
        *((precision, shape) for precision in ("fp32", "int8") for shape in SHAPES),
        *(("int8 caches", shape) for shape in SHAPES[:4]),
    ],
    ids=lambda p: "-".join([p[0], *map(str, p[1].values())]),
    scope="module",
)
def runner(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> OnnxRunner:
    precision, shape = request.param
    directory = tmp_path_factory.mktemp("invariance") / "bundle"
    bundle = tiny_bundle(directory, precision=precision, **shape)
    return OnnxRunner(bundle, max_rows=64, intra_op_threads=2)


def sources_for(runner: OnnxRunner, count: int, seed: int) -> list[tuple[int, ...]]:
    """Sources of all lengths, from only end-of-sentence to the limit."""
    generator = np.random.default_rng(seed)
    longest = runner.limits.max_source_positions
    lengths = [0, longest - 1, *generator.integers(0, longest, count - 2)]
    return [(*generator.integers(4, runner.limits.vocab_size, n).tolist(), 3) for n in lengths]


def test_alone_or_among_many(runner: OnnxRunner) -> None:
    sources = sources_for(runner, 64, seed=0)
    together = greedy_steps(runner, sources, 6)
    for row in range(0, 64, 3):
        alone = greedy_steps(runner, [sources[row]], 6)
        assert same_row(together, row, alone, 0)


def test_in_batches_of_any_size_and_order(runner: OnnxRunner) -> None:
    sources = sources_for(runner, 40, seed=1)
    reference = greedy_steps(runner, sources, 4)
    generator = np.random.default_rng(2)
    for size in (2, 3, 5, 8, 15, 16, 17, 31, 33):
        picked = generator.permutation(40)[:size]
        outputs = greedy_steps(runner, [sources[i] for i in picked], 4)
        for row, original in enumerate(picked):
            assert same_row(outputs, row, reference, original)


def test_encoded_together_or_singly(runner: OnnxRunner) -> None:
    """The first step's output shows the whole encoder output."""
    sources = sources_for(runner, 24, seed=3)
    plan = first_plan(sources)
    together = runner.execute(plan)
    for item in plan.encodes:
        runner.execute(StepPlan((), [item], *NO_ROWS))
    assert same(together, runner.execute(replace(plan, encodes=())))


def test_joining_late_leaving_early_and_moving(runner: OnnxRunner) -> None:
    """Requests join at any step; the last row moves into a free row, as in the engine."""
    sources = sources_for(runner, 30, seed=4)
    expected = [greedy_steps(runner, [source], 9) for source in sources]
    generator = np.random.default_rng(5)
    waiting = list(range(30))
    rows: list[tuple[int, list[StepOutput], list[int]]] = []  # source, outputs, their rows
    finished = 0
    while waiting or rows:
        copies, encodes = [], []
        for row in reversed(range(len(rows))):
            if len(rows[row][1]) == 9 or generator.random() < 0.05:
                source, outputs, places = rows[row]
                for step, (output, place) in enumerate(zip(outputs, places, strict=True)):
                    assert rows_equal(output, place, expected[source][step], 0)
                finished += 1
                last = rows.pop()
                if row < len(rows):
                    copies.append(RowCopy(len(rows), row, 0, len(last[1])))
                    rows[row] = last
        for copy in copies:  # one at a time: a moved row may move again
            runner.execute(StepPlan([copy], (), *NO_ROWS))
        while waiting and len(rows) < 12 and generator.random() < 0.6:
            source = waiting.pop()
            encodes.append(EncodeItem((len(rows),), sources[source]))
            rows.append((source, [], []))
        token_ids = [o[-1].top_ids[p[-1], 0] if o else 2 for _, o, p in rows]
        positions = [len(outputs) for _, outputs, _ in rows]
        output = runner.execute(
            StepPlan((), encodes, np.array(token_ids, np.int64), np.array(positions, np.int32))
        )
        for row, (_, outputs, places) in enumerate(rows):
            outputs.append(output)
            places.append(row)
    assert finished == 30


@pytest.mark.parametrize("precision", ["fp32", "int8", "int8 caches"])
def test_whatever_the_number_of_threads(
    tmp_path_factory: pytest.TempPathFactory, precision: str
) -> None:
    bundle = tiny_bundle(
        tmp_path_factory.mktemp("threads") / "bundle", precision=precision, d_model=128, ffn_dim=260
    )
    sources = random_sources(bundle.config, 20)
    outputs = [
        greedy_steps(OnnxRunner(bundle, intra_op_threads=threads), sources, 5)
        for threads in (1, 2, 3)
    ]
    assert same_steps(outputs[0], outputs[1])
    assert same_steps(outputs[0], outputs[2])


@pytest.mark.parametrize("precision", ["int8", "int8 caches"])
def test_buffer_length_does_not_matter(tmp_path: Path, precision: str) -> None:
    bundle = tiny_bundle(tmp_path / "bundle", precision=precision)
    sources = random_sources(bundle.config, 7, max_length=16)
    short = with_limits(bundle, max_source_positions=16, max_target_positions=8)
    small = OnnxRunner(short, max_rows=7, intra_op_threads=1)
    large = OnnxRunner(bundle, max_rows=64, intra_op_threads=1)
    assert same_steps(greedy_steps(small, sources, 8), greedy_steps(large, sources, 8))
