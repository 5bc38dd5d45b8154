"""CPU time that other programs on this machine took during a run."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_STAT = Path("/proc/stat")


@dataclass(frozen=True)
class HostTimes:
    """CPU time since the machine started, in seconds over all cores.

    Attributes:
        busy: time of all processes and the kernel.
        stolen: time in which a virtual machine was ready to run and its host did something else.
        own: time of this process, which is not the load generator's.
        when: time of reading, by `time.monotonic`.
    """

    busy: float
    stolen: float
    own: float
    when: float

    def until(self, later: HostTimes) -> dict[str, float]:
        """The CPU time from here to `later`, as plain JSON values."""
        return {
            "seconds": later.when - self.when,
            "busy_seconds": later.busy - self.busy,
            "stolen_seconds": later.stolen - self.stolen,
            "own_seconds": later.own - self.own,
        }


def read_times(stat: Path = _STAT) -> HostTimes | None:
    """The times now; None where /proc/stat is missing (all but Linux)."""
    try:
        fields = stat.read_text(encoding="ascii").partition("\n")[0].split()[1:9]
        user, nice, system, _, _, irq, softirq, stolen = map(int, fields)
    except (OSError, ValueError):
        return None
    tick = os.sysconf("SC_CLK_TCK")
    busy = (user + nice + system + irq + softirq) / tick
    return HostTimes(busy, stolen / tick, time.process_time(), time.monotonic())


def other_cores(spent: Mapping[str, Any], generator_seconds: float, server_cores: float) -> float:
    """Cores that programs other than the server and the generator used, or the host stole.

    Args:
        generator_seconds: CPU time of the load generator.
    """
    seconds = spent["seconds"]
    if not seconds:
        return 0.0
    busy = spent["busy_seconds"] + spent["stolen_seconds"]
    known = spent["own_seconds"] + generator_seconds + server_cores * seconds
    return float(max(0.0, (busy - known) / seconds))
