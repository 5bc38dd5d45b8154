"""Overload in virtual time: refused calls, and the effect on other clients."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest

from service.calls.refusals import RefusalPace
from service.domain.requests import SearchOptions
from service.errors import DeadlineExceededError, ResourceExhaustedError
from tests.load.simulation import (
    BASE,
    SMALL,
    Arrival,
    Cost,
    Simulation,
    percentile,
    poisson,
    real_lengths,
)

# On two cores: a call costs half a millisecond of one of them, answered or refused.
WITH_CALLS = dataclasses.replace(BASE, call=0.25e-3)
# Each row costs as much, so few rows are enough for the full throughput.
LINEAR = Cost(step=0.2e-3, row=0.2e-3, call=0.25e-3)
FLAT = Cost(step=15e-3, row=0.02e-3)  # as on a GPU: the width hardly matters
SYSTEMS = [(BASE, 64), (SMALL, 64), (FLAT, 64), (BASE, 8), (BASE, 1)]
NAMES = ["base", "small", "flat", "base, 8 rows", "base, 1 row"]


def served(
    cost: Cost, max_rows: int, load: float, seconds: float, *, seed: int = 1
) -> tuple[Simulation, list[Arrival]]:
    simulation = Simulation(cost, max_rows)
    rate = load * cost.capacity(max_rows, real_lengths())
    arrivals = poisson(rate, seconds, seed=seed)
    simulation.serve(arrivals)
    return simulation, arrivals


def answered(arrivals: list[Arrival]) -> list[Arrival]:
    return [arrival for arrival in arrivals if arrival.in_time]


@pytest.mark.parametrize(("cost", "max_rows"), SYSTEMS, ids=NAMES)
def test_half_as_much_again_as_it_carries(cost: Cost, max_rows: int) -> None:
    capacity = cost.capacity(max_rows, real_lengths())
    seconds = max(5.0, (3000 if max_rows == 64 else 400) / capacity)
    _, usual = served(cost, max_rows, 0.8, seconds)
    overloaded, offered = served(cost, max_rows, 1.5, seconds)
    warm = seconds / 3  # by then the first burst, which was admitted, has ended
    accepted = answered([arrival for arrival in offered if arrival.at > warm])
    assert percentile(accepted, 99) <= 2 * percentile(usual, 99)
    ends = [arrival.at + arrival.seconds for arrival in offered if arrival.seconds is not None]
    assert sum(warm < end < seconds for end in ends) / (seconds - warm) >= 0.9 * capacity
    # Time bounds the length of the queue, far below its capacity.
    assert overloaded.most_inside < max_rows + 4096 // 4
    for arrival in offered:
        assert arrival.in_time or isinstance(arrival.refused, ResourceExhaustedError)
        if isinstance(arrival.refused, ResourceExhaustedError):
            assert 0.1 <= arrival.refused.retry_after_seconds <= 60.0


@pytest.mark.parametrize(("cost", "max_rows"), SYSTEMS[:3], ids=NAMES[:3])
def test_what_it_carries_is_not_refused(cost: Cost, max_rows: int) -> None:
    capacity = cost.capacity(max_rows, real_lengths())
    _, arrivals = served(cost, max_rows, 0.9, 3000 / capacity)
    assert all(arrival.in_time for arrival in arrivals)


@pytest.mark.parametrize(("cost", "max_rows"), SYSTEMS[:2], ids=NAMES[:2])
def test_it_is_itself_again_within_a_second(cost: Cost, max_rows: int) -> None:
    rate = cost.capacity(max_rows, real_lengths())
    overload = 2000 / rate
    simulation = Simulation(cost, max_rows)
    before = poisson(1.5 * rate, overload, seed=2)
    after = poisson(0.5 * rate, 2000 / rate, seed=3, start=overload)
    simulation.serve([*before, *after])
    late = [arrival for arrival in after if arrival.at > overload + 1.0]
    usual = Simulation(cost, max_rows)
    same = poisson(0.5 * rate, 2000 / rate, seed=3, start=overload)
    usual.serve(same)
    same_late = [arrival for arrival in same if arrival.at > overload + 1.0]
    assert all(arrival.in_time for arrival in late)
    assert percentile(late, 99) <= 1.05 * percentile(same_late, 99)


def test_users_who_wait_for_their_answers_are_not_refused() -> None:
    """A closed loop with twice as many users as rows queues, and is not overload."""
    simulation = Simulation(BASE, 64)
    rng = np.random.default_rng(0)
    lengths = real_lengths()
    drawn = [lengths[i] for i in rng.integers(len(lengths), size=128 * 10)]
    users = [Arrival(0.001 * user, *drawn[user]) for user in range(128)]
    further = [Arrival(0.0, source, target) for source, target in drawn[128:]]
    simulation.serve_closed(users, further)
    assert all(arrival.in_time for arrival in [*users, *further])


def test_one_who_sends_ten_thousand_does_not_keep_others_out() -> None:
    simulation = Simulation(BASE, 64)
    rate = BASE.capacity(64, real_lengths())
    flood = poisson(1000 * rate, 10_000 / (1000 * rate), seed=4, client="many")
    seconds = 3.0
    flood += poisson(2 * rate, seconds, seed=5, client="many")
    others = [
        arrival
        for number in range(10)
        for arrival in poisson(0.02 * rate, seconds, seed=6 + number, client=f"one {number}")
    ]
    simulation.serve([*flood, *others])
    assert len(others) > 50
    assert all(arrival.in_time for arrival in others)
    assert sum(arrival.refused is not None for arrival in flood) > 9000


def closed_loop(
    simulation: Simulation, seconds: float, num_many: int, num_ones: int
) -> list[Arrival]:
    """Calls that are repeated as soon as they are answered or refused: of one client, and of some.

    The many are repeated at once, the others after the time that a refusal says.
    """
    pace = RefusalPace(4096, lambda: simulation.now)
    rng, lengths, ended = random.Random(0), real_lengths(), []

    def arrival(client: str, at: float) -> Arrival:
        source, target = rng.choice(lengths)
        return Arrival(at, source, min(target, 400), client)

    def then(before: Arrival) -> Arrival | None:
        ended.append(before)
        at = simulation.now + 0.001
        if isinstance(before.refused, ResourceExhaustedError):
            at += pace.delay(before.client)
            at += 0.0 if before.client == "many" else before.refused.retry_after_seconds
        return arrival(before.client, at) if at < seconds else None

    many = [arrival("many", 0.2 + 1e-5 * number) for number in range(num_many)]
    ones = [arrival(f"one {number}", 0.01 * number) for number in range(num_ones)]
    simulation.serve([*many, *ones], then)
    return ended


def test_a_thousand_calls_that_are_repeated_at_once_leave_the_throughput_as_it_is() -> None:
    simulation, seconds = Simulation(WITH_CALLS, 64), 9.0
    calls = closed_loop(simulation, seconds, num_many=1000, num_ones=0)
    warm = seconds / 3
    ends = [call.at + call.seconds for call in calls if call.seconds is not None]
    goodput = sum(warm < end < seconds for end in ends) / (seconds - warm)
    assert goodput >= 0.9 * WITH_CALLS.capacity(64, real_lengths())
    refused = [call.refused for call in calls if call.refused is not None]
    assert len(refused) > 1000
    assert all(isinstance(error, ResourceExhaustedError) for error in refused)


def test_nor_do_they_take_answers_from_others() -> None:
    seconds, num_ones = 9.0, 40
    warm = seconds / 2  # by then the first burst, which was admitted, has ended
    alone = closed_loop(Simulation(LINEAR, 64), seconds, 0, num_ones)
    simulation = Simulation(LINEAR, 64)
    beside = closed_loop(simulation, seconds, 1000, num_ones)
    assert simulation.admission.overload_rows < num_ones
    ones = [call for call in beside if call.client != "many"]
    assert all(call.in_time for call in ones)
    expected = sum(call.at > warm for call in alone)
    assert sum(call.at > warm for call in ones) >= 0.8 * expected


def test_a_full_queue_has_room_left_for_others() -> None:
    """The quota leaves room even if the operator allows any wait."""
    simulation = Simulation(BASE, 8, max_waiting=120, max_queue_seconds=3600.0)
    flood = [Arrival(0.0, 10, 20, client="many") for _ in range(1000)]
    others = [Arrival(0.001, 10, 20, client=f"one {number}") for number in range(12)]
    simulation.serve([*flood, *others])
    assert all(arrival.in_time for arrival in others)
    assert len(answered(flood)) == 128 - 128 // 8
    assert percentile(others, 99) < percentile(flood, 99)


def test_a_beam_takes_as_much_quota_as_rows() -> None:
    simulation = Simulation(BASE, 8, max_waiting=120, max_queue_seconds=3600.0)
    beam = SearchOptions(beam_size=8)
    flood = [Arrival(0.0, 10, 20, client="many", options=beam) for _ in range(100)]
    simulation.serve(flood)
    assert len(answered(flood)) == (128 - 128 // 8) // 8


@pytest.mark.parametrize("patience", [0.5, 1.5])
@pytest.mark.parametrize("load", [0.9, 1.5, 3.0])
def test_hardly_anybody_is_refused_who_would_have_made_it(load: float, patience: float) -> None:
    """One in twenty refused calls is admitted anyway, to see whether it would miss its deadline."""
    simulation = Simulation(BASE, 64, max_queue_seconds=float("inf"), lets_in=0.05)
    rate = load * BASE.capacity(64, real_lengths())
    arrivals = poisson(rate, 6000 / rate, seed=9)
    for arrival in arrivals:
        arrival.patience = patience
    simulation.serve(arrivals)
    probes = [arrival for arrival in arrivals if arrival.would_refuse is not None]
    assert len(answered(probes)) <= 0.1 * len(probes) + 1
    if load < 1.0:
        assert not any(arrival.refused for arrival in arrivals if arrival.target < 40)


def test_what_cannot_make_its_deadline_wastes_little() -> None:
    rate = 3 * BASE.capacity(64, real_lengths())
    arrivals = poisson(rate, 6000 / rate, seed=10)
    wasted, good = [], []
    for lets_in in (1.0, 0.0):
        simulation = Simulation(BASE, 64, max_queue_seconds=float("inf"), lets_in=lets_in)
        offered = [dataclasses.replace(arrival, patience=1.0) for arrival in arrivals]
        simulation.serve(offered)
        wasted.append(simulation.wasted_tokens)
        good.append(len(answered(offered)))
    assert good[1] > 1.5 * good[0]
    assert wasted[1] / good[1] < 0.5 * wasted[0] / good[0]


def test_slow_steps_are_not_held_against_it_for_ever() -> None:
    """A noisy neighbour slowed the machine for a while, and all requests have short deadlines."""
    simulation = Simulation(BASE, 64)
    simulation.cost = dataclasses.replace(BASE, step=0.5)
    simulation.serve(poisson(2.0, 100.0))
    start = simulation.now + 1.0
    simulation.serve(Arrival(start + 20.0 * number, 20, 20) for number in range(20))
    assert simulation.admission._latency.least_step_seconds(1) > 0.2
    simulation.cost = BASE
    start = simulation.now + 1.0
    pairs = [start + 0.25 * number for number in range(100)]
    first = [Arrival(at, 20, 20, patience=0.2) for at in pairs]
    second = [Arrival(at + 0.005, 20, 20, patience=0.2) for at in pairs]
    simulation.serve([*first, *second])
    assert all(call.in_time for call in first), "each found it idle"
    assert isinstance(second[0].refused, DeadlineExceededError)
    assert all(call.in_time for call in second[50:])


def test_a_deadline_that_no_server_meets_is_told_as_such() -> None:
    simulation = Simulation(BASE, 64)
    simulation.serve(poisson(50.0, 20.0))
    late = Arrival(simulation.now + 1, 60, 60, patience=-1.0)
    other = Arrival(simulation.now + 1.0001, 60, 60)  # an idle server would try the next
    hopeless = Arrival(simulation.now + 1.0002, 60, 60, patience=0.001)
    simulation.serve([late, other, hopeless])
    assert isinstance(hopeless.refused, DeadlineExceededError)
    assert isinstance(late.refused, DeadlineExceededError)
    assert other.in_time
    assert simulation.admission.num_taken == 0
