from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.load.plan import LoadPlan
from bench.load.sample import UNFINISHED
from bench.load.statistics import PERCENTILES, Run, distribution, summarise
from bench.load.units import Slo, min_samples
from tests.unit.bench.samples import open_run, sample


@given(st.lists(st.floats(1e-5, 100.0), min_size=1, max_size=2000))
def test_percentiles_are_those_of_the_sorted_values(values: list[float]) -> None:
    got = distribution(values)
    assert got.max == max(values)
    assert got.mean == pytest.approx(np.mean(values))
    ordered = sorted(values)
    for percentile in PERCENTILES:
        value = got.at(percentile)
        if len(values) < min_samples(percentile):
            assert value is None
            continue
        rank = int(np.ceil(len(values) * percentile / 100)) - 1
        # HdrHistogram rounds the rank to the nearest count, and values to three digits.
        near = ordered[max(0, rank - 1) : rank + 2]
        assert value is not None
        assert min(near) * 0.998 - 1e-6 <= value <= max(near) * 1.002 + 1e-6


def test_no_samples_no_figures() -> None:
    got = distribution([])
    assert got.count == 0
    assert got.max is got.mean is None
    assert set(got.percentiles.values()) == {None}


def test_goodput_and_promise() -> None:
    fast, slow = [0.1] * 1980, [0.6] * 20
    slo = Slo(99, 0.5)
    kept = summarise(open_run(fast + slow), slo)
    assert kept.slo_kept is True  # exactly one in a hundred is late
    assert kept.goodput == pytest.approx(1980 / 20)
    assert summarise(open_run([*fast[1:], *slow, 0.6]), slo).slo_kept is False
    assert summarise(open_run(fast[:500]), slo).slo_kept is None  # too few
    assert summarise(open_run(fast), None).goodput is None


def test_an_error_breaks_the_promise() -> None:
    run = open_run([0.1] * 2000)
    failed = sample(2000, 19.0, 0.01, code="RESOURCE_EXHAUSTED", message="full", retry_after=0.5)
    run = dataclasses.replace(run, samples=[*run.samples, failed], num_scheduled=2001)
    summary = summarise(run, Slo(99, 0.5))
    assert summary.slo_kept is False
    assert summary.errors == {"RESOURCE_EXHAUSTED": 1}
    assert summary.error_messages == {"RESOURCE_EXHAUSTED": "full"}
    assert summary.min_retry_after == 0.5
    assert summary.num_ok == 2000
    assert summary.latency.max == pytest.approx(0.1)


def test_warm_up_and_late_answers() -> None:
    plan = LoadPlan("", rate=1, duration=10, warmup=5)
    samples = [
        sample(0, 4.9, 1.0, target_tokens=5),  # of the warm-up, answered in the measured time
        sample(1, 6.0, 1.0, target_tokens=5),
        sample(2, 14.0, 3.0, target_tokens=5),  # answered after it
        sample(3, 14.5, 1.0, code=UNFINISHED),
    ]
    summary = summarise(Run(plan, samples, [], seconds=15, num_scheduled=3))
    assert summary.num_requests == 3
    assert summary.num_ok == 2
    assert summary.num_unfinished == 1
    assert summary.num_errors == 0
    assert summary.latency.max == pytest.approx(3.0)
    assert summary.achieved_rate == pytest.approx(2 / 10)
    assert summary.target_tokens_per_second == pytest.approx(10 / 10)
    assert summary.offered_rate == pytest.approx(0.3)
    assert summary.drain_seconds == pytest.approx(2.0)  # 15 to 17


def test_a_generator_that_could_not_keep_up_makes_the_run_invalid() -> None:
    good = open_run([0.05] * 1000, lags=[0.001] * 500)
    assert summarise(good).valid
    late = [
        dataclasses.replace(s, sent=s.scheduled + (0.03 if s.number % 50 == 0 else 0.0))
        for s in good.samples
    ]
    (problem,) = summarise(dataclasses.replace(good, samples=late)).problems
    assert "requests were sent" in problem
    assert "30 ms" in problem
    (problem,) = summarise(dataclasses.replace(good, lags=[0.001] * 95 + [0.5] * 5)).problems
    assert "wake-ups" in problem


def test_one_cause_is_one_problem() -> None:
    good = open_run([0.05] * 1000)
    late = [dataclasses.replace(s, sent=s.scheduled + 0.03) for s in good.samples]
    (problem,) = summarise(dataclasses.replace(good, samples=late, lags=[0.5] * 100)).problems
    assert "could not keep up" in problem
    plan = LoadPlan("", rate=1, duration=10, warmup=5)
    (problem,) = summarise(Run(plan, [], [0.5] * 9, 3.0, "the server is gone")).problems
    assert problem == "broken off in its warm-up, after 3.0 s: the server is gone"


def test_lateness_that_is_small_beside_the_latencies_is_tolerated() -> None:
    run = open_run([2.0] * 1000, lags=[0.1] * 100)
    assert summarise(run).valid


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"broken_off": "interrupted"}, "interrupted"),
        ({"samples": []}, "no request was answered"),
        ({"num_scheduled": 120}, "never sent"),
    ],
)
def test_incomplete_runs_are_invalid(fields: dict[str, object], words: str) -> None:
    run = dataclasses.replace(open_run([0.05] * 100), **fields)  # type: ignore[arg-type]
    assert any(words in problem for problem in summarise(run).problems)


def test_latency_from_sending_hides_what_waited_to_be_sent() -> None:
    run = open_run([1.0] * 100)
    samples = [dataclasses.replace(s, sent=s.scheduled + 0.9) for s in run.samples]
    summary = summarise(dataclasses.replace(run, samples=samples))
    assert summary.latency.at(50) == pytest.approx(1.0, rel=0.002)
    assert summary.latency_from_sending.at(50) == pytest.approx(0.1, rel=0.002)
