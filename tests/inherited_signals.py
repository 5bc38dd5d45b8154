"""Undoes what `nohup make test` and `make test &` do to the processes that tests start."""

from __future__ import annotations

import signal
from types import FrameType


def handle_ignored_signals() -> None:
    """Handle SIGHUP and SIGINT without an action if this process was started to ignore them.

    A child inherits that a signal is ignored, but not its handler. Otherwise a test that sends such
    a signal to a command would wait forever.
    """
    for number in (signal.SIGHUP, signal.SIGINT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _do_nothing)


def _do_nothing(number: int, frame: FrameType | None) -> None:
    """Handle a signal without an action."""
