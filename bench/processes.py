"""A measurement in a process of its own, so that its memory is its own."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TypeVar

_Case = TypeVar("_Case")
_Cost = TypeVar("_Cost")


def in_own_process(measure: Callable[[_Case], _Cost], case: _Case) -> _Cost:
    """`measure(case)` in a new process."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(measure, case).result()


class PeakMemory:
    """Peak memory of this process within a `with` block, less its memory before.

    Attributes:
        peak_bytes: peak memory in bytes, set when the `with` ends.
    """

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._before = 0

    def __enter__(self) -> PeakMemory:
        self._before = status_bytes("VmRSS")
        # Sets VmHWM, the peak, to the present value.
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        return self

    def __exit__(self, *exc: object) -> None:
        self.peak_bytes = max(0, status_bytes("VmHWM") - self._before)


def status_bytes(name: str, pid: int | None = None) -> int:
    """Bytes that /proc/PID/status gives under this name; by default of this process."""
    path = Path("/proc", "self" if pid is None else str(pid), "status")
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"{path} has no {name}")


def descendants(pid: int | None = None) -> list[int]:
    """All descendants of a process, by default of this one."""
    found: list[int] = []
    for file in Path("/proc", "self" if pid is None else str(pid), "task").glob("*/children"):
        with contextlib.suppress(OSError):  # it has ended
            for child in map(int, file.read_text(encoding="ascii").split()):
                found += [child, *descendants(child)]
    return found


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and of those that it has started."""
    ticks = 0
    for each in (pid, *descendants(pid)):
        with contextlib.suppress(OSError):  # it has ended
            stat = Path(f"/proc/{each}/stat").read_text(encoding="utf-8")
            ticks += sum(map(int, stat.rpartition(")")[2].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def proportional_bytes(pid: int) -> int:
    """Memory of a process, each shared page divided by its users.

    Raises:
        OSError: the process has ended.
    """
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    (pss,) = (line for line in rollup.splitlines() if line.startswith("Pss:"))
    return int(pss.split()[1]) * 1024


def mapped_bytes(pid: int, ending: str) -> tuple[int, int]:
    """Memory of mapped files whose paths end with `ending`, removed files included.

    Returns:
        The resident bytes, and the same with each shared page divided by its users.

    Raises:
        OSError: the process has ended.
    """
    counted = {"Rss:": 0, "Pss:": 0}
    is_meant = False
    for line in Path(f"/proc/{pid}/smaps").read_text(encoding="utf-8").splitlines():
        name, *rest = line.split()
        if not name.endswith(":"):  # a mapping's head: addresses, ..., path
            is_meant = line.removesuffix(" (deleted)").endswith(ending)
        elif is_meant and name in counted:
            counted[name] += int(rest[0]) * 1024
    return counted["Rss:"], counted["Pss:"]
