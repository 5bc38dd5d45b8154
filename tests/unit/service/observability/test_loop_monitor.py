import asyncio
import contextlib
import ctypes
import gc
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.observability import loop_monitor
from service.observability.loop_monitor import LoopBlock, LoopMonitor

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="needs clocks of other threads"),
    pytest.mark.usefixtures("no_collections"),
]

# An operation of Linux's prctl.
_SET_TIMERSLACK = 29


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

    def is_found() -> bool:
        return any(block.stack.endswith("hold_the_lock") for block in blocks)

    with LoopMonitor(blocks.append):
        for _ in range(50):
            # On a busy machine, the monitor may have waited for a core, or the event loop got the
            # lock before it, and the thread is further.
            if not is_found():
                await asyncio.to_thread(hold_the_lock)
    assert is_found()
    assert "event loop" not in {block.thread for block in blocks}


async def test_threads_that_share_the_lock_are_not() -> None:
    blocks: list[LoopBlock] = []
    with LoopMonitor(blocks.append):
        await asyncio.gather(*(asyncio.to_thread(compute, 0.2) for _ in range(3)))
    assert blocks == []


async def test_a_monitor_that_is_woken_late_finds_nothing() -> None:
    """As on a virtual machine that does not get its processor, while another one computes."""
    blocks: list[LoopBlock] = []
    slack = ctypes.CDLL(None).prctl
    slack(_SET_TIMERSLACK, ctypes.c_ulong(150_000_000))  # nanoseconds; a new thread inherits it
    try:
        monitor = LoopMonitor(blocks.append).__enter__()
    finally:
        slack(_SET_TIMERSLACK, ctypes.c_ulong(0))  # to the default
    with contextlib.ExitStack() as stack:
        stack.push(monitor)
        await asyncio.to_thread(compute, 0.6)
    assert blocks == []


async def test_the_loop_is_as_before_afterwards() -> None:
    select = asyncio.get_running_loop()._selector.select  # type: ignore[attr-defined]
    await blocks_of()
    assert asyncio.get_running_loop()._selector.select == select  # type: ignore[attr-defined]


@pytest.fixture
def collections_while_looking(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether garbage could be collected, each time that frames are looked at."""
    found: list[bool] = []
    look = sys._current_frames

    def noted() -> dict[int, Any]:
        found.append(gc.isenabled())
        return look()

    monkeypatch.setattr(sys, "_current_frames", noted)
    return found


async def test_no_garbage_is_collected_while_frames_are_looked_at(
    collections_while_looking: list[bool],
) -> None:
    gc.enable()
    with LoopMonitor(lambda _: None):
        await asyncio.sleep(0.05)
    assert set(collections_while_looking) == {False}
    assert gc.isenabled()
