"""Several processes of one model, which look like one process to the engine.

Weights are packed once, by the first process, into a file that all of them map: so there is one
copy in memory.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence

from service.batching.config import EngineConfig
from service.batching.events import Listener
from service.domain.plan import RunnerLimits
from service.worker.group_loop import GroupLoop
from service.worker.process import ModelProcess


class ProcessGroup:
    """The processes of one model.

    Args:
        processes: the processes, with the model open in each of them.

    Attributes:
        limits: limits of all processes together.
        widest, num_lanes, cache_bytes, can_score, step_seconds: same as in
            `service.worker.messages.Opened`, of all processes together.
        pids: ids of the processes.
    """

    def __init__(self, processes: Sequence[ModelProcess]) -> None:
        self._processes = processes
        rows = sum(one.limits.max_rows for one in processes)
        self.limits: RunnerLimits = dataclasses.replace(processes[0].limits, max_rows=rows)
        self.widest: RunnerLimits = min(
            (one.widest for one in processes), key=lambda widest: widest.max_rows
        )
        self.num_lanes = sum(one.num_lanes for one in processes)
        self.cache_bytes = sum(one.cache_bytes for one in processes)
        self.can_score = all(one.can_score for one in processes)
        self.step_seconds = max(one.step_seconds for one in processes)
        self.pids = [one.pid for one in processes]

    @classmethod
    def open(cls, openings: Sequence[Callable[[], ModelProcess]]) -> ProcessGroup:
        """Open the processes one after another: the first one packs the weights for all.

        Raises:
            StartupError: one of them can't be opened; the others are ended.
        """
        processes: list[ModelProcess] = []
        try:
            for opening in openings:
                processes.append(opening())
        except BaseException:
            for process in processes:
                process.kill()
            raise
        return cls(processes)

    @property
    def is_running(self) -> bool:
        """Whether any of the processes runs."""
        return any(one.is_running for one in self._processes)

    def steps(self, config: EngineConfig, listener: Listener) -> GroupLoop:
        """The step loops of all processes as one."""
        return GroupLoop(self._processes, config, listener, time.monotonic)
