"""Finds iterations of the event loop that compute for too long: for tests, benchmarks and fuzzers.

A server with `DRAGOMAN_LOOP_MONITOR=1` in its environment logs each of them with its stack. It
measures the CPU time of the loop's thread, so that a busy machine causes no findings. It also finds
threads that hold Python's lock while they compute, which blocks the loop as well.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

VARIABLE = "DRAGOMAN_LOOP_MONITOR"
MESSAGE = "the event loop was blocked"
LIMIT_SECONDS = 0.05
_SAMPLE_SECONDS = 0.005
_MAX_FRAMES = 60
_CALL = "Handle._run"  # in asyncio's events.py
# A thread held Python's lock if all others computed at most this fraction of its time.
_ALONE = 0.2

_log = logging.getLogger(__name__)
_looking = threading.Lock()

Stack = tuple[tuple[str, int, str], ...]
"""File, line and function of each frame, the innermost last."""


@dataclass
class LoopBlock:
    """A long iteration of the event loop, or a thread that held Python's lock.

    Attributes:
        seconds: CPU time in seconds.
        samples: seconds by the stack sampled at their end.
        thread: name of the thread that computed.
    """

    seconds: float = 0.0
    samples: defaultdict[Stack, float] = field(default_factory=lambda: defaultdict(float))
    thread: str = "event loop"

    def seconds_in(self, folder: Path) -> float:
        """Seconds of code in a folder, and of all code that it called."""
        begin = f"{folder}{os.sep}"
        return sum(
            seconds
            for stack, seconds in self.samples.items()
            if any(file.startswith(begin) for file, *_ in stack)
        )

    @property
    def stack(self) -> str:
        """The stack with the most time, from the event loop's call on."""
        frames = max(self.samples, key=self.samples.__getitem__, default=())
        first = max((index for index, (*_, name) in enumerate(frames) if name == _CALL), default=0)
        return "\n".join(f"{file}:{line} {name}" for file, line, name in frames[first:])


class LoopMonitor:
    """Watches the running event loop within its context.

    Args:
        on_block: called with each block, in the loop's thread or the monitor's.
    """

    def __init__(
        self, on_block: Callable[[LoopBlock], None], limit_seconds: float = LIMIT_SECONDS
    ) -> None:
        self._on_block = on_block
        self._limit = limit_seconds
        self._stopping = threading.Event()
        self._iteration: LoopBlock | None = None
        self._began = 0.0  # in CPU time of the loop's thread
        self._seen = 0.0

    def __enter__(self) -> LoopMonitor:
        """Begin. Only Linux has clocks of other threads."""
        if sys.platform == "linux":
            # An iteration lies between two calls of the selector, for which asyncio has no hook.
            self._selector: Any = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]
            self._select = self._selector.select
            self._selector.select = self._timed_select
            self._loop_thread = threading.get_ident()
            self._begin()
            self._thread = threading.Thread(target=self._sample, name="loop monitor", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        """End; an iteration in progress is not reported."""
        if sys.platform == "linux":
            self._selector.select = self._select
            self._iteration = None
            self._stopping.set()
            self._thread.join()

    def _timed_select(self, timeout: float | None = None) -> Any:
        block, self._iteration = self._iteration, None
        if block is not None:
            block.seconds = time.thread_time() - self._began
            if block.seconds > self._limit:
                self._on_block(block)
        events = self._select(timeout)
        self._begin()
        return events

    def _begin(self) -> None:
        self._began = self._seen = time.thread_time()
        self._iteration = LoopBlock()

    # --- the monitor's thread --------------------------------------------------------------------

    def _sample(self) -> None:
        with open("/proc/thread-self/schedstat", "rb") as file:
            queued, num_woken = _scheduled(file.fileno())
            used, is_over = _seconds_used(), False
            while not is_over:
                asleep = time.monotonic()
                is_over = self._stopping.wait(_SAMPLE_SECONDS)
                waited = time.monotonic() - asleep - _SAMPLE_SECONDS
                frames = _current_frames()
                self._look(frames.get(self._loop_thread))
                used_before, used = used, _seconds_used()
                queued_before, num_before = queued, num_woken
                queued, num_woken = _scheduled(file.fileno())
                # For Python's lock, not for a core. A thread that waits for the lock wakes at each
                # switch interval; one whose virtual machine does not get its processor does not.
                waited = min(
                    waited - (queued - queued_before),
                    (num_woken - num_before) * sys.getswitchinterval(),
                )
                if waited > self._limit:
                    spent = {each: used[each] - used_before.get(each, 0.0) for each in used}
                    self._look_for_holder(spent, frames)

    def _look(self, frame: FrameType | None) -> None:
        """Add the time since the last look to the loop's present stack."""
        block = self._iteration
        if block is None or frame is None or frame.f_code.co_filename == __file__:
            return  # the hook at the start of an iteration is no part of it
        now = time.clock_gettime(time.pthread_getcpuclockid(self._loop_thread))
        block.samples[_stack_of(frame)] += now - self._seen
        self._seen = now

    def _look_for_holder(self, spent: Mapping[int, float], frames: Mapping[int, FrameType]) -> None:
        """Report a thread that computed alone while this one waited for Python's lock."""
        holder = max(spent, key=spent.__getitem__)
        seconds = spent[holder]
        others = sum(spent.values()) - seconds
        if holder == self._loop_thread or seconds < self._limit or others > _ALONE * seconds:
            return
        names = {each.ident: each.name for each in threading.enumerate()}
        block = LoopBlock(seconds, thread=names.get(holder, str(holder)))
        if holder in frames:
            block.samples[_stack_of(frames[holder])] = seconds
        self._on_block(block)


async def watch() -> None:
    """Log blocks until cancelled, if the environment variable is set."""
    if not os.environ.get(VARIABLE):
        return
    with LoopMonitor(log):
        await asyncio.get_running_loop().create_future()


def log(block: LoopBlock) -> None:
    """Log a block as a defect."""
    about = {"seconds": round(block.seconds, 3), "computing": block.thread, "stack": block.stack}
    _log.error(MESSAGE, extra=about)


def _stack_of(frame: FrameType) -> Stack:
    found: list[tuple[str, int, str]] = []
    outer: FrameType | None = frame
    while outer is not None and len(found) < _MAX_FRAMES:
        found.append((outer.f_code.co_filename, outer.f_lineno or 0, outer.f_code.co_qualname))
        outer = outer.f_back
    return tuple(reversed(found))


def _current_frames() -> dict[int, FrameType]:
    """The frame of each thread.

    CPython 3.11 holds a lock of its own meanwhile. If garbage is collected then, and what that runs
    gives up Python's lock, a thread that gets it and wants the other stops the process for ever.
    """
    with _looking:
        is_enabled = gc.isenabled()
        gc.disable()
        try:
            return sys._current_frames()
        finally:
            if is_enabled:
                gc.enable()


def _seconds_used() -> dict[int, float]:
    """CPU time of each thread that runs Python, by its identifier."""
    found = {}
    for thread in _current_frames():  # only running threads have a clock
        found[thread] = time.clock_gettime(time.pthread_getcpuclockid(thread))
    return found


def _scheduled(schedstat: int) -> tuple[float, int]:
    """The time that a thread has waited for a core, and the number of times that it got one."""
    _, nanoseconds, times = os.pread(schedstat, 100, 0).split()
    return int(nanoseconds) / 1e9, int(times)
