"""Steps under way on a runner that takes a plan while it works on another."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from service.lookahead import LookaheadScheduler
from service.plan import PipelinedRunner, StepOutput
from service.scheduler import Schedule


@dataclass(frozen=True)
class StepUnderWay:
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
        self, runner: PipelinedRunner, scheduler: LookaheadScheduler, clock: Callable[[], float]
    ) -> None:
        self._runner = runner
        self._scheduler = scheduler
        self._clock = clock
        self._steps: deque[StepUnderWay] = deque()

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
            self._steps.append(StepUnderWay(schedule, now, self._runner.submit(schedule.plan)))
        return schedules

    def take_oldest(self) -> StepUnderWay:
        """The step that was submitted first; its output is for the scheduler to take in next."""
        return self._steps.popleft()
