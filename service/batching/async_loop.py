"""Steps under way on a runner that takes a plan while it works on another."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from service.batching.async_scheduler import AsyncScheduler
from service.batching.scheduler import Schedule
from service.batching.step_loop import (
    NOTHING_EXECUTED,
    NOTHING_HAPPENED,
    Listener,
    StepLoop,
    outcome_of,
    take_in,
)
from service.runtime.plan import AsyncRunner, Scorer, StepOutput


@dataclass(frozen=True)
class SubmittedStep:
    """A step that has been submitted.

    Attributes:
        schedule: what it belongs to.
        planned_at: when it was planned, in seconds of the loop's clock.
        output: what it will bring.
    """

    schedule: Schedule
    planned_at: float
    output: Future[StepOutput]


class Pipeline:
    """Keeps up to `runner.depth` steps under way, as far as the scheduler can plan ahead.

    Args:
        runner: carries plans out in order.
        scheduler: makes them.
        clock: seconds.
    """

    def __init__(
        self, runner: AsyncRunner, scheduler: AsyncScheduler, clock: Callable[[], float]
    ) -> None:
        self._runner = runner
        self._scheduler = scheduler
        self._clock = clock
        self._steps: deque[SubmittedStep] = deque()

    @property
    def is_busy(self) -> bool:
        """Whether a step is under way."""
        return bool(self._steps)

    def fill(self) -> list[Schedule]:
        """Plan and submit what there is room for; every schedule that was made."""
        schedules = []
        while len(self._steps) < self._runner.depth:
            now = self._clock()
            if self._steps:
                schedule = self._scheduler.schedule_ahead(now)
            else:
                schedule = self._scheduler.schedule(now)
            if schedule is None:
                break
            schedules.append(schedule)
            if schedule.plan is None:
                break
            self._steps.append(SubmittedStep(schedule, now, self._runner.submit(schedule.plan)))
        return schedules

    def take_oldest(self) -> SubmittedStep:
        """The step that was submitted first; its output is for the scheduler to take in next."""
        return self._steps.popleft()


class AsyncLoop(StepLoop):
    """The step loop of a runner that takes a plan while it works on another.

    Args:
        runner: runs the model; closed at the end.
        scheduler, clock, listener, scorer: as for `StepLoop`.
    """

    def __init__(
        self,
        runner: AsyncRunner,
        scheduler: AsyncScheduler,
        clock: Callable[[], float],
        listener: Listener,
        scorer: Scorer | None = None,
    ) -> None:
        super().__init__(runner.close, scheduler, clock, listener, scorer)
        self._scheduler = scheduler
        self._pipeline = Pipeline(runner, scheduler, clock)
        self._last_step_end = 0.0

    @property
    def _is_idle(self) -> bool:
        return self._scheduler.is_idle and not self._pipeline.is_busy

    def _iterate(self) -> None:
        """Submit as many steps as there may be under way, and take in the oldest."""
        for schedule in self._pipeline.fill():
            self._tell_dropped(schedule)
            if schedule.plan is None and not schedule.scoring:
                self._tell(schedule, NOTHING_EXECUTED, NOTHING_HAPPENED, 0.0)
            if schedule.scoring:
                self._score(schedule.scoring)
        if not self._pipeline.is_busy:
            return
        step = self._pipeline.take_oldest()
        outcome = outcome_of(step.output.result)
        output, update = take_in(self._scheduler, outcome, self._clock())
        # Steps overlap; their times, added up, shall not exceed the time that has passed.
        started, self._last_step_end = max(step.planned_at, self._last_step_end), self._clock()
        self._tell(step.schedule, output, update, self._last_step_end - started)
