"""Signals to stop, which are for the server alone.

A terminal sends them to the processes that the server has started as well. Those end when the
server tells them to: calls in progress are answered first.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def blocked_signals() -> Iterator[None]:
    """Block the signals within the `with` block, also in processes that are started in it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_signals() -> None:
    """Ignore the signals in a process that was started with them blocked."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
