"""Handlers of SIGINT and SIGTERM for a part of a program."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def on_stop_signal(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Call `handler` at SIGINT and SIGTERM; for the main thread."""
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
