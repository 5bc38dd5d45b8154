"""The step loop of a runner whose rows are in lanes, which step beside each other.

Threads that share an operator wait for each other hundreds of times in a step, and whenever one of
them has to wait for its core (the event loop and the clients need theirs too) all do. So with more
than a few rows, every lane steps on its own thread, at its own time; they meet nowhere. With few,
whose time goes into reading the weights, lanes take turns, each with the whole processor.

Everything but the steps themselves stays on the loop's thread: a lane that has stepped sends an
order like everybody else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from service.laned_scheduler import LanedScheduler
from service.plan import LanedRunner, Scorer, StepOutput, TargetScore
from service.scheduler import Schedule
from service.step_loop import (
    NOTHING_EXECUTED,
    NOTHING_HAPPENED,
    Listener,
    StepLoop,
    outcome_of,
    take_in,
)
from service.worker import Worker


@dataclass(frozen=True)
class _Step:
    """What a lane is to do, or does.

    Attributes:
        lane: its number.
        schedule: what.
        planned_at: when that was decided, in seconds of the loop's clock.
    """

    lane: int
    schedule: Schedule
    planned_at: float


class LaneLoop(StepLoop):
    """Plans for each lane, has it executed there, updates.

    Args:
        runner: runs the model; closed at the end.
        scheduler: decides for as many lanes as the runner has.
        clock, listener, scorer: as for `StepLoop`.
    """

    def __init__(
        self,
        runner: LanedRunner,
        scheduler: LanedScheduler,
        clock: Callable[[], float],
        listener: Listener,
        scorer: Scorer | None = None,
    ) -> None:
        super().__init__(self._close, scheduler, clock, listener, scorer)
        self._runner = runner
        self._scheduler = scheduler
        self._workers = [Worker(f"lane-{number}") for number in range(len(runner.lanes))]

    def start(self) -> None:
        """Begin."""
        for worker in self._workers:
            worker.start()
        super().start()

    @property
    def _is_idle(self) -> bool:
        return not self._scheduler.ready()

    def _take_orders(self) -> bool:
        if super()._take_orders():
            return True
        while self._scheduler.num_busy:  # what is under way is told like all before it
            if (order := self._orders.get()) is not None:
                order()
        return False

    def _iterate(self) -> None:
        steps: list[_Step] = []
        # What one lane leaves may be for another, that had nothing to do before.
        while lanes := self._scheduler.ready():
            steps += [step for lane in lanes if (step := self._plan(lane)) is not None]
        if len(steps) == self._scheduler.num_busy == 1:
            self._step_alone(steps[0])
            return
        for step in steps:
            self._step_beside(step)

    def _plan(self, lane: int) -> _Step | None:
        """What a lane does next; None if nothing."""
        now = self._clock()
        schedule = self._scheduler.schedule(lane, now)
        self._tell_dropped(schedule)
        if schedule.plan is None and not schedule.scoring:
            self._tell(schedule, NOTHING_EXECUTED, NOTHING_HAPPENED, 0.0)
            return None
        return _Step(lane, schedule, now)

    # --- one lane, on this thread, with the whole processor --------------------------------------

    def _step_alone(self, step: _Step) -> None:
        if (plan := step.schedule.plan) is not None:
            runner = self._runner.lanes[step.lane].alone
            self._take_in(step, outcome_of(lambda: runner.execute(plan)), num_beside=0)
        if step.schedule.scoring:
            self._score(step.schedule.scoring)
        self._scheduler.release(step.lane)

    # --- several lanes, each on its own thread ---------------------------------------------------

    def _step_beside(self, step: _Step) -> None:
        plan = step.schedule.plan
        if plan is None:
            self._score_beside(step)
            return
        runner = self._runner.lanes[step.lane].beside

        def execute() -> None:
            outcome = outcome_of(lambda: runner.execute(plan))
            self._orders.put(lambda: self._stepped(step, outcome))

        self._workers[step.lane].submit(execute)

    def _stepped(self, step: _Step, outcome: StepOutput | Exception) -> None:
        self._take_in(step, outcome, self._scheduler.num_beside(step.lane))
        if step.schedule.scoring:
            self._score_beside(step)
        else:
            self._scheduler.release(step.lane)

    def _score_beside(self, step: _Step) -> None:
        jobs, started = step.schedule.scoring, self._clock()

        def score() -> None:
            outcome = outcome_of(lambda: self._scores(jobs))
            self._orders.put(lambda: self._scored(step, outcome, started))

        self._workers[step.lane].submit(score)

    def _scored(self, step: _Step, outcome: list[TargetScore] | Exception, started: float) -> None:
        self._take_in_scores(step.schedule.scoring, outcome, started)
        self._scheduler.release(step.lane)

    # ---------------------------------------------------------------------------------------------

    def _take_in(self, step: _Step, outcome: StepOutput | Exception, num_beside: int) -> None:
        """Update the lane with what its step brought, and tell."""
        now = self._clock()
        output, update = take_in(self._scheduler.lane(step.lane), outcome, now)
        self._tell(step.schedule, output, update, now - step.planned_at, num_beside)

    def _close(self) -> None:
        for worker in self._workers:
            worker.stop()
        if self._scheduler.num_busy:  # the loop failed, and what is under way may hang: leave it
            return
        for worker in self._workers:
            worker.join()
        self._runner.close()
