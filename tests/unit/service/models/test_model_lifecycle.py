"""A model is replaced, sleeps and wakes, and no call fails."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.errors import (
    FailedPreconditionError,
    InternalError,
    StartupError,
    UnavailableError,
)
from service.models.lifecycle.interface import LifecycleObserver, ModelState
from service.models.lifecycle.model_lifecycle import ModelLifecycle
from tests.clock import Clock
from tests.fake_versions import FakeVersion, Place, Places, state_of

Lifecycle = ModelLifecycle[FakeVersion]
A, B = Path("/0"), Path("/1")


@contextlib.asynccontextmanager
async def serving(
    places: Places,
    observer: LifecycleObserver | None = None,
    open_seconds: float = 600,
    clock: Clock | None = None,
) -> AsyncIterator[Lifecycle]:
    """A model that serves the first place; at the end, no engine may be left."""
    lifecycle = Lifecycle(places.first(), observer, open_seconds, clock or Clock())
    await lifecycle.start()
    try:
        yield lifecycle
    finally:
        await lifecycle.stop()
        await lifecycle.wait_until_drained()
    assert places.running == []


async def version_of_a_call(lifecycle: Lifecycle) -> str:
    with await lifecycle.lease() as version:
        assert version.engine.is_serving
        return version.version


async def until_opening(place: Place) -> None:
    await asyncio.to_thread(place.is_opening.wait, 30)


class Seen(LifecycleObserver):
    """Records the events of a life cycle."""

    def __init__(self) -> None:
        self.reloads: list[bool] = []
        self.wakes: list[bool] = []

    def on_reload(self, model: str, *, succeeded: bool) -> None:
        self.reloads.append(succeeded)

    def on_wake(self, model: str, *, succeeded: bool) -> None:
        self.wakes.append(succeeded)


# --- replace -------------------------------------------------------------------------------------


async def test_the_drain_is_bounded() -> None:
    places = Places(Place("1"), Place("2"))
    async with serving(places) as lifecycle:
        with await lifecycle.lease() as old:
            await lifecycle.replace(B, drain_seconds=0)
            await lifecycle.wait_until_drained()
            assert not old.engine.is_serving
            with pytest.raises(UnavailableError):
                old.engine.admit(1)


async def test_calls_are_answered_while_another_version_is_opened() -> None:
    places = Places(Place("1"), Place("2"))
    places[1].may_open.clear()
    async with serving(places) as lifecycle:
        replacing = asyncio.ensure_future(lifecycle.replace(B, 60))
        await until_opening(places[1])
        assert await version_of_a_call(lifecycle) == "1"
        assert not await lifecycle.sleep()
        places[1].may_open.set()
        assert (await replacing).version == "2"


@pytest.mark.parametrize(
    ("bad", "parts"),
    [
        (Place("2", error=StartupError("bundle.json is missing")), ["bundle.json is missing"]),
        (Place("2", lost=["en to de"]), ["en to de", "--allow-fewer-languages"]),
        (Place("2", defect=InternalError("no tokens")), ["warm-up failed", "no tokens"]),
        (Place("2", dies=True), ["warm-up failed"]),
    ],
)
async def test_a_bad_version_is_refused_and_the_old_one_continues(
    bad: Place, parts: list[str]
) -> None:
    places, seen = Places(Place("1"), bad, Place("3")), Seen()
    async with serving(places, seen) as lifecycle:
        with pytest.raises(FailedPreconditionError) as caught:
            await lifecycle.replace(B, 60)
        for part in ["model fake was not replaced", *parts]:
            assert part in str(caught.value)
        assert [version.version for version in places.running] == ["1"]
        assert await version_of_a_call(lifecycle) == "1"
        assert lifecycle.current.bundle == A
        await lifecycle.replace(Path("/2"), 60)
        assert await version_of_a_call(lifecycle) == "3"
        assert seen.reloads == [False, True]


async def test_fewer_languages_where_they_are_allowed() -> None:
    places = Places(Place("1"), Place("2", lost=["en to de"]))
    async with serving(places) as lifecycle:
        await lifecycle.replace(B, 60, allow_fewer_languages=True)
        assert await version_of_a_call(lifecycle) == "2"


async def test_a_version_is_opened_in_the_background_unless_calls_wait_for_it() -> None:
    places = Places(Place("1"), Place("2"))
    async with serving(places) as lifecycle:
        await lifecycle.replace(B, 60)
        assert await lifecycle.sleep()
        assert await version_of_a_call(lifecycle) == "2"
        assert await lifecycle.sleep()
        await lifecycle.replace(B, 60)
        assert places.in_background == [False, True, False, True]


async def test_a_model_in_the_server_s_process_is_not_replaced_and_never_sleeps() -> None:
    first = FakeVersion(Place("1"), A, reopen=None)
    lifecycle = Lifecycle(first)
    await lifecycle.start()
    with pytest.raises(FailedPreconditionError, match="restart the server"):
        await lifecycle.replace(B, 60)
    assert not await lifecycle.sleep()
    assert await version_of_a_call(lifecycle) == "1"
    await lifecycle.stop()


async def test_replacements_at_once_happen_one_after_another_with_two_versions_at_most() -> None:
    places = Places(*(Place(str(number)) for number in range(6)))
    most = 0

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, len(places.running))
            await asyncio.sleep(0)

    async with serving(places) as lifecycle:
        watching = asyncio.ensure_future(watch())
        replacing = [lifecycle.replace(Path(f"/{number}"), 60) for number in range(1, 6)]
        await asyncio.gather(*replacing)
        assert await version_of_a_call(lifecycle) == "5"
        watching.cancel()
    assert most == 2


async def test_a_replacement_waits_for_the_drain_of_the_one_before() -> None:
    places = Places(Place("1"), Place("2"), Place("3"))
    async with serving(places) as lifecycle:
        with await lifecycle.lease():
            await lifecycle.replace(B, 60)
            replacing = asyncio.ensure_future(lifecycle.replace(Path("/2"), 60))
            assert await version_of_a_call(lifecycle) == "2"
            assert not places[2].is_opening.is_set()
        await replacing
        assert await version_of_a_call(lifecycle) == "3"


async def test_a_version_that_is_opened_too_late_is_closed() -> None:
    """The server stops meanwhile; `serving` checks that none is left."""
    places = Places(Place("1"), Place("2"))
    places[1].may_open.clear()
    async with serving(places) as lifecycle:
        replacing = asyncio.ensure_future(lifecycle.replace(B, 60))
        await until_opening(places[1])
        replacing.cancel()
        await asyncio.wait({replacing})
        assert await version_of_a_call(lifecycle) == "1"
        places[1].may_open.set()
        while len(places.opened) < 2 or places.opened[1].is_running:
            await asyncio.sleep(0)


async def test_the_time_to_open_a_version_is_bounded() -> None:
    """`serving` checks that nothing is left of those that open later."""
    places, seen = Places(Place("1"), Place("2")), Seen()
    places[1].may_open.clear()
    async with serving(places, seen, open_seconds=0) as lifecycle:
        with pytest.raises(FailedPreconditionError, match="it was not open after 0 s"):
            await lifecycle.replace(B, 60)
        assert await version_of_a_call(lifecycle) == "1"
        assert await lifecycle.sleep()
        places[0].may_open.clear()
        with pytest.raises(UnavailableError, match="could not be opened; see the server's log"):
            await version_of_a_call(lifecycle)
        assert state_of(lifecycle) == "asleep"
        assert (seen.reloads, seen.wakes) == ([False], [False])
        for place in (places[0], places[1]):
            place.may_open.set()
        while len(places.opened) < 3 or places.running:
            await asyncio.sleep(0)


async def test_only_the_end_of_an_engine_that_serves_is_a_failure() -> None:
    places = Places(Place("1"), Place("2"))
    async with serving(places) as lifecycle:
        ended = asyncio.ensure_future(lifecycle.wait_until_ended())
        with await lifecycle.lease() as old:
            await lifecycle.replace(B, 60)
            old.die()
        await lifecycle.wait_until_drained()
        places.opened[1].has_own_process = False  # so that it can't be restarted
        assert not ended.done()
        lifecycle.abandon()
        await ended
        assert lifecycle.has_failed
        places.opened[1].runner.closed = True  # left behind


async def test_a_version_that_was_replaced_is_forgotten() -> None:
    places = Places(Place("1"))
    async with serving(places) as lifecycle:
        for _ in range(3):
            with await lifecycle.lease():
                pass
            await lifecycle.replace(None, 60)
            await lifecycle.wait_until_drained()
            await lifecycle.sleep()
            await version_of_a_call(lifecycle)
        forgotten = [weakref.ref(version) for version in places.opened[:-1]]
        places.opened[:-1] = []
        gc.collect()
        assert [version() for version in forgotten] == [None] * 6


# --- sleep and wake ------------------------------------------------------------------------------


async def test_calls_at_once_wake_a_model_once() -> None:
    places, seen = Places(Place("1")), Seen()
    async with serving(places, seen) as lifecycle:
        assert await lifecycle.sleep()
        assert state_of(lifecycle) == "asleep"
        assert (places.running, lifecycle.pulse()) == ([], None)
        places[0].is_opening.clear()
        places[0].may_open.clear()
        calls = [asyncio.ensure_future(version_of_a_call(lifecycle)) for _ in range(20)]
        await until_opening(places[0])
        assert state_of(lifecycle) == "loading"
        calls[0].cancel()  # the others go on waiting
        places[0].may_open.set()
        assert await asyncio.gather(*calls[1:]) == ["1"] * 19
        assert state_of(lifecycle) == "serving"
        assert (len(places.opened), seen.wakes) == (2, [True])


async def test_a_wake_that_fails_is_tried_again_with_the_next_call() -> None:
    places, seen = Places(Place("1")), Seen()
    async with serving(places, seen) as lifecycle:
        await lifecycle.sleep()
        places[0].error = StartupError("weights.bin is missing")
        calls = [version_of_a_call(lifecycle) for _ in range(3)]
        for error in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(error, UnavailableError)
            assert "fake was asleep" in str(error)
            assert "weights.bin" not in str(error)  # a client need not know the server's files
        assert state_of(lifecycle) == "asleep"
        assert not lifecycle.has_failed
        places[0].error = None
        assert await version_of_a_call(lifecycle) == "1"
        assert seen.wakes == [False, True]


async def test_a_wake_outlasts_the_moment_in_which_a_bundle_is_replaced() -> None:
    places, seen = Places(Place("1")), Seen()
    async with serving(places, seen) as lifecycle:
        await lifecycle.sleep()
        places[0].error, places[0].num_errors = StartupError("no such directory"), 2
        assert await version_of_a_call(lifecycle) == "1"
        assert seen.wakes == [True]


async def test_a_sleeping_model_that_is_replaced_serves() -> None:
    places = Places(Place("1"), Place("2"))
    async with serving(places) as lifecycle:
        await lifecycle.sleep()
        places[1].may_open.clear()
        replacing = asyncio.ensure_future(lifecycle.replace(B, 60))
        await until_opening(places[1])
        call = asyncio.ensure_future(version_of_a_call(lifecycle))
        places[1].may_open.set()
        await replacing
        assert await call == "2"
        assert len(places.opened) == 2


async def test_calls_that_wait_end_as_unavailable_when_the_server_stops() -> None:
    places = Places(Place("1"))
    async with serving(places) as lifecycle:
        await lifecycle.sleep()
        places[0].is_opening.clear()
        places[0].may_open.clear()
        call = asyncio.ensure_future(version_of_a_call(lifecycle))
        await until_opening(places[0])
        await lifecycle.stop()
        with pytest.raises(UnavailableError, match="shutting down"):
            await call
        with pytest.raises(UnavailableError, match="shutting down"):
            await version_of_a_call(lifecycle)
        places[0].may_open.set()
        while len(places.opened) < 2 or places.opened[1].is_running:
            await asyncio.sleep(0)


# --- anything, in any order ----------------------------------------------------------------------

operations = st.lists(
    st.sampled_from(["call", "end", "replace", "bad", "sleep", "two at once", "die"]), max_size=25
)


@settings(max_examples=60, deadline=None)
@given(operations)
async def test_whatever_happens_each_call_keeps_a_version_that_runs(operations: list[str]) -> None:
    places = Places(Place("1"), Place("2"), Place("bad", error=StartupError("bad")))
    clock = Clock()
    async with serving(places, clock=clock) as lifecycle, contextlib.AsyncExitStack() as calls:
        held: list[FakeVersion] = []
        for operation in operations:
            match operation:
                case "call":
                    held.append(calls.enter_context(await lifecycle.lease()))
                case "end":
                    await calls.aclose()
                    held.clear()
                case "replace":
                    if lifecycle._draining is None or lifecycle._draining.done():
                        await lifecycle.replace(B, 60)
                        assert lifecycle.current.version == "2"
                case "bad":
                    if lifecycle._draining is None or lifecycle._draining.done():
                        with pytest.raises(FailedPreconditionError):
                            await lifecycle.replace(Path("/2"), 60)
                case "sleep":
                    is_idle = lifecycle.current not in held
                    was_awake = lifecycle.state is ModelState.SERVING
                    assert await lifecycle.sleep() == (is_idle and was_awake)
                case "two at once":
                    leases = await asyncio.gather(lifecycle.lease(), lifecycle.lease())
                    held += [calls.enter_context(lease) for lease in leases]
                case "die" if state_of(lifecycle) == "serving":
                    dead = lifecycle.current
                    dead.die()
                    held = [version for version in held if version is not dead]
                    clock.now += 60
                    while state_of(lifecycle) == "serving":
                        await asyncio.sleep(0)
                    assert await version_of_a_call(lifecycle) == dead.version
            assert all(version.engine.is_serving for version in held)
            assert len({id(version) for version in places.running}) <= 2
            assert not lifecycle.has_failed
