"""A row chooses among the tokens of its own shortlist, whoever its neighbours are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench.submission import answers_of, submit
from model.bundle.bundle import Bundle
from model.bundle.sessions import SessionSettings
from model.bundle.shortlist import load_shortlist
from model.evaluation.search import BeamOptions, beam_search, greedy_search
from service.domain.plan import EncodeItem, RowCopy, StepOutput, StepPlan
from service.domain.requests import GenerationRequest, SearchOptions
from service.domain.sampling import Sampling
from service.engine.engine import Engine, EngineConfig
from service.runtime.cpu.lanes import OnnxLanes
from service.runtime.cpu.runner import OnnxRunner
from tests.engine_searches import search_all
from tests.factories import (
    random_model,
    random_shortlist,
    random_sources,
    tiny_bundle,
    tiny_config,
)
from tests.runner_loops import (
    NO_ROWS,
    first_plan,
    follow_ups,
    greedy_steps,
    rows_equal,
    same_row,
    same_steps,
    steps_from,
)

SHAPES: list[dict[str, Any]] = [
    {},
    {"d_model": 128, "num_heads": 2, "ffn_dim": 260, "norm": "pre", "vocab_size": 2048},
    {"decoder": "ssru", "embed_start": False, "output_bias": True},
]
NUM_STEPS = 6


@pytest.fixture(
    params=[(precision, shape) for precision in ("fp32", "int8") for shape in SHAPES],
    ids=lambda p: "-".join([p[0], *map(str, p[1].values())]),
    scope="module",
)
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    precision, shape = request.param
    shortlist = random_shortlist(shape.get("vocab_size", 320))
    directory = tmp_path_factory.mktemp("shortlist") / "bundle"
    return tiny_bundle(directory, precision=precision, shortlist=shortlist, **shape)


def listed_by(bundle: Bundle, source: Sequence[int]) -> list[int]:
    shortlist = load_shortlist(bundle)
    assert shortlist is not None
    return [int(i) for i in shortlist.target_ids(source)]


def exact_plan(sources: Sequence[tuple[int, ...]], exact: Sequence[bool]) -> StepPlan:
    """The first step of sources, some of which choose from the whole vocabulary."""
    plan = first_plan(sources)
    encodes = [replace(item, exact=each) for item, each in zip(plan.encodes, exact, strict=True)]
    return replace(plan, encodes=encodes)


def test_alone_or_among_many(bundle: Bundle) -> None:
    """Bit for bit, and every choice is listed."""
    runner = OnnxRunner(bundle, max_rows=40, intra_op_threads=2)
    sources = random_sources(bundle.config, 40, seed=1, max_length=24)
    together = greedy_steps(runner, sources, NUM_STEPS)
    for row in range(0, 40, 3):
        alone = greedy_steps(
            OnnxRunner(bundle, max_rows=1, intra_op_threads=1), [sources[row]], NUM_STEPS
        )
        again = greedy_steps(runner, [sources[row]], NUM_STEPS)  # in the buffer of those before
        listed = listed_by(bundle, sources[row])
        assert same_row(together, row, alone, 0)
        assert same_row(together, row, again, 0)
        for one in alone:
            assert set(one.top_ids[0].tolist()) <= set(listed)


def test_beside_rows_that_choose_from_the_whole_vocabulary(bundle: Bundle) -> None:
    runner = OnnxRunner(bundle, max_rows=12, intra_op_threads=1)
    sources = random_sources(bundle.config, 12, seed=2, max_length=24)
    exact = [row % 3 == 1 for row in range(12)]
    mixed = steps_from(runner, exact_plan(sources, exact), NUM_STEPS)
    listed = greedy_steps(runner, sources, NUM_STEPS)
    plain = SessionSettings(intra_op_threads=1, uses_shortlist=False)
    whole = greedy_steps(OnnxRunner(bundle, max_rows=12, sessions=plain), sources, NUM_STEPS)
    for row in range(12):
        assert same_row(mixed, row, whole if exact[row] else listed, row)


@pytest.mark.parametrize("every", [1, 2, 9], ids=["exact", "mixed", "listed"])
def test_a_step_follows_with_the_same_bits(bundle: Bundle, every: int) -> None:
    runner = OnnxRunner(bundle, max_rows=4, intra_op_threads=1)
    sources = random_sources(bundle.config, 4, seed=3, max_length=24)
    exact = [row % every == every - 1 for row in range(4)]
    wanted = steps_from(runner, exact_plan(sources, exact), NUM_STEPS)
    assert same_steps(follow_ups(runner, exact_plan(sources, exact), NUM_STEPS), wanted)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_other_graphs_are_those_of_a_bundle_without(tmp_path: Path, precision: str) -> None:
    with_list = tiny_bundle(tmp_path / "a", precision=precision, shortlist=random_shortlist())
    without = tiny_bundle(tmp_path / "b", precision=precision)
    files = {file.name: file.read_bytes() for file in with_list.path.glob("*.onnx")}
    for file in without.path.glob("*.onnx"):
        assert file.read_bytes() == files.pop(file.name)
    assert files.keys() == {"shortlist_step.onnx", "list_columns.onnx"}


def test_joining_leaving_and_moving(bundle: Bundle) -> None:
    """Columns are added, replaced, and moved to a smaller buffer, and rows change places."""
    runner = OnnxRunner(bundle, max_rows=16, intra_op_threads=1)
    sources = random_sources(bundle.config, 60, seed=3, max_length=24)
    single = OnnxRunner(bundle, max_rows=1, intra_op_threads=1)
    expected = [greedy_steps(single, [source], NUM_STEPS) for source in sources]
    draw = np.random.default_rng(4)
    waiting = list(range(60))
    rows: list[tuple[int, list[StepOutput], list[int]]] = []
    while waiting or rows:
        for row in reversed(range(len(rows))):
            number, outputs, places = rows[row]
            if len(outputs) < NUM_STEPS:
                continue
            for found, place, wanted in zip(outputs, places, expected[number], strict=True):
                assert rows_equal(found, place, wanted, 0)
            last = rows.pop()
            if row < len(rows):
                rows[row] = last
                copy = RowCopy(len(rows), row, 0, len(last[1]))
                runner.execute(StepPlan([copy], (), *NO_ROWS))
        encodes = []
        while waiting and len(rows) < 16 and draw.random() < 0.7:
            encodes.append(EncodeItem((len(rows),), sources[waiting[-1]]))
            rows.append((waiting.pop(), [], []))
        ids = np.array([o[-1].top_ids[p[-1], 0] if o else 2 for _, o, p in rows], np.int64)
        positions = np.array([len(outputs) for _, outputs, _ in rows], np.int32)
        output = runner.execute(StepPlan((), encodes, ids, positions))
        for row, (_, outputs, places) in enumerate(rows):
            outputs.append(output)
            places.append(row)


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("decoder", ["self_attention", "ssru"])
async def test_the_engine_searches_as_the_reference(
    tmp_path: Path, beam_size: int, decoder: str
) -> None:
    model = random_model(tiny_config(decoder=decoder), seed=5)
    bundle = tiny_bundle(tmp_path / "bundle", model=model, shortlist=random_shortlist())
    sources = random_sources(bundle.config, 60, seed=3, max_length=24)
    runner = OnnxRunner(bundle, max_rows=24, intra_op_threads=1)
    found = await search_all(
        bundle, runner, sources, SearchOptions(beam_size=beam_size, max_new_tokens=20)
    )
    differing = 0
    for source, result in zip(sources, found, strict=True):
        ids, lists = torch.tensor([source]), [listed_by(bundle, source)]
        mask = torch.ones_like(ids, dtype=torch.bool)
        if beam_size == 1:
            (wanted,) = greedy_search(model, ids, mask, 20, lists=lists)
        else:
            options = BeamOptions(beam_size)
            ((wanted,),) = beam_search(model, ids, mask, options, 20, lists=lists)
        assert {*result.token_ids} <= {*lists[0]}
        if list(wanted.token_ids) == result.token_ids:
            assert abs(wanted.score - result.hypotheses[0].score) < 5e-3
        else:
            differing += 1
    assert differing <= 1  # near ties


async def test_added_tokens_are_in_the_list(bundle: Bundle) -> None:
    """With those of the best translation, that is found, and only the row itself has them."""
    sources = random_sources(bundle.config, 12, seed=8, max_length=24)
    runner = OnnxRunner(bundle, max_rows=12, intra_op_threads=1)
    wanted = await search_all(bundle, runner, sources, SearchOptions(max_new_tokens=9, exact=True))
    usual = await search_all(
        bundle, OnnxRunner(bundle, max_rows=12), sources, SearchOptions(max_new_tokens=9)
    )
    requests = [
        GenerationRequest(
            source,
            SearchOptions(max_new_tokens=9, listed_ids=tuple(one.token_ids) if i % 2 else ()),
        )
        for i, (source, one) in enumerate(zip(sources, wanted, strict=True))
    ]
    engine = Engine.of_runner(OnnxRunner(bundle, max_rows=12), EngineConfig())
    found = await answers_of(engine, requests)
    assert [one.token_ids for one in usual] != [one.token_ids for one in wanted]
    for i, result in enumerate(found):
        assert result.token_ids == (wanted if i % 2 else usual)[i].token_ids


async def test_lanes_and_options_change_nothing(bundle: Bundle) -> None:
    """Requests with a beam, a prefix, and without a list share the lanes."""
    sources = random_sources(bundle.config, 24, seed=6, max_length=24)
    sessions = SessionSettings(intra_op_threads=2)
    kinds = [
        SearchOptions(max_new_tokens=9),
        SearchOptions(max_new_tokens=9, beam_size=3),
        SearchOptions(max_new_tokens=9, exact=True),
        SearchOptions(max_new_tokens=9, prefix_ids=(300, 301)),
        SearchOptions(max_new_tokens=9, sampling=Sampling(seed=1)),
    ]
    requests = [GenerationRequest(source, kinds[i % 5]) for i, source in enumerate(sources)]
    engine = Engine.of_runner(
        OnnxLanes(bundle, max_rows=20, num_lanes=2, sessions=sessions), EngineConfig()
    )
    together = await answers_of(engine, requests)
    single = Engine.of_runner(OnnxRunner(bundle, max_rows=3, intra_op_threads=1), EngineConfig())
    await single.start()
    for request, found in zip(requests, together, strict=True):
        alone = await submit(single, request).result()
        assert alone.hypotheses == found.hypotheses
        if request.options.prefix_ids:
            assert found.token_ids[:2] == [300, 301]
    await single.stop()
