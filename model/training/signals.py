"""Handlers of SIGINT and SIGTERM for a part of a program."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def on_stop_signal(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Call `handler` at SIGINT and SIGTERM; in threads other than the main one, change nothing.

    A shell without job control starts a command in the background to ignore SIGINT. The signal is
    handled nevertheless, so that `kill -INT` ends such a command in order.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
