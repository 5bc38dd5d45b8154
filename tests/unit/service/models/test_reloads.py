"""Reloads of several models: the right ones are replaced, one at a time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from service.errors import InvalidArgumentError, NotFoundError, StartupError, UnavailableError
from service.models.lifecycle.model_lifecycle import ModelLifecycle
from service.models.lifecycle.reloads import Reload, Reloads
from tests.fake_versions import FakeVersion, Place, Places


@contextlib.asynccontextmanager
async def reloads_of(**models: Places) -> AsyncIterator[Reloads[FakeVersion]]:
    """Models that serve the first of their places each."""
    lifecycles = {name: ModelLifecycle(places.first()) for name, places in models.items()}
    for lifecycle in lifecycles.values():
        await lifecycle.start()
    reloads = Reloads(lifecycles, drain_seconds=60)
    try:
        yield reloads
    finally:
        await reloads.stop()
        for lifecycle in lifecycles.values():
            await lifecycle.stop()
    assert not any(places.running for places in models.values())


def two() -> dict[str, Places]:
    return {name: Places(Place("1"), Place("9"), name=name) for name in ("a", "b")}


async def test_only_bundles_that_changed_are_reloaded() -> None:
    models = two()
    async with reloads_of(**models) as reloads:
        models["b"][0].version = "2"
        assert await reloads.reload() == [Reload("a", "1", "1"), Reload("b", "1", "2", True)]
        assert not any(outcome.was_replaced for outcome in await reloads.reload())


async def test_a_model_that_is_named_is_reloaded_though_nothing_changed() -> None:
    models = two()
    async with reloads_of(**models) as reloads:
        assert await reloads.reload("a") == [Reload("a", "1", "1", True)]
        assert (len(models["a"].opened), len(models["b"].opened)) == (2, 1)


async def test_a_path_becomes_the_model_s() -> None:
    models = two()
    async with reloads_of(**models) as reloads:
        assert await reloads.reload("a", Path("/1")) == [Reload("a", "1", "9", True)]
        models["a"][1].version = "10"
        assert (await reloads.reload())[0] == Reload("a", "9", "10", True)


async def test_a_name_is_needed_with_a_path_unless_there_is_one_model() -> None:
    models = two()
    async with reloads_of(**models) as reloads:
        with pytest.raises(InvalidArgumentError, match="name: is needed with a path"):
            await reloads.reload(bundle=Path("/1"))
        with pytest.raises(NotFoundError) as caught:
            await reloads.reload("x" * 100_000)
        assert len(str(caught.value)) < 200
        with pytest.raises(NotFoundError, match="there are: a, b"):
            await reloads.reload("c")
    async with reloads_of(a=Places(Place("1"), Place("9"), name="a")) as reloads:
        assert await reloads.reload(bundle=Path("/1")) == [Reload("a", "1", "9", True)]


async def test_a_bad_bundle_does_not_keep_the_others() -> None:
    models = two()
    async with reloads_of(**models) as reloads:
        for places in models.values():
            places[0].version = "2"
        models["a"][0].error = StartupError("no such thing")
        bad, good = await reloads.reload()
        assert (bad.was_replaced, bad.version) == (False, "1")
        assert "no such thing" in bad.error
        assert good == Reload("b", "1", "2", True)


async def test_a_defect_is_no_end_of_reloads(caplog: pytest.LogCaptureFixture) -> None:
    models = two()
    async with reloads_of(**models) as reloads:
        running = asyncio.ensure_future(reloads.run())
        models["a"][0].version, models["a"][0].error = "2", ValueError("the secret")
        reloads.ask()
        while "not reloaded: a defect" not in caplog.text:
            await asyncio.sleep(0)
        models["a"][0].error = None
        reloads.ask()
        while models["a"].opened[-1].version != "2":
            await asyncio.sleep(0)
        running.cancel()


async def test_what_changes_during_a_reload_is_not_missed() -> None:
    models = two()
    first, second = models["a"][0], models["b"][0]
    async with reloads_of(**models) as reloads:
        running = asyncio.ensure_future(reloads.run())
        second.is_opening.clear()
        second.may_open.clear()
        second.version = "2"
        reloads.ask()
        await asyncio.to_thread(second.is_opening.wait, 30)  # the first was found unchanged
        first.version = "2"
        reloads.ask()
        reloads.ask()
        second.may_open.set()
        while len(models["a"].opened) < 2:
            await asyncio.sleep(0)
        assert models["b"].opened[-1].version == "2"
        running.cancel()


async def test_a_reload_goes_on_if_its_caller_is_cancelled() -> None:
    models = two()
    place = models["a"][1]
    place.may_open.clear()
    async with reloads_of(**models) as reloads:
        caller = asyncio.ensure_future(reloads.reload("a", Path("/1")))
        await asyncio.to_thread(place.is_opening.wait, 30)
        caller.cancel()
        await asyncio.wait({caller})
        place.may_open.set()
        assert await reloads.reload("b") == [Reload("b", "1", "1", True)]
        assert models["a"].running[-1].version == "9"


async def test_one_version_beyond_the_others_at_most() -> None:
    models = two()
    async with reloads_of(**models) as reloads:
        lifecycles = reloads._models
        with await lifecycles["a"].lease():
            await reloads.reload("a", Path("/1"))
            second = asyncio.ensure_future(reloads.reload("b", Path("/1")))
            with await lifecycles["b"].lease() as version:
                assert version.version == "1"
            assert not models["b"][1].is_opening.is_set()
        assert (await second)[0].version == "9"


async def test_reloads_in_progress_end_as_unavailable_when_the_server_stops() -> None:
    models = two()
    models["a"][1].may_open.clear()
    async with reloads_of(**models) as reloads:
        callers = [asyncio.ensure_future(reloads.reload("a", Path("/1"))) for _ in range(2)]
        await asyncio.to_thread(models["a"][1].is_opening.wait, 30)
        await reloads.stop()
        for caller in callers:
            with pytest.raises(UnavailableError, match="shutting down"):
                await caller
        with pytest.raises(UnavailableError, match="shutting down"):
            await reloads.reload()
        models["a"][1].may_open.set()
        while len(models["a"].running) != 1 or len(models["a"].opened) < 2:
            await asyncio.sleep(0)
