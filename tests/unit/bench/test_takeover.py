from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from bench.benchmark import Interrupted, Measurement, run_measurements
from bench.load.errors import LoadError
from bench.suite import run as suite_run
from bench.suite.artifacts import Artifacts, Models
from bench.suite.points import FULL, Load, SuitePlan
from bench.suite.run import measurements
from bench.suite.suite import Suite
from bench.suite.sweep import Round, Settings, Sweep, sweep_settings
from bench.suite.takeover import Source, best_of_each_split, sources

ALL = sweep_settings((8, 16, 32, 64), (0.0, 2.0, 5.0), ("", "AVX512"), num_cores=2)
PLAN = dataclasses.replace(FULL, sweep=Sweep(ALL, (Round(1.0, 0.1, 2), Round(2.0, 0.1, 1))))


def scored(*pairs: tuple[float, Settings]) -> list[dict[str, Any]]:
    return [{"settings": dict(settings), "score": score} for score, settings in pairs]


def test_a_sweep_leaves_its_winner_with_every_instruction_set_and_the_best_of_each_split() -> None:
    winner, sibling, loser = ALL[3], ALL[2], ALL[5]
    others = [one for one in ALL if one["inter_threads"] != winner["inter_threads"]]
    first = scored((9.0, loser), (2.0, others[4]), (1.0, others[0]))
    last = scored((1.0, sibling), (3.0, winner))
    assert best_of_each_split([first, last], ALL) == [winner, sibling, others[4]]


def test_only_the_first_model_is_swept_from_the_start() -> None:
    for load in (Load(concurrency=1), Load(concurrency=4), Load(concurrency=64), None):
        assert sources(PLAN, load, 1, is_first=True) == []
        assert sources(PLAN, load, 4, is_first=True) != []
        assert sources(PLAN, load, 1, is_first=False) != []
    beams = Load(concurrency=64, beam_size=4)
    assert sources(PLAN, beams, 4, is_first=True) == [Source(Load(concurrency=64), of_first=True)]


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("beam_size", [1, 4])
def test_open_loops_take_over_from_the_loads_beside_them(is_first: bool, beam_size: int) -> None:
    near, single = Source(None), Source(Load(concurrency=1, beam_size=beam_size))

    def of(share: float) -> list[Source]:
        load = Load(share=share, beam_size=beam_size)
        return sources(PLAN, load, beam_size, is_first)

    assert of(0.25) == [near, single]
    assert of(0.8) == of(1.0) == [near]
    assert of(1.5)[0] == near


class Recorded(Suite):
    """A suite in which settings of many workers win, and nothing is run."""

    def _rounds(
        self, name: str, load: Load, rate: float, finalists: Any, num_rounds: int
    ) -> tuple[list[list[dict[str, Any]]], list[Settings]]:
        tried = list(finalists or self.plan.sweep.candidates(load.concurrency))
        points = [(one["inter_threads"] + one["max_batch"] / 100, one) for one in tried]
        best = max(points, key=lambda pair: pair[0])[1]
        return [scored(*points)], [best]


def suite(output: Path, precision: str, plan: SuitePlan = PLAN) -> Recorded:
    made = Artifacts("base", precision, output, output, output)
    return Recorded(plan, output, made, first="base-int8")


def sweep_file(output: Path, name: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((output / "sweep" / name / "sweep.json").read_text())
    return facts


def test_candidates_come_from_the_first_model_and_the_record_says_so(tmp_path: Path) -> None:
    load = Load(concurrency=64)
    suite(tmp_path, "int8").best_peer(load, 0.0)
    first = sweep_file(tmp_path, "base-int8/closed-64")
    assert len(first["rounds"][0]) == 24
    assert "candidates_from" not in first
    suite(tmp_path, "fp32").best_peer(load, 0.0)
    second = sweep_file(tmp_path, "base-fp32/closed-64")
    assert len(second["rounds"][0]) == 3
    assert second["candidates_from"] == ["base-int8/closed-64"]


def test_the_instruction_set_is_tried_again_only_with_another_precision(tmp_path: Path) -> None:
    suite(tmp_path, "int8").best_peer(Load(concurrency=64), 0.0)
    suite(tmp_path, "int8").best_peer(Load(concurrency=64, beam_size=4), 0.0)
    tried = sweep_file(tmp_path, "base-int8/closed-64-beam4")["rounds"][0]
    assert len(tried) == 2
    assert len({run["settings"]["inter_threads"] for run in tried}) == 2


def test_loads_last_long_enough_for_what_is_measured() -> None:
    many = Load(concurrency=64)
    assert PLAN.seconds_of(many, answer=0.1) == PLAN.seconds
    assert PLAN.seconds_of(many, answer=5.0) == 15.0
    assert PLAN.seconds_of(many, answer=100.0) == 20.0
    slow, fast = (PLAN.seconds_of(Load(share=0.25), rate) for rate in (2.0, 1000.0))
    assert slow * 0.25 * 2.0 * PLAN.repetitions >= 20  # requests: a median takes as many
    assert fast == PLAN.open_seconds


def test_a_winner_is_taken_as_it_is_where_it_is_the_only_candidate(tmp_path: Path) -> None:
    one = suite(tmp_path, "int8")
    near = one.best_near_capacity(10.0, 1)
    assert one.best_peer(Load(share=0.8), 10.0) == near
    record = sweep_file(tmp_path, "base-int8/open-80pct")
    assert record == {
        "rounds": [],
        "chosen": near.settings,
        "candidates_from": ["base-int8/capacity"],
    }


def test_where_there_is_no_sweep_to_take_over_all_is_tried(tmp_path: Path) -> None:
    suite(tmp_path, "fp32").best_peer(Load(concurrency=64), 0.0)
    record = sweep_file(tmp_path, "base-fp32/closed-64")
    assert len(record["rounds"][0]) == 24
    assert "candidates_from" not in record


class Broken(Suite):
    """One load can't be measured, and there is no capacity of beams."""

    def check_agreement(self, beam_size: int) -> None:
        pass

    def measure(self, load: Load, rate: float, *args: Any) -> None:
        if load.concurrency == 4:
            raise LoadError("it did not start")
        (self.output / f"{self.name}-{load.name}").touch()


def test_what_breaks_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def rate(suite: Suite, load: Load) -> float:
        if load.share is not None and load.beam_size > 1:
            raise LoadError("no answer")
        return 1.0

    monkeypatch.setattr(suite_run, "Suite", Broken)
    monkeypatch.setattr(suite_run, "reference_rate", rate)
    made = Artifacts("base", "int8", tmp_path, tmp_path, tmp_path)
    monkeypatch.setattr(Models, "prepare", lambda *_: made)
    plan = dataclasses.replace(PLAN, precisions=("int8",))
    problems = run_measurements(measurements(plan, tmp_path, Models(checkpoint=None)))
    done = {path.name for path in tmp_path.iterdir()}
    lost = {load for load in plan.loads if load.concurrency == 4}
    lost |= {load for load in plan.loads if load.share is not None and load.beam_size > 1}
    assert done == {f"base-int8-{load.name}" for load in plan.loads if load not in lost}
    for load in lost:
        assert any(load.name in problem for problem in problems)
    assert any("no answer" in problem for problem in problems)


def test_ctrl_c_is_no_problem_to_pass_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> None:
        raise Interrupted

    monkeypatch.setattr(Suite, "check_agreement", interrupt)
    made = Artifacts("base", "int8", tmp_path, tmp_path, tmp_path)
    monkeypatch.setattr(Models, "prepare", lambda *_: made)
    with pytest.raises(Interrupted):
        run_measurements(measurements(PLAN, tmp_path, Models(checkpoint=None)))


class Clock:
    """Time that passes while something is measured."""

    def __init__(self, seconds: float, seconds_once: float) -> None:
        self.now = 0.0
        self.hurried: list[int] = []
        self.number = 0
        self._seconds = {False: seconds, True: seconds_once}

    def measure(self, once: bool) -> None:
        self.hurried += [self.number] if once else []
        self.number += 1
        self.now += self._seconds[once]

    def measurements(self, count: int) -> list[Measurement]:
        return [Measurement(f"{n}", 100.0, self.measure, spare=40.0) for n in range(count)]


def test_when_time_is_short_the_last_loads_are_measured_once() -> None:
    clock = Clock(100.0, 60.0)
    run_measurements(clock.measurements(10), 900.0, lambda: clock.now)
    assert clock.hurried == [7, 8, 9]
    assert clock.now <= 900.0


def test_slower_than_thought_is_noticed() -> None:
    clock = Clock(120.0, 72.0)
    run_measurements(clock.measurements(20), 2200.0, lambda: clock.now)
    assert clock.now <= 2300.0
