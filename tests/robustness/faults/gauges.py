"""Resources of a server's processes: memory, descriptors, threads; from /proc (Linux)."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from bench.processes import descendants, proportional_bytes


@dataclass(frozen=True)
class Held:
    """Resources of several processes together.

    Attributes:
        memory: bytes, of which each process counts its share (PSS).
        descriptors: open files and sockets.
        threads: number of threads of all processes.
        processes: number of processes.
    """

    memory: int
    descriptors: int
    threads: int
    processes: int


# How much more a server may hold after a fault than before. Memory: what arenas of ONNX Runtime
# take for batches of shapes that had not come before. Descriptors, threads: connections that the
# load made anew and that the server has not closed yet.
MOST_MORE = Held(memory=96 * 2**20, descriptors=24, threads=16, processes=0)


def growth_finds(before: Held, after: Held, most: Held = MOST_MORE) -> list[str]:
    """Resources of which `after` has more than `before` and `most` allow."""
    found = []
    for name in ("memory", "descriptors", "threads", "processes"):
        had, has, bound = (getattr(held, name) for held in (before, after, most))
        if has > had + bound:
            found.append(f"{name}: {has:,} after {had:,}, of which {bound:,} more are allowed")
    return found


def held_by(server: int) -> Held:
    """Resources of the server's process and its descendants."""
    memory = descriptors = threads = processes = 0
    for pid in family(server):
        folder = Path(f"/proc/{pid}")
        with contextlib.suppress(OSError):  # it ended meanwhile
            memory += proportional_bytes(pid)
            descriptors += len(os.listdir(folder / "fd"))
            threads += len(os.listdir(folder / "task"))
            processes += 1
    return Held(memory, descriptors, threads, processes)


def family(pid: int) -> list[int]:
    """A process and all its descendants."""
    return [pid, *descendants(pid)]


def model_process(server: int) -> int:
    """The process of the server's model.

    Raises:
        ProcessLookupError: it has none.
    """
    return _process_of(server, b"\0service.worker\0", "model's")


def front_process(server: int) -> int:
    """A process that holds connections for the server.

    Raises:
        ProcessLookupError: it has none.
    """
    return _process_of(server, b".front_processes.process\0", "front")


def _process_of(server: int, module: bytes, kind: str) -> int:
    for pid in family(server):
        with contextlib.suppress(OSError):
            if module in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
    raise ProcessLookupError(f"process {server} has no {kind} process")


def is_running(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
