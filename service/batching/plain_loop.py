"""The step loop of a runner that carries out one plan at a time."""

from __future__ import annotations

from collections.abc import Callable

from service.batching.scheduler import Scheduler
from service.batching.step_loop import (
    NOTHING_EXECUTED,
    NOTHING_HAPPENED,
    Listener,
    StepLoop,
)
from service.runtime.plan import ModelRunner, Scorer


class PlainLoop(StepLoop):
    """Plans, executes, updates.

    Args:
        runner: runs the model; closed at the end.
        scheduler, clock, listener, scorer: as for `StepLoop`.
    """

    def __init__(
        self,
        runner: ModelRunner,
        scheduler: Scheduler,
        clock: Callable[[], float],
        listener: Listener,
        scorer: Scorer | None = None,
    ) -> None:
        super().__init__(runner.close, scheduler, clock, listener, scorer)
        self._runner = runner
        self._scheduler = scheduler

    def _iterate(self) -> None:
        now = self._clock()
        schedule = self._scheduler.schedule(now)
        self._tell_dropped(schedule)
        if schedule.plan is not None:
            self._execute(self._runner, self._scheduler, schedule, now)
        elif not schedule.scoring:
            self._tell(schedule, NOTHING_EXECUTED, NOTHING_HAPPENED, 0.0)
        if schedule.scoring:  # after the step's news: those who wait for tokens do not wait for it
            self._score(schedule.scoring)
