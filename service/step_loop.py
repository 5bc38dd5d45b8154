"""The step loop: schedule, execute, update, on a thread of its own.

The scheduler and the jobs' state belong to this thread, replies and clients to the event loop. The
two send each other messages and share nothing else, so there is nothing to lock: orders (add,
stream, cancel) one way, what each iteration brought the other way. The next step begins while the
event loop still hands that out.

If the event loop planned the steps, two threads would have to be woken for each, and the model
would wait for every callback that is due before. Measured on two cores between two steps of the
shipped size, int8: 65 microseconds with one row that way, 30 this way (a step takes 210).
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from service.errors import DragomanError, InternalError
from service.jobs import Job
from service.plan import ModelRunner, StepOutput
from service.scheduler import Finished, Schedule, Scheduler, Update

logger = logging.getLogger(__name__)

Order = Callable[[], None]

_MAX_UNTOLD = 16  # iterations; metrics are never more than these behind

_NOTHING_EXECUTED = StepOutput(
    top_ids=np.zeros((0, 1), np.int64),
    top_logits=np.zeros((0, 1), np.float32),
    log_sum_exp=np.zeros(0, np.float32),
    encode_seconds=0.0,
    step_seconds=0.0,
)
_NOTHING_HAPPENED = Update(first_tokens=[], streamed=[], finished=[])


@dataclass(frozen=True)
class Iteration:
    """What was executed in one turn of the loop, for the metrics.

    Attributes:
        num_rows, num_encodes, encode_seconds, step_seconds: the work, and its time.
        num_waiting, num_running: jobs that wait, rows in use after it.
        queue_seconds: how long each job that joined had waited.
        first_token_seconds: time from submission for each job that got its first token.
    """

    num_rows: int
    num_encodes: int
    encode_seconds: float
    step_seconds: float
    num_waiting: int
    num_running: int
    queue_seconds: Sequence[float]
    first_token_seconds: Sequence[float]


@dataclass(frozen=True)
class News:
    """What the event loop is told.

    Attributes:
        streamed: new tokens of jobs that stream.
        finished: jobs that ended.
        iterations: all since the last news that had any.
    """

    streamed: Sequence[tuple[Job, list[int]]] = ()
    finished: Sequence[Finished] = ()
    iterations: Sequence[Iteration] = ()


class Listener(Protocol):
    """Who is told. Called on the step loop's thread: must pass it on and return."""

    def told(self, news: News) -> None:
        """Something happened."""
        ...

    def ended(self, failed: bool) -> None:
        """The loop has ended and the runner is closed; no job will be answered any more."""
        ...


class StepLoop:
    """Runs one model for all jobs. Its methods may be called from one other thread.

    Args:
        runner: runs the model; closed at the end.
        scheduler: decides; belongs to the loop from `start` on.
        clock: seconds, in which jobs and deadlines are measured.
        listener: is told what happens.
    """

    def __init__(
        self,
        runner: ModelRunner,
        scheduler: Scheduler,
        clock: Callable[[], float],
        listener: Listener,
    ) -> None:
        self._runner = runner
        self._scheduler = scheduler
        self._clock = clock
        self._listener = listener
        self._untold: list[Iteration] = []
        self._orders: queue.SimpleQueue[Order | None] = queue.SimpleQueue()
        # Daemon: a model that hangs must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="step-loop", daemon=True)

    # --- orders ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def add(self, jobs: Sequence[Job]) -> None:
        """Let the jobs take their turn; as one order, so that they can join in one iteration."""
        self._orders.put(lambda: self._scheduler.add(jobs))

    def stream(self, job: Job) -> None:
        """Report the job's tokens, those it has and each new one."""
        self._orders.put(lambda: self._stream(job))

    def cancel(self, job: Job, error: DragomanError) -> None:
        """End the job before the next step, if it has not ended by then."""
        self._orders.put(lambda: self._scheduler.cancel(job, error))

    def stop(self) -> None:
        """End after the step under way, whatever is left to do."""
        self._orders.put(None)

    def join(self) -> None:
        """Wait for the end of the thread; after `stop`."""
        self._thread.join()

    # --- the loop --------------------------------------------------------------------------------

    def _run(self) -> None:
        failed = True
        try:
            while self._take_orders():
                self._iterate()
            failed = False
        except Exception:
            logger.exception("the step loop failed; its model takes no more requests")
        finally:
            self._close_runner()
            self._listener.ended(failed)

    def _take_orders(self) -> bool:
        """Carry out the orders there are; wait for one if there is nothing else to do."""
        while self._scheduler.is_idle or not self._orders.empty():
            order = self._orders.get()
            if order is None:
                return False
            order()
        return True

    def _iterate(self) -> None:
        schedule = self._scheduler.schedule(self._clock())
        if schedule.dropped:
            self._listener.told(News(finished=schedule.dropped))  # they need not wait for the step
        output, update = _NOTHING_EXECUTED, _NOTHING_HAPPENED
        if schedule.plan is not None:
            try:
                output = self._runner.execute(schedule.plan)
            except Exception as exc:
                update = self._failed(exc)
            else:
                update = self._scheduler.update(output, self._clock())
        self._tell(schedule, output, update)

    def _tell(self, schedule: Schedule, output: StepOutput, update: Update) -> None:
        scheduler = self._scheduler
        self._untold.append(
            Iteration(
                num_rows=len(output.top_ids),
                num_encodes=len(schedule.admitted),
                encode_seconds=output.encode_seconds,
                step_seconds=output.step_seconds,
                num_waiting=scheduler.num_waiting,
                num_running=scheduler.num_running,
                queue_seconds=[job.queue_seconds for job in schedule.admitted],
                first_token_seconds=[job.first_token_seconds for job in update.first_tokens],
            )
        )
        # To wake the event loop takes longer than all the rest of an iteration. What is of interest
        # to the metrics alone can wait until there is something for a client.
        is_awaited = update.streamed or update.finished or scheduler.is_idle
        if is_awaited or len(self._untold) == _MAX_UNTOLD:
            self._listener.told(News(update.streamed, update.finished, self._untold))
            self._untold = []

    def _stream(self, job: Job) -> None:
        if token_ids := self._scheduler.stream(job):
            self._listener.told(News(streamed=[(job, token_ids)]))

    def _failed(self, exc: Exception) -> Update:
        """The plan's jobs end, and only they: what the cache holds of them cannot be trusted."""
        error = InternalError("the model failed while it worked on this request")
        finished = self._scheduler.fail_running(error, self._clock())
        ids = sorted({ended.job.request.request_id for ended in finished})
        logger.error("a step failed, and with it the requests %s", ids, exc_info=exc)
        return Update(first_tokens=[], streamed=[], finished=finished)

    def _close_runner(self) -> None:
        try:
            self._runner.close()
        except Exception:
            logger.exception("closing the model runner failed")
