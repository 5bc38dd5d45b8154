"""The step loop of a runner that carries out one plan at a time."""

from __future__ import annotations

from collections.abc import Callable

from service.plan import ModelRunner, Scorer
from service.scheduler import Scheduler
from service.step_loop import (
    NOTHING_EXECUTED,
    NOTHING_HAPPENED,
    Listener,
    StepLoop,
    outcome_of,
    take_in,
)


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
        started = now = self._clock()
        schedule = self._scheduler.schedule(now)
        self._tell_dropped(schedule)
        output, update = NOTHING_EXECUTED, NOTHING_HAPPENED
        if (plan := schedule.plan) is not None:
            outcome = outcome_of(lambda: self._runner.execute(plan))
            now = self._clock()
            output, update = take_in(self._scheduler, outcome, now)
        if plan is not None or not schedule.scoring:
            self._tell(schedule, output, update, now - started)
        if schedule.scoring:  # after the step's news: those who wait for tokens do not wait for it
            self._score(schedule.scoring)
