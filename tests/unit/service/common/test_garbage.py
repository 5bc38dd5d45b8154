"""Garbage that has outlived collections goes when no call is in progress."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from service.common.garbage import collect_in_pauses


class Node:
    """A node of a cycle."""

    def __init__(self) -> None:
        self.next = self


async def collect_old_garbage(*, is_idle: bool, looks: int) -> bool:
    """Whether a cycle that has outlived collections is gone after the collector's looks."""
    node, gone, looked = Node(), asyncio.Event(), asyncio.Queue[None]()
    for _ in range(11):
        gc.collect(1)
    alive = weakref.ref(node, lambda _: gone.set())
    del node

    def look() -> bool:
        looked.put_nowait(None)
        return is_idle

    collector = asyncio.create_task(collect_in_pauses(look, 0.0))
    for _ in range(looks):
        await looked.get()
    for _ in range(5):  # some more iterations of the collector
        await asyncio.sleep(0)
    collector.cancel()
    return gone.is_set() and alive() is None


@pytest.mark.parametrize("is_idle", [True, False])
async def test_old_garbage_is_collected_in_pauses_only(is_idle: bool) -> None:
    gc.collect()
    before = gc.get_threshold()
    gc.set_threshold(2000, 3, 1000)
    try:
        assert await collect_old_garbage(is_idle=is_idle, looks=1) is is_idle
    finally:
        gc.set_threshold(*before)


async def test_a_disabled_collector_stays_disabled() -> None:
    gc.disable()
    try:
        assert not await collect_old_garbage(is_idle=True, looks=0)
    finally:
        gc.enable()
