"""Work on the event loop: short pieces, clients in turn, new calls first."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import numpy as np
import pytest

from service.common.fairness import (
    MAX_PREPARING,
    FairLoop,
    arrived,
    begin_preparing,
    checkpoint,
    in_thread,
    on_loop,
    works_for,
)
from service.observability.loop_monitor import LoopBlock, LoopMonitor

PIECE_SECONDS = 0.005


def compute() -> None:
    ends = time.perf_counter() + PIECE_SECONDS
    while time.perf_counter() < ends:
        pass


class Iterations:
    """Counts the iterations of the running event loop."""

    def __init__(self) -> None:
        self.count = 0

    @asynccontextmanager
    async def counted(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._count())
        await asyncio.sleep(0)
        try:
            yield
        finally:
            task.cancel()

    async def _count(self) -> None:
        while True:
            self.count += 1
            await asyncio.sleep(0)


async def by_checkpoint() -> None:
    await checkpoint()
    compute()


async def as_piece() -> None:
    await on_loop(compute)


@pytest.mark.parametrize("piece", [by_checkpoint, as_piece])
async def test_an_iteration_has_one_long_piece_of_work(
    piece: Callable[[], Awaitable[None]],
) -> None:
    iterations, seen = Iterations(), []

    async def work() -> None:
        await piece()
        seen.append(iterations.count)

    async with iterations.counted():
        await asyncio.gather(*(work() for _ in range(10)))
    assert len(set(seen)) == 10


async def test_short_pieces_share_an_iteration() -> None:
    iterations = Iterations()
    async with iterations.counted():
        before = iterations.count
        for _ in range(10):
            await checkpoint()
        assert iterations.count - before < 10


@pytest.mark.parametrize("piece", [by_checkpoint, as_piece])
async def test_clients_take_turns(piece: Callable[[], Awaitable[None]]) -> None:
    order: list[str] = []

    async def work(client: str, count: int) -> None:
        works_for(client)
        for _ in range(count):
            await piece()
            order.append(client)

    many = [asyncio.create_task(work("many", 10)) for _ in range(20)]
    await asyncio.sleep(0)
    await asyncio.gather(work("one", 10), work("other", 10))
    for task in many:
        task.cancel()
    await asyncio.gather(*many, return_exceptions=True)
    assert order.count("many") <= 14  # one for each of the others, and some before


async def test_what_is_cancelled_gives_its_turn_away() -> None:
    first = asyncio.create_task(as_piece())
    gone = asyncio.create_task(as_piece())
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(first, as_piece())
    assert gone.cancelled()


async def test_calls_that_are_cancelled_together_end_one_after_another() -> None:
    iterations, seen = Iterations(), []

    async def call() -> None:
        try:
            await begin_preparing()
        except asyncio.CancelledError:
            compute()
            seen.append(iterations.count)
            raise

    ends = []
    for number in range(MAX_PREPARING):
        works_for(f"client {number}")
        ends.append(await begin_preparing())
    calls = [asyncio.create_task(call()) for _ in range(10)]
    async with iterations.counted():
        for task in calls:
            task.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
    assert len(set(seen)) == 10
    for end in ends:
        end()
    (await begin_preparing())()


async def test_clients_take_turns_to_prepare_long_texts() -> None:
    order: list[str] = []

    async def call(client: str) -> None:
        works_for(client)
        end = await begin_preparing()
        order.append(client)
        await asyncio.sleep(0)
        end()

    many = [asyncio.create_task(call("many")) for _ in range(10)]
    await asyncio.sleep(0)
    await asyncio.gather(call("one"), call("other"), *many)
    assert len(order) == 12
    assert {"one", "other"} < set(order[:6])


async def test_calls_that_arrive_come_before_work_that_waits() -> None:
    iterations = Iterations()
    async with iterations.counted():
        await as_piece()  # so that the next one is not late
        arrived("another")
        before = iterations.count
        await as_piece()
        assert iterations.count - before >= 2


async def test_work_waits_between_the_calls_of_a_burst() -> None:
    now = 1.0
    fair = FairLoop(lambda: now)
    assert not fair.must_wait()  # so that the next one is not late

    async def has_to_wait(seconds: float) -> bool:
        nonlocal now
        await asyncio.sleep(0)  # an iteration in which no call arrives
        now += seconds
        return fair.must_wait()

    fair.arrived()
    assert not await has_to_wait(0.0001), "one call is no burst"
    fair.arrived()
    assert await has_to_wait(0.0004)
    assert not await has_to_wait(0.0002), "the burst is over"
    waits = 0
    fair.arrived()
    fair.arrived()
    while await has_to_wait(0.0004):
        fair.arrived()
        waits += 1
    assert 0.018 < waits * 0.0004 < 0.021, "work gets a turn while a burst lasts"


async def test_work_gets_on_while_calls_arrive() -> None:
    is_over = False

    async def call_after_call() -> None:
        while not is_over:
            arrived("many")
            await asyncio.sleep(0)

    calls = asyncio.create_task(call_after_call())
    for _ in range(5):
        await as_piece()
    is_over = True
    await calls


@pytest.mark.usefixtures("no_collections")
async def test_short_products_in_the_thread_leave_the_lock_to_the_event_loop() -> None:
    vector, table = np.ones(800, np.float32), np.ones((800, 139), np.float32)

    def piece() -> None:
        for _ in range(16):
            sum(
                range(4000)
            )  # holds the lock, for less than the interval after which it is demanded
            vector @ table  # releases it for a moment

    blocks: list[LoopBlock] = []
    with LoopMonitor(blocks.append):
        works = [asyncio.create_task(in_thread(piece, "client")) for _ in range(400)]
        while not all(work.done() for work in works):
            await asyncio.sleep(0.001)
    assert blocks == []
