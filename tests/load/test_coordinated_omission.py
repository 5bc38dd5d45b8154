"""The generator against a server whose latencies can be computed by hand, in virtual time.

The server needs 10 ms a request and stalls for one second. Requests arrive every 20 ms. The first
one in the stall waits for all of it and ends after 1.01 s. Each later one arrives 20 ms later and
is answered 10 ms later: its latency is 10 ms less, until the queue is empty 100 requests later.
"""

from __future__ import annotations

import asyncio
import itertools

import pytest

from bench.load.arrivals import arrival_times
from bench.load.generator import Generator, heartbeat
from bench.load.plan import LoadPlan
from bench.load.sample import UNFINISHED, ReplySample, RequestSample
from bench.load.statistics import Run, Summary, summarise
from tests.load.queueing import OneAtATime
from tests.load.virtual_time import run_virtual

SECONDS, STALL_AT, SERVICE, PERIOD = 30.0, 10.0, 0.010, 0.020

# 1,500 requests: 1,400 take 10 ms, 100 take 20 ms, 30 ms, ... 1,010 ms.
BY_HAND = {"50": 0.010, "90": 0.010, "95": 0.260, "99": 0.860}


def texts_of(number: int) -> list[str]:
    return [f"text {number}"]


def load(plan: LoadPlan) -> Summary:
    """Run a plan against the stalling server."""
    samples: list[RequestSample] = []
    server = OneAtATime(SERVICE, STALL_AT, stall=1.0)

    async def main() -> None:
        generator = Generator(server, texts_of, samples.append, start=0.0)
        if plan.rate is not None:
            times = arrival_times(plan.arrivals, plan.rate, plan.total_seconds, seed=plan.seed)
            await generator.open_loop(enumerate(times.tolist()))
        else:
            assert plan.concurrency is not None
            await generator.closed_loop(plan.concurrency, plan.total_seconds, itertools.count())

    run_virtual(main())
    return summarise(Run(plan, samples, lags=[], seconds=plan.total_seconds))


@pytest.fixture(scope="module")
def open_loop() -> Summary:
    plan = LoadPlan("", rate=1 / PERIOD, arrivals="constant", duration=SECONDS, warmup=0)
    return load(plan)


@pytest.fixture(scope="module")
def closed_loop() -> Summary:
    return load(LoadPlan("", concurrency=1, duration=SECONDS, warmup=0))


def test_percentiles_are_those_computed_by_hand(open_loop: Summary) -> None:
    assert open_loop.num_ok == 1500
    for name, seconds in BY_HAND.items():
        # A rank more or less is 10 ms; the histogram is good to three digits.
        assert open_loop.latency.percentiles[name] == pytest.approx(seconds, abs=0.011), name
    assert open_loop.latency.max == pytest.approx(1.010, abs=1e-6)
    assert open_loop.latency.mean == pytest.approx((1400 * 0.010 + 100 * 0.515) / 1500, abs=1e-4)


def test_the_closed_loop_lies_where_the_open_one_does_not(
    open_loop: Summary, closed_loop: Summary
) -> None:
    # One user waits through the stall and so sees one slow request of some 2,900.
    assert closed_loop.latency.percentiles["99"] == pytest.approx(0.010, rel=0.01)
    assert closed_loop.latency.max == pytest.approx(1.0, abs=0.02)
    slow = open_loop.latency.percentiles["99"]
    assert slow is not None
    assert slow > 80 * SERVICE


def test_rates_and_too_small_samples(open_loop: Summary, closed_loop: Summary) -> None:
    assert open_loop.offered_rate == pytest.approx(50.0)
    assert open_loop.achieved_rate == pytest.approx(50.0, abs=0.1)
    assert closed_loop.achieved_rate == pytest.approx((SECONDS - 1) / SERVICE / SECONDS, rel=0.01)
    assert open_loop.latency.percentiles["99.9"] is None  # that needs 10,000
    assert open_loop.target_tokens_per_second == pytest.approx(50.0, abs=0.1)


def test_users_of_a_closed_loop_wait_for_their_answers() -> None:
    in_flight: list[int] = []
    server = OneAtATime(SERVICE)

    async def main() -> None:
        def record(sample: RequestSample) -> None:
            in_flight.append(generator.num_in_flight)

        generator = Generator(server, texts_of, record, start=0.0)
        await generator.closed_loop(4, 1.0, itertools.count())

    run_virtual(main())
    assert max(in_flight) == 3  # besides the one that has just ended
    assert len(in_flight) == pytest.approx(100, abs=4)


def test_breaking_off_records_what_is_in_flight() -> None:
    samples: list[RequestSample] = []

    async def never(texts: object) -> ReplySample:
        await asyncio.sleep(3600)
        return ReplySample()

    async def main() -> None:
        generator = Generator(never, texts_of, samples.append, start=0.0)
        sending = asyncio.ensure_future(generator.open_loop([(0, 0.5), (1, 1.0), (2, 99.0)]))
        await asyncio.sleep(2.0)
        sending.cancel()
        await asyncio.wait([sending])

    run_virtual(main())
    ended = sorted((s.number, s.reply.code) for s in samples)
    assert ended == [(0, UNFINISHED), (1, UNFINISHED)]
    assert [s.ended for s in samples] == pytest.approx([2.0, 2.0])


def test_errors_slow_a_closed_loop_down() -> None:
    samples: list[RequestSample] = []

    async def refuse(texts: object) -> ReplySample:
        return ReplySample("UNAVAILABLE", "nobody there")

    async def main() -> None:
        generator = Generator(refuse, texts_of, samples.append, start=0.0)
        await generator.closed_loop(1, 10.0, itertools.count())

    run_virtual(main())
    assert 95 <= len(samples) <= 101


def test_heartbeat_notices_a_busy_event_loop() -> None:
    """In virtual time the loop is never late; a callback that hogs it would be seen as lag."""
    lags: list[float] = []

    async def main() -> None:
        beating = asyncio.ensure_future(heartbeat(lags.append))
        await asyncio.sleep(1.0)
        beating.cancel()

    run_virtual(main())
    assert len(lags) == pytest.approx(50, abs=1)
    assert max(lags) < 1e-6
