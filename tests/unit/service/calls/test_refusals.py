"""The time for which refusals are held back, by client."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.calls.refusals import AT_ONCE, MAX_SECONDS, PER_SECOND, RefusalPace
from tests.clock import Clock
from tests.load.virtual_time import run_virtual


def test_a_burst_is_refused_at_once_and_what_follows_at_a_rate() -> None:
    pace = RefusalPace(10, Clock(1000.0))
    delays = [pace.delay("many") for _ in range(AT_ONCE + 10)]
    assert delays[:AT_ONCE] == [0.0] * AT_ONCE
    expected = [(number + 1) / PER_SECOND for number in range(10)]
    assert delays[AT_ONCE:] == pytest.approx(expected)


def test_nobody_else_is_held_back() -> None:
    pace = RefusalPace(10, Clock(1000.0))
    for _ in range(20 * AT_ONCE):
        pace.delay("many")
    assert pace.delay("one") == 0.0


def test_a_client_that_pauses_is_refused_at_once_again() -> None:
    clock = Clock(1000.0)
    pace = RefusalPace(10, clock)
    for _ in range(100 * AT_ONCE):
        assert pace.delay("many") <= MAX_SECONDS
    clock.now += MAX_SECONDS + AT_ONCE / PER_SECOND
    assert pace.delay("many") == 0.0


def test_what_would_wait_longer_is_spread() -> None:
    pace = RefusalPace(10, Clock(1000.0))
    for _ in range(20 * AT_ONCE):
        pace.delay("many")
    delays = {pace.delay("many") for _ in range(100)}
    assert len(delays) > 90
    assert MAX_SECONDS / 2 <= min(delays) < max(delays) <= MAX_SECONDS


@given(st.lists(st.tuples(st.floats(0.0, 3.0), st.integers(1, 50)), max_size=20))
def test_refusals_leave_at_the_rate(
    arrivals: list[tuple[float, int]],
) -> None:
    clock = Clock(1000.0)
    pace = RefusalPace(10, clock)
    left: list[float] = []
    for pause, count in arrivals:
        clock.now += pause
        for _ in range(count):
            left.append(clock.now + pace.delay("many"))
    for first, start in enumerate(left):
        within = [at for at in left[first:] if at <= start + 1.0]
        assert len(within) <= AT_ONCE + PER_SECOND + 1


def test_only_so_many_clients_are_remembered() -> None:
    pace = RefusalPace(10, Clock(1000.0))
    for number in range(10_000):
        pace.delay(f"client {number}")
    assert len(pace._due) < 5000


async def _held(pace: RefusalPace, seconds_left: float | None = None) -> float:
    loop = asyncio.get_running_loop()
    started = loop.time()
    await pace.hold("many", seconds_left)
    return loop.time() - started


def test_a_call_with_a_deadline_is_refused_while_there_is_time_left() -> None:
    async def main() -> None:
        pace = RefusalPace(10, asyncio.get_running_loop().time)
        for _ in range(3 * AT_ONCE):
            pace.delay("many")
        assert await _held(pace, seconds_left=1.0) == pytest.approx(0.5)
        assert await _held(pace, seconds_left=-1.0) == 0.0
        # Half a second has passed, and three more refusals are due.
        assert await _held(pace) == pytest.approx(2 * AT_ONCE / PER_SECOND - 0.5 + 3 / PER_SECOND)
        assert pace.held.num_taken == 0

    run_virtual(main())


def test_a_drain_sends_what_is_held_back() -> None:
    async def main() -> None:
        pace = RefusalPace(10, asyncio.get_running_loop().time)
        for _ in range(10 * AT_ONCE):
            pace.delay("many")
        calls = [asyncio.create_task(_held(pace)) for _ in range(4)]
        await asyncio.sleep(0.25)
        assert pace.held.num_taken == 4
        pace.end()
        assert await asyncio.gather(*calls) == [0.25] * 4
        assert await _held(pace) == 0.0

    run_virtual(main())


def test_no_more_are_held_back_than_there_is_room_for() -> None:
    async def main() -> None:
        pace = RefusalPace(16, asyncio.get_running_loop().time)
        for _ in range(10 * AT_ONCE):
            pace.delay("many")
        times = await asyncio.gather(*(_held(pace) for _ in range(20)))
        assert sorted(times)[:6] == [0.0] * 6  # two places are left for other clients
        assert sorted(times)[6] > 0.0

    run_virtual(main())
