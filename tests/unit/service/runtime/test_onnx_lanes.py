"""Which lanes a bundle gets on a CPU, and what they hold."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from model.bundle.config import preset
from model.bundle.sessions import SessionSettings
from service.domain.plan import ModelRunner, RunnerLimits, StepOutput, StepPlan
from service.errors import StartupError
from service.runtime.cpu.lane_count import best_lanes, steps_on_one_thread
from service.runtime.cpu.lanes import OnnxLanes, cpu_runner
from service.runtime.cpu.runner import OnnxRunner
from tests.factories import random_sources, tiny_bundle
from tests.runner_loops import greedy_steps, same_steps


@pytest.mark.parametrize(
    ("max_rows", "threads", "small", "large"),
    [(64, 2, 1, 2), (64, 1, 0, 0), (63, 2, 1, 0), (31, 2, 0, 0), (128, 4, 4, 4), (96, 4, 0, 0)],
)
def test_two_threads_have_one_lane_for_a_small_decoder(
    max_rows: int, threads: int, small: int, large: int
) -> None:
    assert best_lanes(preset("small", 8000), max_rows, threads) == small
    included = preset("small", 16_000, d_model=384, num_heads=6, ffn_dim=1536)
    assert best_lanes(included, max_rows, threads) == small
    assert best_lanes(preset("base", 32_000), max_rows, threads) == large
    assert best_lanes(preset("big", 32_000), max_rows, threads) == large


@pytest.mark.parametrize(
    ("max_rows", "threads", "lanes"),
    [
        (64, 2, [64]),
        (31, 2, []),
        (64, 1, []),
        (95, 3, []),
        (96, 3, [32, 32, 32]),
        (64, 16, []),
        (128, 4, [32, 32, 32, 32]),
        (256, 3, [86, 85, 85]),
    ],
)
def test_lanes_share_rows_and_no_lane_is_too_small_for_a_beam(
    tmp_path: Path, max_rows: int, threads: int, lanes: list[int]
) -> None:
    bundle = tiny_bundle(tmp_path / "bundle")
    runner = cpu_runner(bundle, max_rows, SessionSettings(intra_op_threads=threads))
    assert runner.limits.max_rows == max_rows
    if not lanes:
        assert isinstance(runner, OnnxRunner)
        return
    assert isinstance(runner, OnnxLanes)
    for ways in ([lane.alone for lane in runner.lanes], [lane.beside for lane in runner.lanes]):
        assert [way.limits.max_rows for way in ways] == lanes
    assert runner.cache_bytes == OnnxRunner(bundle, max_rows=max_rows).cache_bytes
    runner.close()


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_both_ways_of_every_lane_bring_the_same_bits(tmp_path: Path, precision: str) -> None:
    bundle = tiny_bundle(tmp_path / "bundle", precision=precision)
    sources = random_sources(bundle.config, 5)
    sessions = SessionSettings(intra_op_threads=3)
    lanes = OnnxLanes(bundle, max_rows=24, num_lanes=3, sessions=sessions)
    expected = greedy_steps(OnnxRunner(bundle, max_rows=8), sources, 4)
    for lane in lanes.lanes:
        for way in (lane.alone, lane.beside):
            assert same_steps(greedy_steps(way, sources, 4), expected)


def test_the_weights_are_in_memory_twice_however_many_lanes_there_are(tmp_path: Path) -> None:
    sessions = SessionSettings(intra_op_threads=4)
    bundle = tiny_bundle(tmp_path / "bundle")
    lanes = OnnxLanes(bundle, max_rows=128, num_lanes=4, sessions=sessions)
    assert len(lanes.lanes) == 4
    assert _num_sessions(lanes) == 2


def test_a_tiny_decoder_steps_on_one_thread_and_has_its_weights_once(tmp_path: Path) -> None:
    lanes = cpu_runner(tiny_bundle(tmp_path / "bundle"), 64, SessionSettings(intra_op_threads=2))
    assert isinstance(lanes, OnnxLanes)
    assert _num_sessions(lanes) == 1


@pytest.mark.parametrize(
    ("name", "vocab_size", "whole", "listed"),
    [
        ("student-tiny", 8000, True, True),
        ("student-tiny", 32_000, False, True),
        ("student-base-memory", 32_000, False, False),
        ("student-base", 32_000, False, False),
    ],
)
def test_a_shortlist_makes_a_student_tiny(
    name: str, vocab_size: int, whole: bool, listed: bool
) -> None:
    config = preset(name, vocab_size)
    assert steps_on_one_thread(config, has_shortlist=False) == whole
    assert steps_on_one_thread(config, has_shortlist=True) == listed


def _num_sessions(lanes: OnnxLanes) -> int:
    runners = [way for lane in lanes.lanes for way in (lane.alone, lane.beside)]
    return len({id(way.encoder_session) for way in runners if isinstance(way, OnnxRunner)})


def test_too_many_rows_are_named_before_anything_is_opened(tmp_path: Path) -> None:
    rows = 2**48
    with pytest.raises(StartupError, match=rf"{rows} rows.*--max-rows"):
        cpu_runner(tiny_bundle(tmp_path / "bundle"), rows, SessionSettings(intra_op_threads=2))


def test_a_lane_goes_on_the_other_way_where_it_was(tmp_path: Path) -> None:
    """The two ways are of one cache."""
    bundle = tiny_bundle(tmp_path / "bundle")
    sources = random_sources(bundle.config, 5)
    lanes = OnnxLanes(
        bundle, max_rows=16, num_lanes=2, sessions=SessionSettings(intra_op_threads=2)
    )
    lane = lanes.lanes[1]
    turns = _Turns(lane.alone, lane.beside)
    expected = greedy_steps(OnnxRunner(bundle, max_rows=8), sources, 6)
    assert same_steps(greedy_steps(turns, sources, 6), expected)


class _Turns:
    """Two runners in turn."""

    def __init__(self, *runners: ModelRunner) -> None:
        self._runners = itertools.cycle(runners)

    @property
    def limits(self) -> RunnerLimits:
        raise NotImplementedError

    def execute(self, plan: StepPlan) -> StepOutput:
        return next(self._runners).execute(plan)

    def follow_up(self) -> StepOutput:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError
