"""The simulated fleet against formulas of queueing theory, and its invariants."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bench.load.arrivals import arrival_times
from cli.plan.replica import MeasuredReplica
from cli.plan.simulation import ROUTINGS, FleetEvent, FleetSimulation, SimulatedRun, Traffic
from tests.unit.cli.plan.replicas import one_at_a_time, usual


def poisson(replica: MeasuredReplica, rate: float, seconds: float, seed: int = 0) -> Traffic:
    return Traffic.draw(
        arrival_times("poisson", rate, seconds, seed=seed), replica.lengths, seed=seed
    )


def served(replica: MeasuredReplica, rate: float, replicas: int = 1, calls: int = 20_000) -> float:
    """Mean latency, without refusals."""
    run = FleetSimulation(replica, replicas, max_wait_seconds=math.inf).run(
        poisson(replica, rate, calls / rate)
    )
    assert not run.num_refused
    return float(run.latencies.mean())


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_constant_times_are_an_m_d_1_queue(load: float) -> None:
    service = 0.01
    replica = one_at_a_time([1], service)
    wait = load * service / (2 * (1 - load))  # Pollaczek and Khinchine
    assert served(replica, load / service, calls=30_000) == pytest.approx(service + wait, rel=0.06)


@pytest.mark.parametrize("load", [0.3, 0.6])
def test_exponential_times_are_an_m_m_1_queue(load: float) -> None:
    lengths = np.random.default_rng(0).exponential(500, size=4_000).astype(int) + 1
    replica = one_at_a_time(lengths.tolist(), 2e-5)
    service = replica.mean_steps * 2e-5
    assert served(replica, load / service, calls=30_000) == pytest.approx(
        service / (1 - load), rel=0.08
    )


def test_an_idle_replica_takes_the_time_of_the_sentence() -> None:
    replica = usual(lengths=((10, 12),))
    run = FleetSimulation(replica, 1).run(poisson(replica, 0.5, 200))
    assert np.median(run.latencies) == pytest.approx(replica.idle_seconds(10, 12))


@pytest.mark.parametrize("load", [0.2, 0.7])
def test_a_replica_is_busy_for_the_rate_times_the_service_time(load: float) -> None:
    replica = one_at_a_time([1, 3, 5], 0.004)
    rate = load / (0.004 * replica.mean_steps)
    traffic = poisson(replica, rate, 2_000)
    run = FleetSimulation(replica, 1, max_wait_seconds=math.inf).run(traffic)
    assert run.busy_seconds == pytest.approx(0.004 * traffic.steps.sum())
    assert run.busy_seconds / run.seconds == pytest.approx(load, rel=0.05)


@pytest.mark.parametrize("beside", [None, 5])
def test_the_capacity_is_what_a_full_queue_leaves_with(beside: int | None) -> None:
    replica = usual(cores=2 if beside else 1, encodes_beside_from_rows=beside)
    traffic = poisson(replica, 2 * replica.capacity(), 20)
    run = FleetSimulation(replica, 1, max_wait_seconds=math.inf).run(traffic)
    assert len(traffic.times) / run.seconds == pytest.approx(replica.capacity(), rel=0.1)


def finished(run: SimulatedRun) -> int:
    return int(np.isfinite(run.latencies).sum())


@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize("beside", [None, 5])
def test_every_call_is_answered_or_refused(routing: str, beside: int | None) -> None:
    replica = usual(cores=2 if beside else 1, encodes_beside_from_rows=beside)
    traffic = poisson(replica, 1.3 * 3 * replica.capacity(), 12)
    events = [FleetEvent(2, 0, "drain"), FleetEvent(4, 1, "lose"), FleetEvent(5, 0, "join")]
    events += [FleetEvent(7, 1, "join"), FleetEvent(8, 3, "join")]
    fleet = FleetSimulation(replica, 3, routing=routing)  # type: ignore[arg-type]
    run = fleet.run(traffic, events)
    assert len(run.latencies) == len(traffic.times)
    assert 0 < run.num_refused < len(run.latencies)
    assert finished(run) + run.num_refused == len(run.latencies)
    answered = np.isfinite(run.latencies)
    lengths = zip(traffic.source_tokens, traffic.steps, strict=True)
    least = [replica.idle_seconds(*pair) for pair in lengths]
    # The encode of several sources is no shorter than that of one.
    assert (run.latencies >= np.array(least) - 1e-9)[answered].all()


def test_a_lost_replica_loses_no_call() -> None:
    replica = usual()
    traffic = poisson(replica, replica.capacity(), 10)
    run = FleetSimulation(replica, 3).run(traffic, [FleetEvent(5, 0, "lose")])
    assert run.num_refused == 0
    kept = FleetSimulation(replica, 3).run(traffic)
    assert run.percentile(99, 5, 6) > kept.percentile(99, 5, 6)


def test_without_any_replica_calls_are_refused() -> None:
    replica = usual()
    run = FleetSimulation(replica, 1).run(
        poisson(replica, 10, 10), [FleetEvent(0, 0, "lose"), FleetEvent(5, 0, "join")]
    )
    assert np.isinf(run.latencies[run.times < 5]).all()
    assert np.isfinite(run.latencies[run.times > 5]).all()


def test_more_replicas_are_never_worse() -> None:
    replica = usual()
    traffic = poisson(replica, 2.5 * replica.capacity(), 20)
    p99s = [FleetSimulation(replica, n).run(traffic).percentile(99) for n in (2, 3, 4, 6, 12)]
    assert p99s == sorted(p99s, reverse=True)
    assert math.isinf(p99s[0])  # too many are refused
    assert p99s[-1] < 2 * max(replica.idle_seconds(*lengths) for lengths in replica.lengths)


def test_fewer_calls_of_two_replicas_are_better_than_chance() -> None:
    replica = usual()
    traffic = poisson(replica, 0.8 * 8 * replica.capacity(), 30)
    p99s = {
        routing: FleetSimulation(replica, 8, routing=routing).run(traffic).percentile(99)
        for routing in ROUTINGS
    }
    assert p99s["least-request"] < p99s["random"]
    assert p99s["round-robin"] < p99s["random"]


def test_bursts_wait_longer() -> None:
    replica = usual()
    rate = 0.6 * replica.capacity()
    p99s = []
    for burstiness in (1.0, 8.0):
        times = arrival_times("gamma", rate, 200, seed=0, burstiness=burstiness)
        traffic = Traffic.draw(times, replica.lengths, seed=0)
        p99s.append(FleetSimulation(replica, 1).run(traffic).percentile(99))
    assert p99s[1] > 1.3 * p99s[0]


def test_a_seed_gives_the_same_run() -> None:
    replica = usual()
    runs = [
        FleetSimulation(replica, 4, seed=seed).run(poisson(replica, 250, 10)).latencies
        for seed in (1, 1, 2)
    ]
    assert (runs[0] == runs[1]).all()
    assert (runs[0] != runs[2]).any()
