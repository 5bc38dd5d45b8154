"""Memory and processor time of the models' own processes, and log lines that were dropped."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from service.observability import logs

_PROC = Path("/proc")
# Fields of /proc/PID/stat after the command's name, counted from the process's state (proc(5)).
_USER_TICKS, _SYSTEM_TICKS, _RESIDENT_PAGES = 11, 12, 21


class ModelProcesses(Collector):
    """Reads the figures when they are asked for. A process that has ended has none.

    The server's own are `process_cpu_seconds_total` and `process_resident_memory_bytes`.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._pids: dict[str, int] = {}
        registry.register(self)

    def add(self, model: str, pid: int) -> None:
        """A model runs in the process `pid`, a child of this one."""
        self._pids[model] = pid

    def collect(self) -> Iterator[Metric]:
        """Both metrics, by model."""
        cpu = CounterMetricFamily(
            "dragoman_model_process_cpu_seconds",
            "Processor time of the process that a model runs in, if it has one of its own.",
            labels=["model"],
        )
        memory = GaugeMetricFamily(
            "dragoman_model_process_resident_memory_bytes",
            "Memory of the process that a model runs in, if it has one of its own.",
            labels=["model"],
        )
        for model, pid in self._pids.items():
            try:
                stat = (_PROC / str(pid) / "stat").read_text(encoding="utf-8")
            except OSError:
                continue
            fields = stat.rpartition(")")[2].split()
            ticks = int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])
            cpu.add_metric([model], ticks / os.sysconf("SC_CLK_TCK"))
            memory.add_metric([model], int(fields[_RESIDENT_PAGES]) * os.sysconf("SC_PAGE_SIZE"))
        yield cpu
        yield memory


class LogLines(Collector):
    """Reads how many lines of this process's log were dropped, when it is asked for."""

    def __init__(self, registry: CollectorRegistry) -> None:
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """The metric."""
        yield CounterMetricFamily(
            "dragoman_log_lines_dropped",
            "Log lines that were not written, since standard error did not take them in time.",
            value=logs.num_dropped(),
        )
