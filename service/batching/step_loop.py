"""The step loop: schedule, execute, update, on a thread of its own.

This module is the common part of all loops. `LaneLoop` (`lane_loop.py`) runs CPU runners,
`AsyncLoop` (`async_loop.py`) GPU runners with several steps in flight.

The scheduler belongs to this thread; clients and their replies belong to the event loop. The two
exchange messages and share nothing else, so there is nothing to lock: commands (add, stream,
cancel) one way, events the other way. The next step begins while the event loop still delivers the
events of the last one.

If the event loop scheduled the steps, two threads would have to be woken for each, and the model
would wait for every callback that is due earlier. Measured time between two steps of the included
model (int8, one row, two cores): 65 microseconds on the event loop, 30 on this thread; a step takes
210.
"""

from __future__ import annotations

import abc
import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from service.batching.events import Events, Iteration, Listener
from service.batching.failures import SCORING, STEPPING, error_of
from service.batching.output import Schedule, Update
from service.batching.records import EngineRequest, Finished, RequestEntry, request_ids
from service.batching.scheduler import Scheduler
from service.domain.plan import ScoreItem, Scorer, StepOutput, TargetScore
from service.domain.requests import ScoringRequest
from service.errors import DragomanError, UnavailableError

logger = logging.getLogger(__name__)

T = TypeVar("T")
Command = Callable[[], None]

MAX_UNREPORTED = 16
"""Most steps that are reported together, and so most steps that metrics lag behind."""

_NO_OUTPUT = StepOutput(
    top_ids=np.zeros((0, 1), np.int64),
    top_logits=np.zeros((0, 1), np.float32),
    log_sum_exp=np.zeros(0, np.float32),
    encode_seconds=0.0,
    step_seconds=0.0,
)


class Step(NamedTuple):
    """The output of a step, or the error that it raised, and its time."""

    outcome: StepOutput | Exception
    started_at: float
    ended_at: float


class StepLoop(abc.ABC):
    """Runs one model for all requests. Its methods may be called from one other thread.

    Args:
        close_runner: closes the runner; called at the end.
        scheduler: the scheduler, which belongs to the loop from `start` on.
        clock: returns the time in seconds, by which deadlines are measured.
        listener: receives the events.
        scorer: scores targets; None if the model can't score.
    """

    def __init__(
        self,
        close_runner: Callable[[], None],
        scheduler: Scheduler,
        clock: Callable[[], float],
        listener: Listener,
        scorer: Scorer | None = None,
    ) -> None:
        self._close_runner = close_runner
        self._scheduler = scheduler
        self._clock = clock
        self._listener = listener
        self._scorer = scorer
        self._unreported: list[Iteration] = []
        self._commands: queue.SimpleQueue[Command | None] = queue.SimpleQueue()
        # A daemon thread, so that a model that hangs does not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="step-loop", daemon=True)
        self._was_abandoned = False

    # --- commands, from another thread -----------------------------------------------------------

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def add(self, requests: Sequence[EngineRequest]) -> None:
        """Queue requests as one command, so that they can join in one iteration."""
        self._commands.put(lambda: self._scheduler.add(requests))

    def stream(self, request_id: int) -> None:
        """Report the tokens that the request has, and each new one."""
        self._commands.put(lambda: self._stream(request_id))

    def cancel(self, request_id: int, error: DragomanError) -> None:
        """Drop the request before the next step, unless it has finished."""
        self._commands.put(lambda: self._cancel(request_id, error))

    async def prepare_scoring(self, graph: str) -> None:
        """Load a graph of the scorer, "scoring" or "attention", on another thread.

        Raises:
            UnavailableError: the loop has ended.
        """
        if (scorer := self._scorer) is None:
            raise UnavailableError("the step loop has ended")
        await asyncio.to_thread(scorer.prepare, graph)

    def stop(self) -> None:
        """End after the step in flight, even if requests are left."""
        self._commands.put(None)

    def join(self) -> None:
        """Wait for the end of the thread after `stop`, unless it was abandoned."""
        if not self._was_abandoned:
            self._thread.join()

    def abandon(self) -> None:
        """Abandon a step that hangs, since a thread can't be ended.

        If the thread was never started, this closes the runner.
        """
        self._was_abandoned = True
        if self._thread.ident is None:
            self._close_runner()

    # --- the loop --------------------------------------------------------------------------------

    def _run(self) -> None:
        failed = True
        try:
            while self._carry_out_commands():
                self.iterate()
            failed = False
        except Exception:
            logger.exception("the step loop failed; its model takes no more requests")
        finally:
            self._scorer = None  # it shares the runner's sessions
            try:
                self._close_runner()
            except Exception:
                logger.exception("closing the model runner failed")
            self._listener.on_end(failed)

    def _carry_out_commands(self) -> bool:
        """Run all queued commands; wait for one without other work. Returns False to stop."""
        while not self._commands.empty() or self._is_idle:
            command = self._commands.get()
            if command is None:
                return False
            command()
        return True

    @property
    @abc.abstractmethod
    def _is_idle(self) -> bool:
        """Whether the loop has no work and can wait for commands."""

    @abc.abstractmethod
    def iterate(self) -> None:
        """Run one iteration: schedule, execute, update."""

    def _stream(self, request_id: int) -> None:
        if token_ids := self._scheduler.stream(request_id):
            self._send(streamed=[(request_id, token_ids)])

    def _cancel(self, request_id: int, error: DragomanError) -> None:
        self._report_dropped(self._scheduler.cancel(request_id, error, self._clock()))

    # --- parts of an iteration -------------------------------------------------------------------

    def _schedule(self, lane: int = 0) -> Schedule:
        """Schedule a lane, and report the requests that were dropped."""
        schedule = self._scheduler.schedule(self._clock(), lane)
        self._report_dropped(schedule.dropped)
        return schedule

    def _update(self, schedule: Schedule, steps: Sequence[Step]) -> None:
        """Update the scheduler with the planned step and those that followed it, and report them.

        If a step failed, all requests in its lane fail, since its caches cannot be trusted;
        requests in other lanes continue.
        """
        if not steps:
            return
        scheduler, lane = self._scheduler, schedule.lane
        outputs = [step.outcome for step in steps if not isinstance(step.outcome, Exception)]
        if outputs:
            encoded_at = steps[0].ended_at - outputs[0].step_seconds
            for entry in schedule.admitted:  # has no effect on sources that were encoded ahead
                entry.was_encoded(encoded_at, outputs[0].encode_seconds)
        *earlier, (outcome, _, now) = steps
        if earlier:
            scheduler.advance(outputs[: len(earlier)], earlier[0].ended_at, lane)
            for number, step in enumerate(earlier):
                self._unreported.append(self._iteration(schedule, step, is_first=not number))
        if not isinstance(outcome, Exception):
            update = scheduler.update(outcome, now, lane)
        else:
            ids = request_ids(scheduler.running(lane))
            logger.error("a step failed, and with it the requests %s", ids, exc_info=outcome)
            update = Update([], scheduler.fail_step(error_of(outcome, STEPPING), now, lane))
        last = self._iteration(schedule, steps[-1], is_first=not earlier)
        self._emit(last, update.streamed, update.finished)

    def _iteration(self, schedule: Schedule, step: Step, *, is_first: bool) -> Iteration:
        """The report of a step; the schedule's requests are reported with its first step."""
        scheduler = self._scheduler
        output = _NO_OUTPUT if isinstance(step.outcome, Exception) else step.outcome
        encodes = schedule.plan.encodes if is_first and schedule.plan is not None else ()
        return Iteration(
            num_rows=len(output.top_ids),
            num_encodes=sum([item.encoded is None for item in encodes]),
            encode_seconds=output.encode_seconds,
            step_seconds=output.step_seconds,
            seconds=step.ended_at - step.started_at,
            admitted=[entry.id for entry in schedule.admitted] if is_first else (),
            num_waiting=scheduler.num_waiting,
            num_running=scheduler.num_running,
            num_padding=output.num_padding,
            num_beside=scheduler.num_beside(schedule.lane),
        )

    def _score(self, schedule: Schedule) -> None:
        """Score the schedule's targets on this thread, and update."""
        if schedule.scoring:
            started = self._clock()
            outcome = outcome_of(lambda: self._scores(schedule.scoring))
            self._update_scores(schedule.scoring, outcome, started)

    def _scores(self, entries: list[RequestEntry]) -> list[TargetScore]:
        """Compute the scores of some requests. Uses only the scorer."""
        assert self._scorer is not None, "this model cannot score"
        return self._scorer.score([_score_item(entry) for entry in entries])

    def _update_scores(
        self, entries: list[RequestEntry], outcome: list[TargetScore] | Exception, started: float
    ) -> None:
        """Finish requests with their scores or the error of scoring, and report them."""
        now = self._clock()
        if isinstance(outcome, Exception):
            ids = request_ids(entries)
            logger.error("scoring failed for the requests %s", ids, exc_info=outcome)
            finished = self._scheduler.fail_scores(entries, error_of(outcome, SCORING), now)
        else:
            finished = self._scheduler.scored(entries, outcome, now)
        iteration = Iteration(
            num_waiting=self._scheduler.num_waiting,
            num_running=self._scheduler.num_running,
            num_scored=len(entries),
            score_seconds=self._clock() - started,
        )
        self._emit(iteration, finished=finished)

    # --- reports ---------------------------------------------------------------------------------

    def _report_dropped(self, dropped: list[Finished]) -> None:
        """Report dropped requests at once, without waiting for the step."""
        if dropped:
            iteration = Iteration(
                self._scheduler.num_waiting, self._scheduler.num_running, is_progress=False
            )
            self._emit(iteration, finished=dropped)

    def _emit(
        self,
        iteration: Iteration,
        streamed: Sequence[tuple[int, list[int]]] = (),
        finished: Sequence[Finished] = (),
    ) -> None:
        """Send events, or keep them for later if only metrics need them.

        Waking the event loop takes longer than the rest of an iteration's Python code.
        """
        self._unreported.append(iteration)
        is_awaited = streamed or finished or self._scheduler.is_idle
        if is_awaited or len(self._unreported) >= MAX_UNREPORTED:
            self._send(streamed, finished)

    def _send(
        self, streamed: Sequence[tuple[int, list[int]]], finished: Sequence[Finished] = ()
    ) -> None:
        self._listener.on_events(Events(streamed, finished, self._unreported))
        self._unreported = []


def outcome_of(work: Callable[[], T]) -> T | Exception:
    """The result of `work`, or the error that it raised."""
    try:
        return work()
    except Exception as exc:
        return exc


def _score_item(entry: RequestEntry) -> ScoreItem:
    request = entry.request
    assert isinstance(request, ScoringRequest)
    return ScoreItem(request.source_ids, request.target_ids, request.selection)
