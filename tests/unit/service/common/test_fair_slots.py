import asyncio
import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.common.fair_slots import FairSlots


class Work:
    """Calls that hold a slot until they are told to end."""

    def __init__(self, slots: FairSlots) -> None:
        self.slots = slots
        self.begun: list[str] = []
        self._ends: dict[str, asyncio.Event] = {}

    def start(self, name: str) -> asyncio.Task[None]:
        """A call of the client that its name begins with."""
        self._ends[name] = asyncio.Event()
        return asyncio.create_task(self._hold(name))

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await turns()

    async def _hold(self, name: str) -> None:
        async with self.slots.slot(name[0]):
            self.begun.append(name)
            await self._ends[name].wait()


async def turns() -> None:
    """Let all tasks run until they wait."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_clients_take_turns() -> None:
    work = Work(FairSlots(1))
    tasks = [work.start(name) for name in ("a1", "a2", "a3", "b1", "c1", "b2")]
    await turns()
    assert (work.begun, work.slots.num_waiting) == (["a1"], 5)
    for index in range(6):
        await work.end(work.begun[index])
    assert work.begun == ["a1", "a2", "b1", "c1", "a3", "b2"]
    assert work.slots.num_waiting == 0
    await asyncio.gather(*tasks)


async def test_one_client_leaves_a_slot_for_others() -> None:
    work = Work(FairSlots(3))
    tasks = [work.start(name) for name in ("a1", "a2", "a3", "b1", "b2")]
    await turns()
    assert work.begun == ["a1", "a2", "b1"]
    await work.end("b1")  # the client that has two may not have the third
    assert work.begun[3:] == ["b2"]
    await work.end("b2")
    assert work.begun[4:] == []
    await work.end("a1")
    assert work.begun[4:] == ["a3"]
    for name in ("a2", "a3"):
        await work.end(name)
    await asyncio.gather(*tasks)


async def test_a_call_that_is_cancelled_leaves_its_place() -> None:
    work = Work(FairSlots(1))
    first, second, third = (work.start(name) for name in ("a1", "b1", "c1"))
    await turns()
    second.cancel()
    await turns()
    assert work.slots.num_waiting == 1
    await work.end("a1")
    assert work.begun == ["a1", "c1"]
    third.cancel()  # holds a slot, and gives it back
    fourth = work.start("d1")
    await turns()
    assert work.begun[2:] == ["d1"]
    await work.end("d1")
    for task in (first, second, third, fourth):
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_slot_that_comes_with_the_cancellation_is_passed_on() -> None:
    work = Work(FairSlots(1))
    async with work.slots.slot("a"):
        first, second = work.start("b1"), work.start("c1")
        await turns()
    first.cancel()  # the slot is its own by now, but it does not know
    await turns()
    assert (work.begun, work.slots.num_waiting) == (["c1"], 0)
    await work.end("c1")
    await second
    assert first.cancelled()


async def test_calls_that_are_cancelled_while_a_slot_comes_back_are_passed_over() -> None:
    work = Work(FairSlots(1))
    names = ("a1", "b1", "b2", "c1", "d1")
    first, *cancelled, last = (work.start(name) for name in names)
    await turns()
    for task in (first, *cancelled):  # as by a connection that ends
        task.cancel()
    await turns()
    assert (work.begun, work.slots.num_waiting) == (["a1", "d1"], 0)
    await work.end("d1")
    await last
    again = work.start("a2")
    await work.end("a2")
    await again


@given(data=st.data(), count=st.integers(1, 3))
@settings(max_examples=50)
async def test_whatever_is_cancelled_all_slots_come_back(data: st.DataObject, count: int) -> None:
    work = Work(FairSlots(count))
    names = [f"{client}{number}" for number in range(4) for client in "abc"]
    tasks = {name: work.start(name) for name in names}
    await turns()
    while tasks:
        for name in data.draw(st.lists(st.sampled_from(sorted(tasks)), min_size=1, unique=True)):
            tasks.pop(name).cancel()
        for _ in range(data.draw(st.integers(0, 3))):
            await asyncio.sleep(0)
    await turns()
    assert work.slots.num_waiting == 0
    held = [work.start(f"{client}9") for client in "abc"[:count]]
    await turns()
    assert work.begun[-count:] == [f"{client}9" for client in "abc"[:count]]
    for client in "abc"[:count]:
        await work.end(f"{client}9")
    await asyncio.gather(*held)


@pytest.mark.parametrize("count", [1, 2, 5])
async def test_all_slots_come_back(count: int) -> None:
    slots = FairSlots(count)
    active = most = 0

    async def hold(number: int) -> None:
        nonlocal active, most
        async with slots.slot(f"client {number % 3}"):
            active += 1
            most = max(most, active)
            for _ in range(number % 4):
                await asyncio.sleep(0)
            active -= 1

    tasks = [asyncio.create_task(hold(number)) for number in range(60)]
    await asyncio.sleep(0)
    for task in tasks[::7]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert most <= count
    assert slots.num_waiting == 0
    for _ in range(2):  # as at the beginning
        async with slots.slot("a"):
            pass
