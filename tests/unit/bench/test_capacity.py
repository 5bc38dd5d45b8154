from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.load.capacity import (
    Capacity,
    CapacitySearch,
    CapacityTest,
    _Watch,
    capacity_of,
    read_trials,
)
from bench.load.capacity_report import chart, rows, sentence, write
from bench.load.errors import LoadError, PlanError, ServerError
from bench.load.plan import LoadPlan
from bench.load.results import Results, ResultsWriter
from bench.load.session import RunProgress, Session
from bench.load.statistics import Run
from bench.load.units import Slo
from tests.unit.bench.samples import open_run, sample

SLO = Slo(99, 0.5)


def run_search(search: CapacitySearch, limit: float) -> list[float]:
    """Search on a server that carries exactly `limit`; the rates tried."""
    tried: list[float] = []
    while (rate := search.next()) is not None:
        assert len(tried) < 60, "the search does not end"
        tried.append(rate)
        search.observe(rate, kept=rate <= limit)
    return tried


@given(st.floats(0.05, 1e5), st.floats(0.05, 1e5), st.sampled_from([0.05, 0.1, 0.25]))
def test_the_search_finds_the_limit_from_anywhere(
    limit: float, start: float, resolution: float
) -> None:
    search = CapacitySearch(start, resolution)
    tried = run_search(search, limit)
    assert search.capacity is not None
    assert search.capacity <= limit <= search.capacity * (1 + resolution) * 1.000001
    assert len({*tried}) == len(tried)  # no rate twice


@given(st.floats(0.05, 1e5), st.floats(0.5, 2.0))
def test_a_good_estimate_needs_few_trials(limit: float, off: float) -> None:
    assert len(run_search(CapacitySearch(limit * off), limit)) <= 7
    for usual in (0.9, 0.99, 1.01, 1.2):  # as estimates by a closed loop are
        assert len(run_search(CapacitySearch(limit * usual), limit)) <= 3


def test_a_server_that_carries_nothing_has_no_capacity() -> None:
    search = CapacitySearch(4.0)
    run_search(search, limit=0.0)
    assert search.capacity is None


@given(st.integers(0, 1000))
def test_trials_that_contradict_each_other_end_the_search(seed: int) -> None:
    """Within 30 % of the limit, chance decides."""
    chance = random.Random(seed)
    search = CapacitySearch(chance.uniform(10.0, 100.0))
    limit, tried = 50.0, []
    while (rate := search.next()) is not None:
        unsure = limit / 1.3 < rate < limit * 1.3
        search.observe(rate, chance.random() < 0.5 if unsure else rate <= limit)
        tried.append(rate)
        assert len(tried) < 60
    assert search.capacity is not None
    assert limit / 1.45 <= search.capacity <= limit * 1.3


Change = Callable[[LoadPlan, Results], Results]


@dataclasses.dataclass(frozen=True)
class PretendSession(Session):
    """A server that carries 20 requests a second; beyond that everything is late.

    Attributes:
        change: what becomes of the results of a plan.
    """

    texts: Sequence[str] = ("x",)
    slo: Slo | None = SLO
    change: Change = lambda plan, results: results

    def run(self, plan: LoadPlan, output: Path | None = None, observer: object = None) -> Results:
        late = plan.rate is not None and plan.rate > 20
        rate = plan.rate or 25.0  # closed loops keep it busier
        run = open_run([3.0 if late else 0.1] * round(rate * plan.duration), rate)
        run = Run(plan, run.samples, [], plan.warmup + plan.duration, num_scheduled=None)
        results = self.change(plan, Results(run, self.slo))
        if output is not None:
            ResultsWriter(output, plan, self.slo, {}).finish(results, "")
        return results


START = LoadPlan("", rate=4.0, warmup=0.0)


def searched(change: Change, plan: LoadPlan = START, **limits: Any) -> Capacity:
    return CapacityTest(PretendSession(change=change), plan, **limits).run()


def rates(capacity: Capacity) -> list[float]:
    return [round(trial.rate, 2) for trial in capacity.trials]


def test_capacity_counts_only_trials_with_enough_samples(tmp_path: Path) -> None:
    capacity = CapacityTest(PretendSession(), START).run()
    assert capacity.rate is not None
    assert 20 / 1.1001 <= capacity.rate <= 20
    assert all(trial.summary.seconds >= 60 for trial in capacity.trials)
    assert all(trial.summary.num_ok >= 1000 for trial in capacity.trials)
    assert {trial.kept for trial in capacity.trials} == {True, False}
    assert "Capacity at p99=500 ms: 1" in sentence(capacity)
    assert len(rows(capacity)) == len(capacity.trials)
    assert "<svg" in chart(capacity).render()
    write(tmp_path / "out", capacity, {})
    assert "Latency against offered rate" in (tmp_path / "out" / "report.html").read_text()


def test_a_closed_loop_without_answers_says_why() -> None:
    def refuse(plan: LoadPlan, results: Results) -> Results:
        samples = [sample(n, n, 0.1, code="UNAUTHENTICATED") for n in range(3)]
        return Results(Run(plan, samples, [], plan.duration), SLO)

    with pytest.raises(LoadError, match="3 UNAUTHENTICATED"):
        searched(refuse, LoadPlan("", concurrency=32))


def test_errors_break_a_promise_and_trials_have_an_end() -> None:
    def fail(plan: LoadPlan, results: Results) -> Results:
        failed = sample(0, 1.0, 0.1, code="RESOURCE_EXHAUSTED")
        samples = [*results.run.samples[1:], failed]
        run = dataclasses.replace(results.run, samples=samples, broken_off="stopped")
        return Results(run, SLO) if plan.rate and plan.rate > 5 else results

    capacity = searched(fail, max_trials=3)
    assert rates(capacity) == [4.0, 4.84, 7.09]
    assert "RESOURCE_EXHAUSTED" in capacity.trials[-1].why
    assert capacity.ended_early == "no end after 3 trials"


def test_a_trial_that_cannot_be_made_ends_the_search_with_what_there_is() -> None:
    def die(plan: LoadPlan, results: Results) -> Results:
        if plan.rate and plan.rate > 8:
            raise ServerError("no server answers")
        return results

    capacity = searched(die)
    assert rates(capacity) == [4.0, 4.84, 7.09]
    assert capacity.rate == pytest.approx(7.086, abs=0.001)
    assert "no server answers" in capacity.ended_early
    assert "at least 7.086 requests/s" in sentence(capacity)


@pytest.mark.parametrize("when", ["in a trial", "between trials", "in the estimate"])
def test_ctrl_c_ends_the_search_with_the_best_rate_so_far(when: str) -> None:
    def interrupt(plan: LoadPlan, results: Results) -> Results:
        is_now = plan.rate is None if when == "in the estimate" else (plan.rate or 0) > 8
        if not is_now:
            return results
        if when == "between trials":
            raise KeyboardInterrupt
        return Results(dataclasses.replace(results.run, broken_off="interrupted"), SLO)

    capacity = searched(
        interrupt, LoadPlan("", concurrency=1) if when == "in the estimate" else START
    )
    assert capacity.ended_early.endswith("interrupted")
    if when == "in the estimate":
        assert "No rate was found" in sentence(capacity)
        return
    assert "at least 7.086 requests/s" in sentence(capacity)
    if when == "in a trial":
        assert "unknown: interrupted" in rows(capacity)[-1][-1]  # not that it broke its promise


def lagging(results: Results) -> Results:
    """Results whose generator could not keep up."""
    run = results.run
    return Results(Run(run.plan, run.samples, [1.0] * 100, run.seconds), SLO)


def test_an_overloaded_generator_ends_the_search() -> None:
    capacity = searched(
        lambda plan, results: lagging(results) if plan.rate and plan.rate > 5 else results
    )
    assert "could not keep up" in capacity.ended_early
    assert rates(capacity) == [4.0, 4.84, 7.09, 7.09, 7.09]
    assert capacity.rate == pytest.approx(4.84)


def test_a_trial_that_was_disturbed_is_made_again() -> None:
    capacity = searched(lambda plan, results: lagging(results) if plan.seed in (2, 3) else results)
    assert capacity.ended_early == ""
    assert rates(capacity)[:4] == [4.0, 4.84, 4.84, 4.84]
    assert capacity_of(capacity.trials) == capacity.rate


def test_a_broken_promise_does_not_count_if_others_disturbed_the_trial() -> None:
    disturbed = iter(["another program ran", ""])
    test = CapacityTest(
        PretendSession(),
        LoadPlan("", rate=30.0, warmup=0.0),
        disturbance=lambda results: next(disturbed, ""),
    )
    capacity = test.run()
    assert rates(capacity)[:2] == [30.0, 30.0]
    assert "unknown: another program ran" in rows(capacity)[0][-1]


def test_a_search_goes_on_with_the_trials_that_are_there(tmp_path: Path) -> None:
    made: list[float] = []

    def record(plan: LoadPlan, results: Results) -> Results:
        if len(made) == 3:
            raise KeyboardInterrupt
        made.append(round(plan.rate or 0.0, 2))
        return results

    plan = LoadPlan("server:1", rate=4.0, warmup=0.0)
    test = CapacityTest(PretendSession(change=record), plan, resumes=True)
    assert test.run(tmp_path).ended_early == "interrupted"
    first = made.copy()
    made.clear()
    again = test.run(tmp_path)
    made_by_both = [*first, *made]
    whole = CapacityTest(PretendSession(), plan).run()
    assert rates(again) == made_by_both == rates(whole)[: len(made_by_both)]
    assert len(made_by_both) == 6
    assert capacity_of(read_trials(tmp_path)) == again.rate


def test_a_trial_that_would_take_too_long_ends_the_search() -> None:
    def slow(plan: LoadPlan, results: Results) -> Results:
        latency = 0.1 if plan.rate and plan.rate <= 0.5 else 3.0
        run = open_run([latency] * 20, 1.0)
        return Results(Run(plan, run.samples, [], 1000.0), SLO)

    capacity = searched(slow, max_trial_seconds=600.0)
    assert capacity.rate is None
    assert "longer than 600 s" in capacity.ended_early


def test_a_lost_trial_is_ended_early() -> None:
    plan = LoadPlan("", rate=10.0, duration=60.0, warmup=1.0)
    watch = _Watch(plan, SLO, lambda progress: False)

    def seen(*latencies: float, **reply: str) -> RunProgress:
        samples = [sample(n, 2.0 + n, x, **reply) for n, x in enumerate(latencies)]
        return RunProgress(Run(plan, samples, [], 10.0), 10.0, [])

    assert not watch(seen(*[0.1] * 100))
    assert not watch(seen(*[0.1] * 100, *[0.9] * 6))  # of some 600, 6 may be late
    assert watch(seen(*[0.1] * 100, *[0.9] * 9))
    assert _Watch(plan, SLO, lambda progress: False)(seen(0.1, code="UNAVAILABLE"))
    warm = Run(plan, [sample(n, 0.5, 3.0) for n in range(100)], [], 0.9)
    assert not _Watch(plan, SLO, lambda progress: False)(RunProgress(warm, 0.9, []))


@pytest.mark.parametrize(
    ("session", "plan", "words"),
    [
        (Session(["x"]), LoadPlan("", rate=1.0), "--slo"),
        (Session(["x"], SLO), LoadPlan("", rate=1.0, arrivals="constant"), "Poisson"),
    ],
)
def test_searches_that_make_no_sense(session: Session, plan: LoadPlan, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        CapacityTest(session, plan)
