import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from service.observability import loop_monitor
from service.observability.loop_monitor import LoopBlock, LoopMonitor

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs clocks of other threads")


def compute(seconds: float) -> None:
    """Compute for some time on this thread's clock."""
    ends = time.thread_time() + seconds
    while time.thread_time() < ends:
        pass


def hold_the_lock() -> int:
    """Compute in one call of C, which no other thread interrupts."""
    return sum(range(20_000_000))


async def blocks_of(*work: Callable[[], object]) -> list[LoopBlock]:
    """The blocks that are found while an event loop calls each of these in turn."""
    blocks: list[LoopBlock] = []
    with LoopMonitor(blocks.append):
        for each in work:
            each()
            await asyncio.sleep(0)
        await asyncio.sleep(0)
    return blocks


async def test_a_long_computation_is_found_with_its_stack() -> None:
    [block] = await blocks_of(lambda: compute(0.1))
    assert block.seconds >= 0.1
    assert block.stack.splitlines()[-1].endswith("compute")
    assert block.seconds_in(Path(__file__).parent) > 0.05
    assert block.seconds_in(Path(loop_monitor.__file__).parent) == 0.0


async def test_short_computations_and_waiting_are_not() -> None:
    assert not await blocks_of(*[lambda: compute(0.01)] * 20, lambda: time.sleep(0.2))


async def test_so_is_a_thread_that_holds_the_lock() -> None:
    blocks: list[LoopBlock] = []
    with LoopMonitor(blocks.append):
        for _ in range(50):  # on a busy machine, the monitor's thread may have waited for a core
            if not blocks:
                await asyncio.to_thread(hold_the_lock)
    assert blocks[0].stack.splitlines()[-1].endswith("hold_the_lock")
    assert blocks[0].thread != "event loop"


async def test_threads_that_share_the_lock_are_not() -> None:
    blocks: list[LoopBlock] = []
    with LoopMonitor(blocks.append):
        await asyncio.gather(*(asyncio.to_thread(compute, 0.2) for _ in range(3)))
    assert blocks == []


async def test_the_loop_is_as_before_afterwards() -> None:
    select = asyncio.get_running_loop()._selector.select  # type: ignore[attr-defined]
    await blocks_of()
    assert asyncio.get_running_loop()._selector.select == select  # type: ignore[attr-defined]
