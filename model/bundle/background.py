"""Runs work at a low priority, so that serving comes first.

On Linux each thread has a niceness of its own. A thread that it starts inherits it, and without
privileges it can be raised, but never lowered again. So such work gets a thread of its own.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_LOWEST_PRIORITY = 19


def in_background(work: Callable[[], T], niceness: int) -> T:
    """The result of `work`, from a thread with this niceness added; for 0, from this thread."""
    if not niceness:
        return work()

    def nicely() -> T:
        lower_priority(niceness)
        return work()

    return in_own_thread(nicely)


def in_own_thread(work: Callable[[], T]) -> T:
    """The result of `work`, from a new thread."""
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        return executor.submit(work).result()


def lower_priority(niceness: int) -> None:
    """Raise the niceness of this thread and of those that it starts, on Linux."""
    if sys.platform != "linux" or not niceness:
        return
    thread = threading.get_native_id()
    with contextlib.suppress(OSError):  # a sandbox may forbid it
        present = os.getpriority(os.PRIO_PROCESS, thread)
        os.setpriority(os.PRIO_PROCESS, thread, min(present + niceness, _LOWEST_PRIORITY))
