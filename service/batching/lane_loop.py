"""The step loop of a runner whose rows are in lanes, which step beside each other.

Threads that share an operator wait for each other hundreds of times in a step, and whenever one of
them has to wait for its core (the event loop and the clients need theirs too) all do. So with more
than a few rows, every lane steps on its own thread, at its own time; they meet nowhere. With few,
whose time goes into reading the weights, lanes take turns, each with the whole processor.

Then, with one lane or two, sources are encoded on a thread of their own before they join, all that
have come meanwhile together: no step waits for an encode, however long the text.

Everything but steps and encodes stays on the loop's thread: a lane that has stepped sends an order
like everybody else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from service.batching.failures import ENCODING, error_of
from service.batching.jobs import Job, request_ids
from service.batching.lane_scheduler import LaneScheduler
from service.batching.scheduler import Finished, Schedule
from service.batching.step_loop import (
    NOTHING_EXECUTED,
    NOTHING_HAPPENED,
    Events,
    Iteration,
    Listener,
    StepLoop,
    outcome_of,
    take_in,
)
from service.runtime.plan import EncodedBatch, LanedRunner, Scorer, StepOutput, TargetScore
from service.runtime.serial_executor import SerialExecutor

logger = logging.getLogger(__name__)


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
        scheduler: LaneScheduler,
        clock: Callable[[], float],
        listener: Listener,
        scorer: Scorer | None = None,
    ) -> None:
        super().__init__(self._close, scheduler, clock, listener, scorer)
        self._runner = runner
        self._scheduler = scheduler
        self._workers = [SerialExecutor(f"lane-{number}") for number in range(len(runner.lanes))]
        self._encoder = SerialExecutor("encoder")
        self._has_stepped = False  # in the last iteration, on this thread

    def start(self) -> None:
        """Begin."""
        for worker in (*self._workers, self._encoder):
            worker.start()
        super().start()

    @property
    def _is_idle(self) -> bool:
        # After a step the next iteration looks; to look here as well would cost as much again.
        return not (self._has_stepped or self._scheduler.can_encode or self._scheduler.ready())

    def _take_orders(self) -> bool:
        if super()._take_orders():
            return True
        while self._is_under_way:  # what is under way is told like all before it
            if (order := self._orders.get()) is not None:
                order()
        return False

    @property
    def _is_under_way(self) -> bool:
        return self._scheduler.num_busy > 0 or self._scheduler.is_encoding

    def _iterate(self) -> None:
        self._encode_beside()
        steps: list[_Step] = []
        # What one lane leaves may be for another, that had nothing to do before.
        while lanes := self._scheduler.ready():
            steps += [step for lane in lanes if (step := self._plan(lane)) is not None]
        self._has_stepped = len(steps) == self._scheduler.num_busy == 1
        if self._has_stepped:
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

    # --- encodes, on a thread of their own -------------------------------------------------------

    def _encode_beside(self) -> None:
        if not (jobs := self._scheduler.to_encode()):
            return
        sources = [job.request.source_ids for job in jobs]

        def encode() -> None:
            outcome = outcome_of(lambda: self._runner.encode(sources))
            self._orders.put(lambda: self._encoded(jobs, outcome))

        self._encoder.submit(encode)

    def _encoded(self, jobs: list[Job], outcome: EncodedBatch | Exception) -> None:
        """Let those join who were encoded, or end them; and tell."""
        failed: list[Finished] = []
        batch = EncodedBatch([])
        if isinstance(outcome, Exception):
            ids = request_ids(jobs)
            logger.error("encoding failed for the requests %s", ids, exc_info=outcome)
            error = error_of(outcome, ENCODING)
            failed = self._scheduler.encode_failed(error, self._clock())
        else:
            batch = outcome
            self._scheduler.encoded(batch.sources)
        self._untold.append(
            Iteration(
                num_rows=0,
                num_encodes=len(batch.sources),
                encode_seconds=batch.seconds,
                step_seconds=0.0,
                num_waiting=self._scheduler.num_waiting,
                num_running=self._scheduler.num_running,
                num_padding=batch.num_padding,
                num_rows_encoded=sum(job.num_rows for job in jobs) if batch.sources else 0,
            )
        )
        if failed or self._scheduler.is_idle:  # or else the next step tells it
            self._listener.told(Events(finished=failed, iterations=self._untold))
            self._untold = []

    # --- one lane, on this thread ----------------------------------------------------------------

    def _step_alone(self, step: _Step) -> None:
        """With the whole processor, or beside an encode with this lane's share of it.

        The only lane there is keeps to its share among many rows: it is the only one because
        encodes and event loop have as much to do.
        """
        if step.schedule.plan is not None:
            lane, scheduler = self._runner.lanes[step.lane], self._scheduler
            is_only = len(self._workers) == 1
            keeps_to_share = scheduler.is_encoding or (is_only and not scheduler.takes_turns)
            runner = lane.beside if keeps_to_share else lane.alone
            self._execute(
                runner,
                scheduler.lane(step.lane),
                step.schedule,
                step.planned_at,
                is_alone=scheduler.is_alone(step.lane),
            )
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
        now, num_beside = self._clock(), self._scheduler.num_beside(step.lane)
        output, update = take_in(self._scheduler.lane(step.lane), outcome, now)
        self._tell(step.schedule, output, update, now - step.planned_at, num_beside)
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

    def _close(self) -> None:
        for worker in (*self._workers, self._encoder):
            worker.stop()
        if self._is_under_way:  # the loop failed, and what is under way may hang: leave it
            return
        for worker in (*self._workers, self._encoder):
            worker.join()
        self._runner.close()
