"""A model whose process ends by itself is opened again, unless that repeats."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.requests import GenerationRequest
from service.engine.watchdog import StallDetector
from service.errors import StartupError, UnavailableError
from service.models.lifecycle.interface import LifecycleObserver
from service.models.lifecycle.metrics import LifecycleMetrics
from service.models.lifecycle.model_lifecycle import ModelLifecycle
from service.models.lifecycle.recent_ends import RecentEnds
from service.observability.metrics import ServerMetrics
from tests.clock import Clock
from tests.fake_versions import FakeVersion, Place, Places, state_of

Lifecycle = ModelLifecycle[FakeVersion]
MINUTE = 60.0


class Restarts(LifecycleObserver):
    """Records restarts."""

    def __init__(self) -> None:
        self.seen: list[bool] = []

    def on_restart(self, model: str, *, succeeded: bool) -> None:
        self.seen.append(succeeded)


@contextlib.asynccontextmanager
async def serving(
    places: Places, observer: LifecycleObserver | None = None, clock: Clock | None = None
) -> AsyncIterator[Lifecycle]:
    """A model that serves the first place; at the end, no engine may be left."""
    lifecycle = Lifecycle(places.first(), observer, clock=clock or Clock())
    await lifecycle.start()
    try:
        yield lifecycle
    finally:
        await lifecycle.stop()
    assert places.running == []


async def die(lifecycle: Lifecycle) -> None:
    """Let the serving version's process die, and wait until that is noticed."""
    lifecycle.current.die()
    while state_of(lifecycle) == "serving" and not lifecycle.has_failed:
        await asyncio.sleep(0)


async def version_of_a_call(lifecycle: Lifecycle) -> FakeVersion:
    with await lifecycle.lease() as version:
        assert version.engine.is_serving
        return version


async def test_calls_in_flight_are_to_be_sent_again_and_later_ones_wait() -> None:
    places, restarts = Places(Place("1")), Restarts()
    async with serving(places, restarts) as lifecycle:
        with await lifecycle.lease() as version:
            version.runner.hold()
            call = version.engine.admit(1)
            generation = await call.submit(GenerationRequest((5, 6, 3)))
            places[0].may_open.clear()
            await die(lifecycle)
            version.runner.release()
            assert isinstance((await generation.result()).error, UnavailableError)
            call.close()
            with pytest.raises(UnavailableError):
                version.engine.admit(1)
        assert state_of(lifecycle) == "loading"
        calls = [asyncio.ensure_future(version_of_a_call(lifecycle)) for _ in range(9)]
        places[0].may_open.set()
        found = set(map(id, await asyncio.gather(*calls)))
        assert found == {id(places.opened[1])}
        assert places.in_background == [False, False]
        assert (state_of(lifecycle), restarts.seen) == ("serving", [True])
        assert not lifecycle.has_failed


async def test_the_third_end_within_a_minute_is_final() -> None:
    places, clock = Places(Place("1")), Clock()
    async with serving(places, clock=clock) as lifecycle:
        for _ in range(5):  # each a minute after the one before the last
            await die(lifecycle)
            await version_of_a_call(lifecycle)
            clock.now += MINUTE / 2
        clock.now += MINUTE
        for _ in range(2):
            await die(lifecycle)
            await version_of_a_call(lifecycle)
            clock.now += MINUTE / 2 - 1
        await die(lifecycle)
        await lifecycle.wait_until_ended()
        assert lifecycle.has_failed
        assert len(places.opened) == 1 + 5 + 2


@given(st.lists(st.floats(0.0, 2 * MINUTE), max_size=20))
def test_ends_repeat_if_three_of_them_are_within_a_minute(pauses: list[float]) -> None:
    clock, times = Clock(0.0), list[float]()
    ends = RecentEnds(clock)
    for pause in pauses:
        clock.now += pause
        times.append(clock.now)
        assert ends.add() == (len(times) >= 3 and times[-1] - times[-3] < MINUTE)


async def test_a_model_that_can_t_be_opened_again_ends_after_two_attempts() -> None:
    places, restarts = Places(Place("1")), Restarts()
    async with serving(places, restarts) as lifecycle:
        places[0].error = StartupError("weights.bin is missing")
        places[0].may_open.clear()
        await die(lifecycle)
        call = asyncio.ensure_future(version_of_a_call(lifecycle))
        await asyncio.sleep(0)
        places[0].may_open.set()
        with pytest.raises(UnavailableError, match="fake had ended and could not be") as told:
            await call
        assert "weights.bin" not in str(told.value)
        await lifecycle.wait_until_ended()
        assert (lifecycle.has_failed, restarts.seen) == (True, [False, False])
        with pytest.raises(UnavailableError):
            await version_of_a_call(lifecycle)


async def test_slow_attempts_end_too() -> None:
    clock = Clock()

    class Slow(Restarts):
        def on_restart(self, model: str, *, succeeded: bool) -> None:
            super().on_restart(model, succeeded=succeeded)
            clock.now += MINUTE

    places, restarts = Places(Place("1")), Slow()
    async with serving(places, restarts, clock) as lifecycle:
        places[0].error = StartupError("the disk is slow")
        await die(lifecycle)
        await lifecycle.wait_until_ended()
        assert (lifecycle.has_failed, restarts.seen) == (True, [False] * 3)


async def test_one_attempt_to_open_it_may_fail() -> None:
    places, restarts = Places(Place("1")), Restarts()
    async with serving(places, restarts) as lifecycle:
        places[0].error, places[0].num_errors = StartupError("no memory"), 3  # of one attempt
        await die(lifecycle)
        await version_of_a_call(lifecycle)
        assert restarts.seen == [False, True]
        assert not lifecycle.has_failed


async def test_a_model_in_the_server_s_process_is_not_restarted() -> None:
    """A step that hangs in a thread can't be ended, and holds its memory."""
    places = Places(Place("1"))
    async with serving(places) as lifecycle:
        lifecycle.current.has_own_process = False
        await die(lifecycle)
        await lifecycle.wait_until_ended()
        assert lifecycle.has_failed
        assert len(places.opened) == 1


async def test_a_defect_in_opening_it_again_ends_it() -> None:
    places = Places(Place("1"))
    async with serving(places) as lifecycle:
        places[0].error = ValueError("a defect")
        await die(lifecycle)
        await lifecycle.wait_until_ended()
        assert lifecycle.has_failed


async def test_a_server_that_stops_does_not_wait_for_a_restart() -> None:
    places = Places(Place("1"))
    async with serving(places) as lifecycle:
        places[0].is_opening.clear()
        places[0].may_open.clear()
        await die(lifecycle)
        await asyncio.to_thread(places[0].is_opening.wait, 30)
        await lifecycle.stop()
        assert not lifecycle.has_failed
        places[0].may_open.set()
        while len(places.opened) < 2 or places.opened[1].is_running:
            await asyncio.sleep(0)


async def test_a_long_restart_is_a_stall_and_never_a_hang() -> None:
    places = Places(Place("1"))
    async with serving(places) as lifecycle:
        detector, now = StallDetector(10.0, 60.0), 0.0
        assert lifecycle.pulse() is None
        places[0].may_open.clear()
        await die(lifecycle)
        while now < 600:
            detector.check(lifecycle.pulse(), now)
            assert detector.is_stalled == (now >= 10)
            assert not detector.is_hung
            now += 1
        places[0].may_open.set()
        await version_of_a_call(lifecycle)
        detector.check(lifecycle.pulse(), now)
        assert not detector.is_stalled


async def test_restarts_are_counted() -> None:
    metrics, places = ServerMetrics(), Places(Place("1"), name="m")
    async with serving(places, LifecycleMetrics(metrics)) as lifecycle:

        def count(result: str) -> float | None:
            labels = {"model": "m", "result": result}
            return metrics.registry.get_sample_value("dragoman_model_restarts_total", labels)

        assert (count("success"), count("failure")) == (0, 0)
        places[0].error, places[0].num_errors = StartupError("no memory"), 3
        await die(lifecycle)
        await version_of_a_call(lifecycle)
        assert (count("success"), count("failure")) == (1, 1)
