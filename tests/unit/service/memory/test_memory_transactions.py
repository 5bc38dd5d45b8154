"""Transactions of memories are bounded by time, so that others write between those of an import."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from service.common.database import open_tables, transaction
from service.errors import InvalidArgumentError
from service.memory import tables
from service.memory.memory_translator import LookUp
from service.memory.pairs import TextPair
from service.memory.store import TranslationMemories
from service.translation.results import MemoryMatch
from tests.clock import Clock

NUM_PAIRS = 60


class TickingClock(Clock):
    """A clock by which everything takes 30 ms."""

    def __call__(self) -> float:
        self.now += 0.03
        return self.now


def pairs(count: int, word: str = "Line") -> list[TextPair]:
    return [TextPair(f"{word} number {i}.", "x", "en", "de") for i in range(count)]


@contextlib.asynccontextmanager
async def opened(path: Path) -> AsyncIterator[TranslationMemories]:
    store = TranslationMemories(str(path / "memories.db"), TickingClock())
    await store.start()
    try:
        yield store
    finally:
        await store.stop()


async def test_a_pair_is_added_between_those_of_an_import(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.create("a", "m")
        importing = asyncio.create_task(store.add("a", "m", pairs(NUM_PAIRS)))
        while not (await store.find("a", "m")).num_pairs:
            await asyncio.sleep(0)
        assert await store.add("a", "m", pairs(1, "Other")) == 1
        assert (await store.find("a", "m")).num_pairs < NUM_PAIRS / 2
        assert await importing == NUM_PAIRS
        assert (await store.find("a", "m")).num_pairs == NUM_PAIRS + 1


async def test_with_a_bad_pair_nothing_is_added(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.create("a", "m")
        with pytest.raises(InvalidArgumentError, match="source_text: is empty"):
            await store.add("a", "m", [*pairs(NUM_PAIRS), TextPair(" ", "x", "en", "de")])
        assert (await store.find("a", "m")).num_pairs == 0


def test_removing_a_memory_takes_some_pairs_at_a_time(tmp_path: Path) -> None:
    clock = TickingClock()
    with contextlib.closing(
        open_tables(tmp_path / "memories.db", tables.VERSION, tables.TABLES)
    ) as database:
        database.execute("INSERT INTO memories (owner, name, created) VALUES ('a', 'm', 0)")
        left = pairs(20)
        while left:
            num_taken, num_new = tables.add_some(database, "a", "m", left, clock)
            assert 0 < num_taken == num_new <= 2
            left = left[num_taken:]
        tables.delete_memory(database, 1)
        counts = [20]
        while tables.remove_some(database, 500, clock):
            [(count,)] = database.execute("SELECT count(*) FROM pairs")
            counts.append(count)
        assert counts == [*range(20, -1, -2), 0]


class SlowSearch:
    """A memory without pairs, in which each look-up takes 8 ms of a clock's time."""

    def __init__(self, clock: Clock) -> None:
        self.num_searches = 0
        self._clock = clock

    def exact(self, text: str) -> MemoryMatch | None:
        self._clock.now += 0.008
        self.num_searches += 1
        return None

    def similar(self, text: str) -> list[MemoryMatch]:
        return []


def test_look_ups_take_turns_of_some_milliseconds() -> None:
    clock = Clock()
    search = SlowSearch(clock)
    look_up = LookUp(["A line.\n" * 50], "en", splits=True, links=False, clock=clock)
    parts = []
    while not look_up.is_done:
        before = search.num_searches
        parts += look_up.some(search)
        assert search.num_searches - before <= 2
    assert search.num_searches >= 50
    assert "".join(part.part.separator + part.part.text for part in parts) == "A line.\n" * 50


def test_a_server_writes_in_the_pauses_of_another_one(tmp_path: Path) -> None:
    """The other one's times are such that SQLite's own looks, 100 ms apart, see none of them."""
    path = tmp_path / "memories.db"
    has_begun, has_written = threading.Event(), threading.Event()

    def write_again_and_again() -> bool:
        with contextlib.closing(open_tables(path, 1, tables.TABLES, is_shared=True)) as theirs:
            for _ in range(40):
                with transaction(theirs):
                    has_begun.set()
                    time.sleep(0.04)
                if has_written.is_set():
                    return True
                time.sleep(0.01)
        return False

    with (
        contextlib.closing(open_tables(path, 1, tables.TABLES, is_shared=True)) as ours,
        ThreadPoolExecutor(1) as thread,
    ):
        others = thread.submit(write_again_and_again)
        assert has_begun.wait(30)
        with transaction(ours):
            has_written.set()
        assert others.result()
