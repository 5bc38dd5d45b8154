from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from bench.load.errors import LoadError
from bench.load.results import Results, ResultsWriter
from bench.load.scrape import Snapshot
from tests.load.fake_server import FakeServer
from tests.robustness.soak import report
from tests.robustness.soak.ageing import PERCENTILES, Pair, compare, growth
from tests.robustness.soak.canceller import Canceller
from tests.robustness.soak.drift import MIN_POINTS, interval, quarters, trend
from tests.robustness.soak.minutes import TimeSlice, time_slices
from tests.robustness.soak.run import BEAMS, STREAMS, UNARY, SoakPlan, collect
from tests.unit.bench.samples import open_run

MINUTES = np.arange(60) * 60.0


@pytest.mark.parametrize("correlation", [0.0, 0.6])
def test_intervals_hold_the_true_slope_as_often_as_they_say(correlation: float) -> None:
    """Nineteen times of twenty; neighbours that are alike must not narrow them."""
    draw = np.random.default_rng(1)
    tries, slope = 400, 0.001
    hits = 0
    for _ in range(tries):
        noise = np.zeros(60)
        for place, shock in enumerate(draw.standard_normal(60)):
            noise[place] = correlation * noise[max(0, place - 1)] + shock
        line = trend(MINUTES.tolist(), (50 + slope * MINUTES + noise).tolist())
        assert line is not None
        hits += line.low <= slope <= line.high
    assert hits / tries > 0.88


def test_intervals_of_a_mean_hold_it_as_often_as_they_say() -> None:
    draw = np.random.default_rng(1)
    tries = 400
    hits = 0
    for _ in range(tries):
        found = interval(draw.normal(3.0, 1.0, 8).tolist())
        assert found is not None
        hits += found.low <= 3.0 <= found.high
    assert 0.92 < hits / tries < 0.98
    assert interval([1.0]) is None


def test_quarters_see_a_step_whatever_the_spikes() -> None:
    step = [1.0] * 20 + [1.5] * 20
    step[3] = step[35] = 100.0
    assert quarters(step) == pytest.approx(0.5)
    assert quarters([3.0] * 40) == 0.0
    assert quarters([1.0] * (MIN_POINTS - 1)) is None
    assert quarters([0.0] * 40) is None


def test_spans_count_what_was_due_in_them() -> None:
    run = open_run([0.1] * 500 + [0.3] * 500, rate=100.0)
    snapshots = [
        Snapshot(float(second), {"process_resident_memory_bytes": 1e6 * (1 + second)}, {}, {})
        for second in range(10)
    ]
    first, second = time_slices(Results(run, snapshots=snapshots), 5.0, 90.0)
    assert (first.num_ok, second.num_ok) == (500, 500)
    assert first.p50 == pytest.approx(0.1, rel=0.01)
    assert second.p50 == pytest.approx(0.3, rel=0.01)
    assert (first.memory_bytes, second.memory_bytes) == (3e6, 8e6)


def quiet_soak() -> report.Soak:
    draw = np.random.default_rng(3)
    noise = 1 + 0.02 * draw.standard_normal((60, 2))
    series = [
        TimeSlice(60.0 * place, 1200, 0.2 * low, 0.9 * high, 4e8 + 1e4 * place)
        for place, (low, high) in enumerate(noise)
    ]
    return report.Soak({"name": "x"}, series, 99.0, {}, 70_000, 7, {}, [], aged_pairs([1.0, 1.0]))


def aged_pairs(factors: Sequence[float], noise: float = 0.1) -> list[Pair]:
    """Of a machine whose speed changes by a third from pair to pair, but little within one.

    Args:
        factors: what a server's age multiplies its latency at each percentile by.
        noise: standard deviation of the logarithm of a pair's ratio.
    """
    draw = np.random.default_rng(5)
    pairs = []
    for _ in range(24):
        fresh = draw.uniform(0.75, 1.0) * np.array([0.3, 0.6])
        aged = fresh * factors * np.exp(noise * draw.standard_normal(2))
        pairs.append(Pair(aged.tolist(), fresh.tolist()))
    return pairs


MEMORY_FLAT = "memory is flat (surely no more than 1%)"
MEMORY_FILLED = "memory has its size from the beginning (in all, no more than 5%)"


def broken(soak: report.Soak) -> list[str]:
    return [one.what for one in report.criteria(soak) if not one.kept]


def test_a_quiet_soak_passes() -> None:
    assert broken(quiet_soak()) == []
    text = report.render(quiet_soak())
    assert "**BROKEN**" not in text
    assert "kept: memory is flat" in text
    assert "| 60 s | 1,200 |" in text


@pytest.mark.parametrize(("step", "expected"), [(1e6, 0), (2e7, 1)])
def test_growth_in_the_first_minutes_is_settling_if_it_is_little(
    step: float, expected: int
) -> None:
    soak = quiet_soak()
    early = [
        dataclasses.replace(span, memory_bytes=4e8 - step * (12 - place))
        for place, span in enumerate(soak.slices[:12])
    ]
    found = broken(dataclasses.replace(soak, slices=[*early, *soak.slices[12:]]))
    assert found == [MEMORY_FILLED] * expected


def test_memory_that_was_not_seen_is_not_flat() -> None:
    soak = quiet_soak()
    unseen = [dataclasses.replace(span, memory_bytes=None) for span in soak.slices[20:30]]
    series = [*soak.slices[:20], *unseen, *soak.slices[30:]]
    assert broken(dataclasses.replace(soak, slices=series)) == [MEMORY_FLAT]


def likened(draw: np.random.Generator, share: float, correlation: float = 0.3) -> np.ndarray:
    """Sixty minutes about 1 with this standard deviation; neighbours are alike."""
    noise = np.zeros(60)
    for place, shock in enumerate(draw.standard_normal(60)):
        noise[place] = correlation * noise[max(0, place - 1)] + shock
    return 1 + share * math.sqrt(1 - correlation**2) * noise


def test_a_flat_hour_passes_though_minutes_differ() -> None:
    """Per-minute medians differ by a third, resident memory by a fraction of a percent."""
    draw = np.random.default_rng(4)
    kept = 0
    for _ in range(100):
        memory, low, high = (likened(draw, share) for share in (0.002, 0.3, 0.3))
        series = [
            dataclasses.replace(
                span,
                memory_bytes=4e8 * memory[place],
                p50=0.2 * low[place],
                high=0.9 * high[place],
            )
            for place, span in enumerate(quiet_soak().slices)
        ]
        kept += not broken(dataclasses.replace(quiet_soak(), slices=series))
    assert kept >= 95


@pytest.mark.parametrize("when", [24, 36, 48])
def test_a_step_in_memory_breaks_it(when: int) -> None:
    """One in latency may be the machine's, and is told by the comparison if it is the server's."""
    soak = quiet_soak()
    stepping = [
        dataclasses.replace(span, memory_bytes=2 * (span.memory_bytes or 0.0))
        if place >= when
        else span
        for place, span in enumerate(soak.slices)
    ]
    assert broken(dataclasses.replace(soak, slices=stepping)) == [MEMORY_FLAT, MEMORY_FILLED]


@pytest.mark.parametrize(
    ("figure", "growth", "what"),
    [("memory_bytes", 0.04, "memory"), ("p50", 0.5, "p50"), ("high", 0.5, "p99")],
)
def test_each_drift_breaks_its_own_verdict(figure: str, growth: float, what: str) -> None:
    soak = quiet_soak()
    drifting = [
        dataclasses.replace(span, **{figure: getattr(span, figure) * (1 + growth * place / 60)})
        for place, span in enumerate(soak.slices)
    ]
    (found,) = broken(dataclasses.replace(soak, slices=drifting))
    assert what in found


@pytest.mark.parametrize(("place", "what"), [(0, "p50"), (1, "p90")])
def test_a_server_that_became_slower_breaks_it(place: int, what: str) -> None:
    factors = [1.0, 1.0]
    factors[place] = 1.2
    (found,) = broken(dataclasses.replace(quiet_soak(), pairs=aged_pairs(factors)))
    assert found.startswith(f"the {what} ")


def test_what_pairs_are_too_few_or_too_noisy_to_say_is_not_kept() -> None:
    slow, fast = (1.5, 1.5), (1.0, 1.0)
    noisy = [Pair(slow, fast), Pair(fast, slow)] * 12
    for pairs in ([], aged_pairs([1.0, 1.0])[:1], noisy):
        assert len(broken(dataclasses.replace(quiet_soak(), pairs=pairs))) == len(PERCENTILES)
    assert "not compared" in report.render(dataclasses.replace(quiet_soak(), pairs=[]))


def test_age_is_told_from_pairs_and_not_from_the_machines_speed() -> None:
    pairs = aged_pairs([1.1, 1.3], noise=0.0)
    for percentile, factor in zip(PERCENTILES, (1.1, 1.3), strict=True):
        found = growth(pairs, percentile)
        assert found is not None
        assert (found.mean, found.low, found.high) == pytest.approx([factor - 1] * 3)


def test_failures_and_what_is_left_behind_break_it() -> None:
    soak = quiet_soak()
    for errors, passes in (
        ({"INTERNAL": 1}, False),
        ({"RESOURCE_EXHAUSTED": 70}, True),
        ({"RESOURCE_EXHAUSTED": 71}, False),
    ):
        assert (broken(dataclasses.replace(soak, errors=errors)) == []) is passes
    (left,) = broken(dataclasses.replace(soak, left_over={"dragoman_rows_used": 1.0}))
    assert "left behind" in left
    assert len(broken(dataclasses.replace(soak, problems=["broken off"]))) == 1
    assert len(broken(dataclasses.replace(soak, slices=soak.slices[:5]))) == 3


def wait_for(event: threading.Event) -> None:
    event.wait()


def refuse(server: FakeServer, number: int, context: Any) -> None:
    context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")


async def test_calls_are_cancelled_before_their_answers() -> None:
    hold = threading.Event()
    fake = FakeServer(lambda *_: wait_for(hold))
    canceller = Canceller(fake.address, ["a"], rate=100.0, patience=0.01)
    try:
        await canceller.run(0.05)
    finally:
        hold.set()
        fake.server.stop(None)
    assert canceller.num_cancelled > 0
    assert canceller.num_answered == 0
    assert not canceller.errors


async def test_both_servers_get_the_same_texts_in_turn() -> None:
    order: list[str] = []
    aged = FakeServer(lambda *_: order.append("aged"))
    fresh = FakeServer(lambda *_: order.append("fresh"))
    try:
        pairs = await compare(aged.address, fresh.address, [str(n) for n in range(500)], 3)
    finally:
        aged.server.stop(None)
        fresh.server.stop(None)
    assert len(pairs) == 3
    assert all(value > 0 for pair in pairs for value in [*pair.aged, *pair.fresh])
    blocks = [name for name, previous in zip(order, ["", *order], strict=False) if name != previous]
    # One block each to warm up; then who is first changes.
    assert blocks == ["aged", "fresh", "aged", "fresh", "aged"]
    assert sorted(aged.texts) == sorted(fresh.texts)
    assert len({text for (text,) in aged.texts}) == 500  # another part of them each time


async def test_a_failed_request_ends_the_comparison() -> None:
    fake = FakeServer(refuse)
    try:
        with pytest.raises(LoadError, match="RESOURCE_EXHAUSTED"):
            await compare(fake.address, fake.address, ["a"], 1)
    finally:
        fake.server.stop(None)


@pytest.mark.parametrize(
    ("code", "count", "passes"),
    [("RESOURCE_EXHAUSTED", 3, True), ("RESOURCE_EXHAUSTED", 5, False), ("INTERNAL", 1, False)],
)
def test_a_refused_call_to_be_cancelled_is_a_refusal_like_any_other(
    tmp_path: Path, code: str, count: int, passes: bool
) -> None:
    run = open_run([0.1] * 1000)
    for kind in (UNARY, STREAMS, BEAMS):
        results = Results(run)
        ResultsWriter(tmp_path / kind, run.plan, None, {}).finish(results, "")
    canceller = Canceller("server:1", ["a"], rate=1.0, patience=1.0)
    canceller.num_answered, canceller.num_cancelled = 996, 7
    canceller.errors[code] = count
    canceller.messages[code] = "why"
    soak = collect(SoakPlan(100.0, 10.0), tmp_path, canceller, {}, {"name": "x"})
    assert soak.num_requests == 3000 + 996 + count
    assert soak.num_cancelled == 7
    assert soak.errors == {code: count}
    assert f"{code}: why" in report.render(soak)
    (verdict,) = [one for one in report.criteria(soak) if "fails" in one.what]
    assert verdict.kept is passes
