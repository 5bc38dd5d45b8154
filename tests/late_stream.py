"""A pretended device on the CPU that is as late as allowed."""

from __future__ import annotations

import ctypes
import threading

import numpy as np

from bench.gpu.host_stream import HostStream
from service.runtime.cuda.stream import Memory


class LateStream(HostStream):
    """Delays copies to the host until they are waited for, and while it is held.

    Copies have the content of the device at the time of enqueueing, since graphs run at once on a
    CPU. A change of pinned memory before it is copied is recorded.

    Attributes:
        num_copies: number of copies to the host launched so far.
        complaints: descriptions of accesses that were too early.
        failing: errors of the next waits, one for each.
    """

    def __init__(self, *, held: bool = False) -> None:
        super().__init__()
        self.num_copies = 0
        self.complaints: list[str] = []
        self.failing: list[Exception] = []
        self._held = held
        self._changed = threading.Condition()
        self._num_events = 0
        self._launched: list[tuple[Memory | None, Memory]] = []  # target (None: to the device)
        self._sources: list[Memory] = []
        self._done = 0
        self._recorded: dict[int, int] = {}

    def copy_in(self, address: int, source: Memory) -> None:
        super().copy_in(address, source)
        with self._changed:
            self._launched.append((None, source.copy()))
            self._sources.append(source)

    def copy_out(self, target: Memory, address: int) -> None:
        found = np.zeros(target.nbytes, np.uint8)
        ctypes.memmove(found.ctypes.data, address, found.nbytes)
        target[:] = 0xFF  # must not be read: NaN, and token -1
        with self._changed:
            self._launched.append((target, found))
            self._sources.append(found)
            self.num_copies += 1
            self._changed.notify_all()

    def new_event(self) -> int:
        self._num_events += 1
        return self._num_events

    def record(self, event: int) -> None:
        with self._changed:
            self._recorded[event] = len(self._launched)

    def wait(self, event: int) -> None:
        with self._changed:
            self._do_until(self._recorded.get(event, 0))
            if self.failing:
                raise self.failing.pop(0)

    def synchronize(self) -> None:
        with self._changed:
            self._do_until(len(self._launched))

    def let_go(self) -> None:
        """Stop holding work."""
        with self._changed:
            self._held = False
            self._changed.notify_all()

    def hold(self) -> None:
        """Hold all work."""
        with self._changed:
            self._held = True

    def await_copies(self, count: int) -> bool:
        """Wait until `count` copies to the host have been launched; returns whether they were."""
        with self._changed:
            return self._changed.wait_for(lambda: self.num_copies >= count, timeout=60)

    def _do_until(self, end: int) -> None:
        self._changed.wait_for(lambda: not self._held or self._done >= end)
        while self._done < end:
            target, found = self._launched[self._done]
            if target is not None:
                target[:] = found
            elif not np.array_equal(self._sources[self._done], found):
                self.complaints.append("pinned memory was changed before it was copied")
            self._done += 1
