"""Collectors of process figures: memory and CPU time of model processes, dropped log lines."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from service.observability import logs

_PROC = Path("/proc")
# Fields of /proc/PID/stat after the command's name, counted from the process's state (proc(5)).
_USER_TICKS, _SYSTEM_TICKS, _RESIDENT_PAGES = 11, 12, 21


class ModelProcesses(Collector):
    """Reads memory and CPU time of running model processes at each scrape.

    The server process has `process_cpu_seconds_total` and `process_resident_memory_bytes`.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._pids: dict[str, Sequence[int]] = {}
        registry.register(self)

    def add(self, model: str, pids: Sequence[int]) -> None:
        """Add a model that runs in the child processes `pids`."""
        self._pids[model] = pids

    def remove(self, model: str) -> None:
        """Remove a model before its processes end: others may get their numbers."""
        self._pids.pop(model, None)

    def collect(self) -> Iterator[Metric]:
        """CPU time and resident memory, by model."""
        cpu = CounterMetricFamily(
            "dragoman_model_process_cpu_seconds",
            "CPU time of a model's own processes, summed.",
            labels=["model"],
        )
        memory = GaugeMetricFamily(
            "dragoman_model_process_resident_memory_bytes",
            "Resident memory of a model's own processes, summed; shared weights count in each.",
            labels=["model"],
        )
        for model, pids in list(self._pids.items()):
            ticks = pages = 0
            try:
                for pid in pids:
                    stat = (_PROC / str(pid) / "stat").read_text(encoding="utf-8")
                    fields = stat.rpartition(")")[2].split()
                    ticks += int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])
                    pages += int(fields[_RESIDENT_PAGES])
            except OSError:
                continue
            cpu.add_metric([model], ticks / os.sysconf("SC_CLK_TCK"))
            memory.add_metric([model], pages * os.sysconf("SC_PAGE_SIZE"))
        yield cpu
        yield memory


class LogLines(Collector):
    """Reads the number of dropped log lines of this process at each scrape."""

    def __init__(self, registry: CollectorRegistry) -> None:
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """The number of dropped lines."""
        yield CounterMetricFamily(
            "dragoman_log_lines_dropped",
            "Log lines dropped because standard error did not take them in time.",
            value=logs.num_dropped(),
        )
