from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.load.capacity import (
    CapacitySearch,
    CapacityTest,
    Stage,
    _Watch,
    capacity_of,
    read_trials,
)
from bench.load.capacity_report import chart, rows, sentence, write
from bench.load.errors import PlanError, ServerError
from bench.load.plan import LoadPlan
from bench.load.results import Results, ResultsWriter
from bench.load.session import RunProgress, Session
from bench.load.statistics import Run
from bench.load.units import Slo
from tests.unit.bench.samples import open_run, sample

SLO = Slo(99, 0.5)


def run_search(search: CapacitySearch, limit: float, most: int = 60) -> list[tuple[float, Stage]]:
    """Search on a server that carries exactly `limit`; what was tried."""
    tried: list[tuple[float, Stage]] = []
    while (wanted := search.next()) is not None:
        assert len(tried) < most, "the search does not end"
        tried.append(wanted)
        search.observe(*wanted, kept=wanted[0] <= limit)
    return tried


@given(st.floats(0.05, 1e5), st.floats(0.05, 1e5))
def test_the_search_finds_the_limit_from_anywhere(limit: float, start: float) -> None:
    search = CapacitySearch(start, resolution=0.05)
    tried = run_search(search, limit)
    assert search.capacity is not None
    assert search.capacity <= limit <= search.capacity * 1.0501
    # Long trials are dear: a handful, whatever the distance.
    assert sum(stage is Stage.CONFIRM for _, stage in tried) <= 6


@given(st.floats(0.05, 1e5), st.floats(0.3, 3.0))
def test_a_bracketed_search_confirms_what_is_carried_and_nothing_else(
    limit: float, off: float
) -> None:
    search = CapacitySearch(limit * off, 0.25, probe_step=1.5, trusts_probes=True)
    tried = run_search(search, limit)
    long = [rate for rate, stage in tried if stage is Stage.CONFIRM]
    assert search.capacity is not None
    assert long == [search.capacity]
    assert search.capacity <= limit <= search.capacity * 1.2501


@given(st.integers(0, 1000))
def test_a_bracketed_search_never_calls_capacity_what_a_long_trial_broke(seed: int) -> None:
    chance = random.Random(seed)
    search = CapacitySearch(40.0, 0.25, probe_step=1.5, trusts_probes=True)
    limit, num_trials = 50.0, 0
    while (wanted := search.next()) is not None:
        rate, stage = wanted
        unsure = stage is Stage.PROBE and limit / 1.5 < rate < limit * 1.5
        search.observe(rate, stage, chance.random() < 0.5 if unsure else rate <= limit)
        num_trials += 1
        assert num_trials < 60
    assert search.capacity is not None
    assert search.capacity <= limit


def test_a_server_that_carries_nothing_has_no_capacity() -> None:
    search = CapacitySearch(4.0)
    run_search(search, limit=0.0)
    assert search.capacity is None


@given(st.integers(0, 1000))
def test_probes_that_err_do_not_decide(seed: int) -> None:
    """Probes judge by chance within 30 % of the limit; long trials are right."""
    chance = random.Random(seed)
    search = CapacitySearch(4.0)
    limit, num_trials = 50.0, 0
    while (wanted := search.next()) is not None:
        rate, stage = wanted
        unsure = stage is Stage.PROBE and limit / 1.3 < rate < limit * 1.3
        search.observe(rate, stage, chance.random() < 0.5 if unsure else rate <= limit)
        num_trials += 1
        assert num_trials < 60
    assert search.capacity is not None
    assert search.capacity <= limit <= search.capacity * 1.0501


class PretendSession(Session):
    """A server that carries 20 requests a second; beyond that everything is late."""

    def run(self, plan: LoadPlan, output: Path | None = None, observer: object = None) -> Results:
        assert plan.rate is not None
        count = round(plan.rate * plan.duration)
        latency = 0.1 if plan.rate <= 20 else 3.0
        run = open_run([latency] * count, plan.rate)
        run = Run(plan, run.samples, [], plan.warmup + plan.duration, num_scheduled=None)
        return Results(run, self.slo)


def test_capacity_counts_only_long_trials_with_enough_samples(tmp_path: Path) -> None:
    plan = LoadPlan("", rate=4.0, warmup=0.0)
    capacity = CapacityTest(PretendSession(["x"], SLO), plan).run()
    assert capacity.rate is not None
    assert 20 / 1.0501 <= capacity.rate <= 20
    confirmed = [t for t in capacity.trials if t.stage is Stage.CONFIRM]
    assert all(trial.summary.seconds >= 60 for trial in confirmed)
    assert all(trial.summary.num_ok >= 1000 for trial in confirmed)
    assert {trial.kept for trial in confirmed} == {True, False}
    assert "requests/s" in sentence(capacity)
    assert len(rows(capacity)) == len(capacity.trials)
    assert "<svg" in chart(capacity).render()
    write(tmp_path / "out", capacity, {})
    assert "Latency against offered rate" in (tmp_path / "out" / "report.html").read_text()


def test_a_trial_that_cannot_be_made_ends_the_search_with_what_there_is() -> None:
    class Dying(PretendSession):
        def run(
            self, plan: LoadPlan, output: Path | None = None, observer: object = None
        ) -> Results:
            if plan.rate and plan.rate > 8:
                raise ServerError("no server answers")
            return super().run(plan, output)

    capacity = CapacityTest(Dying(["x"], SLO), LoadPlan("", rate=4.0, warmup=0.0)).run()
    assert capacity.rate is None
    assert "no server answers" in capacity.ended_early
    assert [trial.rate for trial in capacity.trials] == [4.0, 8.0]


def test_an_overloaded_generator_ends_the_search() -> None:
    class Lagging(PretendSession):
        def run(
            self, plan: LoadPlan, output: Path | None = None, observer: object = None
        ) -> Results:
            run = super().run(plan, output).run
            lags = [1.0] * 100 if plan.rate and plan.rate > 5 else []
            return Results(Run(plan, run.samples, lags, run.seconds), self.slo)

    capacity = CapacityTest(Lagging(["x"], SLO), LoadPlan("", rate=4.0, warmup=0.0)).run()
    assert "could not keep up" in capacity.ended_early
    assert capacity.rate is None
    assert [trial.rate for trial in capacity.trials] == [4.0, 8.0, 8.0, 8.0]


def test_a_trial_that_was_disturbed_is_made_again() -> None:
    class Disturbed(PretendSession):
        def run(
            self, plan: LoadPlan, output: Path | None = None, observer: object = None
        ) -> Results:
            run = super().run(plan, output).run
            lags = [1.0] * 100 if plan.seed in (2, 3) else []
            return Results(Run(plan, run.samples, lags, run.seconds), self.slo)

    capacity = CapacityTest(Disturbed(["x"], SLO), LoadPlan("", rate=4.0, warmup=0.0)).run()
    assert capacity.ended_early == ""
    assert [trial.rate for trial in capacity.trials][:4] == [4.0, 8.0, 8.0, 8.0]
    assert capacity_of(capacity.trials) == capacity.rate


def test_a_search_goes_on_with_the_trials_that_are_there(tmp_path: Path) -> None:
    first: list[float] = []
    made: list[float] = []

    class Writing(PretendSession):
        def run(
            self, plan: LoadPlan, output: Path | None = None, observer: object = None
        ) -> Results:
            if len(made) == 5:
                raise KeyboardInterrupt
            made.append(plan.rate or 0.0)
            results = super().run(plan, output)
            assert output is not None
            writer = ResultsWriter(output, plan, self.slo, {})
            writer.finish(results, "")
            return results

    plan = LoadPlan("server:1", rate=4.0, warmup=0.0)
    test = CapacityTest(Writing(["x"], SLO), plan, resumes=True)
    with pytest.raises(KeyboardInterrupt):
        test.run(tmp_path)
    first += made
    made.clear()
    capacity = test.run(tmp_path)
    whole = CapacityTest(PretendSession(["x"], SLO), plan).run()
    assert [trial.rate for trial in capacity.trials] == [trial.rate for trial in whole.trials]
    assert [*first, *made] == [trial.rate for trial in whole.trials]
    assert capacity_of(read_trials(tmp_path)) == capacity.rate == whole.rate


def test_a_trial_that_would_take_too_long_ends_the_search() -> None:
    class Slow(PretendSession):
        def run(
            self, plan: LoadPlan, output: Path | None = None, observer: object = None
        ) -> Results:
            latency = 0.1 if plan.rate and plan.rate <= 0.5 else 3.0
            run = open_run([latency] * 20, 1.0)
            return Results(Run(plan, run.samples, [], 1000.0), self.slo)

    test = CapacityTest(
        Slow(["x"], SLO), LoadPlan("", rate=4.0, warmup=0.0), max_trial_seconds=600.0
    )
    capacity = test.run()
    assert capacity.rate is None
    assert "longer than 600 s" in capacity.ended_early


def test_a_lost_trial_is_ended_early() -> None:
    plan = LoadPlan("", rate=10.0, duration=60.0, warmup=1.0)
    watch = _Watch(plan, SLO, lambda progress: False)

    def seen(*latencies: float, **reply: str) -> RunProgress:
        samples = [sample(n, 2.0 + n, x, **reply) for n, x in enumerate(latencies)]
        return RunProgress(plan, 10.0, samples, 0, [])

    assert not watch(seen(*[0.1] * 100))
    assert not watch(seen(*[0.1] * 100, *[0.9] * 6))  # of some 600, 6 may be late
    assert watch(seen(*[0.1] * 100, *[0.9] * 9))
    assert _Watch(plan, SLO, lambda progress: False)(seen(0.1, code="UNAVAILABLE"))
    warm = RunProgress(plan, 0.9, [sample(n, 0.5, 3.0) for n in range(100)], 0, [])
    assert not _Watch(plan, SLO, lambda progress: False)(warm)


@pytest.mark.parametrize(
    ("session", "plan", "words"),
    [
        (Session(["x"]), LoadPlan("", rate=1.0), "--slo"),
        (Session(["x"], SLO), LoadPlan("", concurrency=1), "Poisson"),
        (Session(["x"], SLO), LoadPlan("", rate=1.0, arrivals="constant"), "Poisson"),
    ],
)
def test_searches_that_make_no_sense(session: Session, plan: LoadPlan, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        CapacityTest(session, plan)


def test_the_start_is_on_a_geometric_scale() -> None:
    tried = run_search(CapacitySearch(1.0), limit=10.0)
    assert [rate for rate, stage in tried[:5]] == [1, 2, 4, 8, 16]
    assert tried[5][0] == pytest.approx(math.sqrt(8 * 16))
