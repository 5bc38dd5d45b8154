"""The step loop of a runner that carries out one plan at a time."""

from __future__ import annotations

from collections.abc import Callable

from service.failures import STEPPING, error_of
from service.plan import ModelRunner, Scorer
from service.scheduler import Scheduler
from service.step_loop import (
    NOTHING_EXECUTED,
    NOTHING_HAPPENED,
    Listener,
    News,
    StepLoop,
    step_failed,
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
        if schedule.dropped:
            self._listener.told(News(finished=schedule.dropped))  # they need not wait for the step
        output, update = NOTHING_EXECUTED, NOTHING_HAPPENED
        if schedule.plan is not None:
            try:
                output = self._runner.execute(schedule.plan)
            except Exception as exc:
                error = error_of(exc, STEPPING)
                update = step_failed(self._scheduler.fail_running(error, self._clock()), exc)
            else:
                now = self._clock()
                update = self._scheduler.update(output, now)
        if schedule.plan is not None or not schedule.scoring:
            self._tell(schedule, output, update, now - started)
        if schedule.scoring:  # after the step's news: those who wait for tokens do not wait for it
            self._score(schedule.scoring)
