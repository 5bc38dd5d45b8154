"""The step loop of a runner with one or more lanes, for CPUs.

Threads that share an operator synchronise hundreds of times in a step. If one of them has to wait
for its core, which the event loop and clients also use, all of them wait. So with many rows, each
lane steps on its own thread, independently. With few rows, reading the weights takes most of a
step's time, and lanes take turns on the loop's thread, each with all arithmetic threads.

With one or two lanes, sources are encoded on a separate thread before their requests join, so that
no step waits for an encode. `EncodeQueue` decides when an encode begins and with which sources.

Lane threads and the encoder's thread only compute. Their results are queued as commands for the
loop's thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from service.batching.events import Iteration, Listener
from service.batching.failures import ENCODING, error_of
from service.batching.output import Schedule
from service.batching.records import Finished, RequestEntry, request_ids
from service.batching.scheduler import Scheduler
from service.batching.step_loop import MAX_UNREPORTED, Step, StepLoop, outcome_of
from service.common.serial_executor import SerialExecutor
from service.domain.plan import (
    EncodedBatch,
    LanedRunner,
    LaneRunners,
    ModelRunner,
    Scorer,
    StepOutput,
)

logger = logging.getLogger(__name__)


class LaneLoop(StepLoop):
    """Schedules each lane, executes its plan, and updates the scheduler.

    Args:
        runner: runs the model; closed at the end. A runner without lanes counts as one lane.
        scheduler: schedules the same number of lanes.
        clock, listener, scorer: same as in `StepLoop`.
    """

    def __init__(
        self,
        runner: ModelRunner | LanedRunner,
        scheduler: Scheduler,
        clock: Callable[[], float],
        listener: Listener,
        scorer: Scorer | None = None,
    ) -> None:
        super().__init__(self._close, scheduler, clock, listener, scorer)
        self._runner = runner
        if isinstance(runner, LanedRunner):
            self._lanes = runner.lanes
        else:
            self._lanes = [LaneRunners(alone=runner, beside=runner)]
        # A single lane steps on the loop's thread.
        names = [f"lane-{n}" for n in range(len(self._lanes))] if len(self._lanes) > 1 else []
        self._threads = [SerialExecutor(name) for name in names]
        self._encoder = SerialExecutor("encoder") if scheduler.encodes_ahead else None
        self._has_stepped = False  # in the last iteration, on this thread

    def start(self) -> None:
        """Start all threads."""
        for thread in self._all_threads():
            thread.start()
        super().start()

    @property
    def _is_idle(self) -> bool:
        # `ready` is expensive, and after a step the next iteration calls it anyway.
        return not (self._has_stepped or self._scheduler.can_encode or self._scheduler.ready())

    def iterate(self) -> None:
        """Schedule the lanes that are ready, execute their plans, update."""
        self._encode_ahead()
        schedules = self._schedule_lanes()
        runs_on_this_thread = len(schedules) == self._scheduler.num_busy == 1
        self._has_stepped = runs_on_this_thread
        if runs_on_this_thread:
            [schedule] = schedules
            steps = self._execute(schedule)
            self._update(schedule, steps)
            self._score(schedule)
            return
        for schedule in schedules:
            self._execute_beside(schedule)  # queues the command `_executed`, which updates

    def _schedule_lanes(self) -> list[Schedule]:
        schedules = []
        # Requests that one lane did not admit may go to another one that was idle.
        while lanes := self._scheduler.ready():
            schedules += [self._schedule(lane) for lane in lanes]
            if len(self._lanes) == 1:
                break
        return [one for one in schedules if one.plan is not None or one.scoring]

    # --- one lane, on this thread ----------------------------------------------------------------

    def _execute(self, schedule: Schedule) -> list[Step]:
        """Execute a plan and, without updating between them, the uninterrupted steps after it.

        A step reads the weights, which evict Python's data from the processor's caches: Python code
        takes three times as long after it. So several steps are updated together.
        """
        if schedule.plan is None:
            return []
        runner = self._runner_alone(schedule.lane)
        most = MAX_UNREPORTED - len(self._unreported)
        num_steps = min(self._scheduler.num_uninterrupted_steps(schedule.lane), most)
        steps = [self._step(partial(runner.execute, schedule.plan), schedule.scheduled_at)]
        while len(steps) < num_steps and self._can_continue(steps[-1], schedule.lane):
            steps.append(self._step(runner.follow_up, steps[-1].ended_at))
        return steps

    def _step(self, run: Callable[[], StepOutput], started_at: float) -> Step:
        return Step(outcome_of(run), started_at, self._clock())

    def _can_continue(self, step: Step, lane: int) -> bool:
        """Whether another step can follow at once; no longer once a command has arrived."""
        if isinstance(step.outcome, Exception) or not self._commands.empty():
            return False
        return self._scheduler.can_continue(step.outcome, step.ended_at, lane)

    def _runner_alone(self, lane: int) -> ModelRunner:
        """The lane's runner with all threads, or during an encode with the lane's share of them.

        With many rows, a single lane always uses its share: the other threads are for encodes and
        the event loop.
        """
        is_single = len(self._lanes) == 1
        shares = self._scheduler.is_encoding or (is_single and not self._scheduler.takes_turns)
        return self._lanes[lane].beside if shares else self._lanes[lane].alone

    # --- several lanes, each on its own thread ---------------------------------------------------

    def _execute_beside(self, schedule: Schedule) -> None:
        """Execute a plan on the lane's thread, and score after it."""
        plan = schedule.plan
        if plan is None:
            self._score_beside(schedule)
            return
        runner = self._lanes[schedule.lane].beside

        def execute() -> None:
            outcome = outcome_of(lambda: runner.execute(plan))
            self._commands.put(lambda: self._executed(schedule, outcome))

        self._threads[schedule.lane].submit(execute)

    def _executed(self, schedule: Schedule, outcome: StepOutput | Exception) -> None:
        self._update(schedule, [Step(outcome, schedule.scheduled_at, self._clock())])
        if schedule.scoring:
            self._score_beside(schedule)

    def _score_beside(self, schedule: Schedule) -> None:
        started = self._clock()

        def score() -> None:
            outcome = outcome_of(lambda: self._scores(schedule.scoring))
            self._commands.put(lambda: self._update_scores(schedule.scoring, outcome, started))

        self._threads[schedule.lane].submit(score)

    # --- encodes, on a thread of their own -------------------------------------------------------

    def _encode_ahead(self) -> None:
        if not (entries := self._scheduler.to_encode()):
            return
        runner, sources = self._runner, [entry.request.source_ids for entry in entries]
        assert isinstance(runner, LanedRunner), "other runners encode where a request joins"
        assert self._encoder is not None

        def encode() -> None:
            outcome = outcome_of(lambda: runner.encode(sources))
            self._commands.put(lambda: self._encoded(entries, outcome))

        self._encoder.submit(encode)

    def _encoded(self, entries: list[RequestEntry], outcome: EncodedBatch | Exception) -> None:
        """Let requests with encoded sources join, or fail them, and report the encode."""
        failed: list[Finished] = []
        batch = EncodedBatch([])
        if isinstance(outcome, Exception):
            ids = request_ids(entries)
            logger.error("encoding failed for the requests %s", ids, exc_info=outcome)
            failed = self._scheduler.encode_failed(error_of(outcome, ENCODING), self._clock())
        else:
            batch, now = outcome, self._clock()
            for entry in entries:
                entry.was_encoded(now, batch.seconds)
            self._scheduler.encoded(batch.sources)
        iteration = Iteration(
            num_waiting=self._scheduler.num_waiting,
            num_running=self._scheduler.num_running,
            num_encodes=len(batch.sources),
            encode_seconds=batch.seconds,
            num_padding=batch.num_padding,
            num_rows_encoded=sum(entry.num_rows for entry in entries) if batch.sources else 0,
            is_progress=not self._scheduler.num_busy,
        )
        self._emit(iteration, finished=failed)

    # --- the end ---------------------------------------------------------------------------------

    def _carry_out_commands(self) -> bool:
        if super()._carry_out_commands():
            return True
        while self._is_in_flight:  # report the work that is still running
            if (command := self._commands.get()) is not None:
                command()
        return False

    @property
    def _is_in_flight(self) -> bool:
        """Whether another thread steps, scores or encodes."""
        steps_beside = self._scheduler.num_busy > 0 and not self._has_stepped
        return steps_beside or self._scheduler.is_encoding

    def _close(self) -> None:
        for thread in self._all_threads():
            thread.stop()
        if self._is_in_flight:  # the loop failed, and the work may hang: don't wait for it
            return
        for thread in self._all_threads():
            thread.join()
        self._runner.close()

    def _all_threads(self) -> list[SerialExecutor]:
        return self._threads if self._encoder is None else [*self._threads, self._encoder]
