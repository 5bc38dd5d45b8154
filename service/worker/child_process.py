"""Processes that the server starts, each connected to it by a socket.

Signals to stop are for the server alone. A terminal sends them to these processes as well, which
end when the server tells them to: calls in progress are answered first.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def start_child(module: str, *arguments: str) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a module in a process, which calls `ignore_signals`.

    Args:
        module: name of the module.
        arguments: its arguments after the first one, which is its descriptor of the socket.

    Returns:
        The process, and the socket to it.

    Raises:
        OSError: it can't be started.
    """
    ours, theirs = socket.socketpair()
    with theirs, _blocked_signals():
        try:
            process = subprocess.Popen(
                # With this process's module path.
                [sys.executable, "-P", "-m", module, str(theirs.fileno()), *arguments],
                env={
                    # Heaps of its own for each thread would take 30 MiB more with Transformer base,
                    # and nothing gets faster (`bench/NOTES.md`).
                    "MALLOC_ARENA_MAX": "1",
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path),
                },
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        except OSError:
            ours.close()
            raise
    return process, ours


def ignore_signals() -> None:
    """Ignore the signals in a process that was started with them blocked."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


@contextlib.contextmanager
def _blocked_signals() -> Iterator[None]:
    """Block the signals within the `with` block, also in processes that are started in it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
