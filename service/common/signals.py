"""The signals of a server: SIGTERM and SIGINT stop it, SIGHUP replaces its models.

SIGHUP stops it too if its terminal was closed, unless it was started to ignore that (`nohup`).

Imports little, so that signals are handled before the server's modules are imported.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable
from typing import NoReturn

_was_asked = False

_log = logging.getLogger("dragoman.server")


def handle_signals(
    on_stop: Callable[[], object],
    on_reload: Callable[[], object],
    handle: Callable[[int, Callable[[], object]], object],
) -> None:
    """Handle the signals of a server.

    Args:
        on_stop: called at a signal to stop, and when the terminal is closed.
        on_reload: called at a signal to replace models.
        handle: sets a handler, such as the `add_signal_handler` of an event loop.
    """
    outlives_terminal = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    had_terminal = _has_terminal() and not outlives_terminal

    def on_hangup() -> None:
        if had_terminal and not _has_terminal():
            on_stop()
        else:
            on_reload()

    for number in (signal.SIGTERM, signal.SIGINT):
        handle(number, on_stop)
    handle(signal.SIGHUP, on_hangup)


def end_at_signals() -> None:
    """End this process with status 0 at a signal to stop, until other handlers replace these.

    Without them, such a signal would end it with another status, or be lost: the kernel ignores
    signals without a handler to the first process of a container. Models that are not loaded yet
    need no replacement.
    """

    def handle(number: int, act: Callable[[], object]) -> None:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: act())

    handle_signals(_end, lambda: None, handle)


def end_if_asked() -> None:
    """End this process if a signal to stop has come.

    An exception of a handler is lost if it interrupts a callback of Python's own, such as those of
    imports.
    """
    if _was_asked:
        _end()


def _end() -> NoReturn:
    global _was_asked
    _was_asked = True
    _log.info("stopped before it served")
    raise SystemExit(0)


def _has_terminal() -> bool:
    """Whether the process has an open terminal, which sends SIGHUP when it is closed."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
