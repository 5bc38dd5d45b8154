"""The step loop for pipelined steps on a GPU; unrelated to asyncio.

The runner accepts a plan while it still executes others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

from service.batching.async_scheduler import AsyncScheduler
from service.batching.events import Listener
from service.batching.output import Schedule
from service.batching.step_loop import Step, StepLoop, outcome_of
from service.domain.plan import AsyncRunner, Scorer, StepOutput


class AsyncLoop(StepLoop):
    """Keeps up to `runner.depth` steps in flight, as far as the scheduler can schedule ahead.

    Args:
        runner: runs the model; closed at the end.
        scheduler, clock, listener, scorer: same as in `StepLoop`.
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
        self._runner = runner
        self._async_scheduler = scheduler
        self._in_flight: deque[tuple[Schedule, Future[StepOutput]]] = deque()
        self._last_step_end = 0.0

    @property
    def _is_idle(self) -> bool:
        return self._scheduler.is_idle and not self._in_flight

    def iterate(self) -> None:
        """Schedule and submit as many steps as may be in flight; score; update with the oldest."""
        schedules = []
        while len(self._in_flight) < self._runner.depth and self._async_scheduler.can_schedule():
            schedules.append(schedule := self._schedule())
            if schedule.plan is None:
                break
            self._in_flight.append((schedule, self._runner.submit(schedule.plan)))
        for schedule in schedules:
            self._score(schedule)
        if self._in_flight:
            schedule, future = self._in_flight.popleft()
            self._update(schedule, [self._result(schedule, future)])

    def _result(self, schedule: Schedule, future: Future[StepOutput]) -> Step:
        """Wait for a step. Its time begins at the end of the step before it: steps overlap."""
        outcome = outcome_of(future.result)
        started_at = max(schedule.scheduled_at, self._last_step_end)
        self._last_step_end = self._clock()
        return Step(outcome, started_at, self._last_step_end)
