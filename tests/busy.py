"""Runs a command, such as the tests, on a busy machine: `python -m tests.busy COMMAND ...`.

Beside it, two processes compute and a third one allocates memory until the command has ended. They
end as well if this process is interrupted or killed. The exit status is the command's.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence

_ALLOCATED_BYTES = 2**28
_PAGE_BYTES = 4096


def run(command: Sequence[str]) -> int:
    """Run the command beside the load; returns its exit status."""
    with _load(("compute", "compute", "allocate")):
        process = subprocess.Popen(command)
        # A terminal sends Ctrl-C to the command as well, which ends in order.
        signal.signal(signal.SIGINT, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: process.send_signal(signal.SIGINT))
        return process.wait()


@contextlib.contextmanager
def _load(kinds: Sequence[str]) -> Iterator[None]:
    started: list[subprocess.Popen[bytes]] = []
    parent = str(os.getpid())
    try:
        for kind in kinds:
            started.append(subprocess.Popen([sys.executable, __file__, f"--{kind}", parent]))
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def _compute(parent: int) -> None:
    while os.getppid() == parent:
        sum(range(100_000))


def _allocate(parent: int) -> None:
    while os.getppid() == parent:
        memory = bytearray(_ALLOCATED_BYTES)
        memory[::_PAGE_BYTES] = b"\1" * len(memory[::_PAGE_BYTES])


if __name__ == "__main__":
    match sys.argv[1:]:
        case [("--compute" | "--allocate") as kind, parent]:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            (_compute if kind == "--compute" else _allocate)(int(parent))
        case command:
            sys.exit(run(command))
