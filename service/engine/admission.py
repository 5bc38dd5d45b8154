"""Who is let into an engine and who is refused: by places, by time, and by deadline.

A call is refused for one of these reasons, always before anything was computed for it:

- *places*: the queue is full, by number (`max_waiting`). The last eighth of it is for clients that
  hold little of it.
- *wait*: its first text would wait longer than is allowed before it begins.
- *overload*: the server is overloaded, and this client has its share of what is inside.
- *deadline*: it would miss its deadline. RESOURCE_EXHAUSTED where load is the reason, since the
  same call may succeed later; DEADLINE_EXCEEDED where it could not be met by an idle server either.

An engine without a row inside takes every call that fits and whose deadline has not passed: it has
nothing better to do, and only steps correct an estimate that has become too high.

**Overload.** A batch gets slower with every row, so that a server that is filled to its last row
answers hardly more sequences than one that is two thirds full, but each of them half as fast again.
And a queue that stands, rather than absorb bursts, makes everybody wait and answers nobody sooner
(Nichols and Jacobson, "Controlling Queue Delay", ACM Queue 10(5), 2012). So the automatic limit has
two levels, as in Maurer, "Fail at Scale" (ACM Queue 13(8), 2015): as long as nobody had to be
refused lately, a burst may queue for twice the time that a sequence takes. Once a call had to be
refused, and until a while after the last one, only so many rows are let in as bring 95 % of the
widest batch's throughput, and the square root of it more, so that chance gaps between arrivals
leave no row idle (Halfin and Whitt, 1981). Then clients have equal shares of these.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable

from service.batching.jobs import Job
from service.decoding.requests import FinishReason, GenerationRequest, GenerationResult
from service.engine.latency_model import LatencyModel
from service.engine.queue_estimate import QueueEstimate
from service.engine.quota import Quota
from service.errors import DeadlineExceededError, DragomanError, ResourceExhaustedError

# How long a burst may queue: for so many times what a sequence takes, but no less than that.
_BURST_SEQUENCES = 2.0
_LEAST_BURST_SECONDS = 0.25
# An overload ends so long after the last refusal: so many sequences' time, but no less than that.
_CALM_SEQUENCES = 2.0
_LEAST_CALM_SECONDS = 1.0
# Rows that are let in while overloaded, and of these beyond those that are enough. With fewer,
# chance would leave rows idle.
_LEAST_ROWS, _LEAST_SPARE_ROWS = 8, 4
_MAX_RETRY_SECONDS, _MIN_RETRY_SECONDS = 60.0, 0.1


class Refusal(enum.Enum):
    """Why a call was refused."""

    PLACES = "places"
    WAIT = "wait"
    OVERLOAD = "overload"
    DEADLINE = "deadline"


class AdmissionController:
    """Decides who gets in.

    Args:
        max_rows: rows of the widest batch.
        max_waiting: rows that may wait beyond these.
        max_queue_seconds: how long a call may wait for its first text to begin; None for the
            automatic limit.
        clock: seconds, in which deadlines are measured.
        on_held_back: as for `Quota`.
        on_refused: told of every refusal.

    Attributes:
        places: who holds how many; to be given back there.
        pace, backlog: what the decisions are made of; to be kept up to date.
    """

    def __init__(
        self,
        max_rows: int,
        max_waiting: int,
        max_queue_seconds: float | None,
        clock: Callable[[], float],
        *,
        on_held_back: Callable[[int], None] = lambda _: None,
        on_refused: Callable[[Refusal], None] = lambda _: None,
    ) -> None:
        self.pace = LatencyModel(max_rows)
        self.backlog = QueueEstimate()
        self.places = Quota(
            max_rows + max_waiting, max_waiting // 2, on_held_back, self._spare_limit
        )
        self._max_rows = max_rows
        self._max_queue_seconds = max_queue_seconds
        self._clock = clock
        self._on_refused = on_refused
        self._overloaded_until = -math.inf

    # --- estimates -------------------------------------------------------------------------------

    @property
    def is_overloaded(self) -> bool:
        """Whether somebody had to be refused lately."""
        return self._clock() < self._overloaded_until

    def wait_seconds(self, request: GenerationRequest) -> float:
        """How long a request would wait for its rows if it came now; a score waits for none."""
        backlog, pace = self.backlog, self.pace
        num_rows = request.num_rows
        if not num_rows or backlog.num_rows_inside + num_rows <= self._max_rows:
            return 0.0
        free = self._max_rows - backlog.num_rows_running
        ahead = backlog.ahead(request.client, request.priority) - free * pace.mean_steps
        # In a full batch, a sequence's own rows come free in the time that as many take.
        return (max(0.0, ahead) + num_rows * pace.mean_steps) / pace.rows_per_second()

    @property
    def max_wait_seconds(self) -> float:
        """The longest wait that is allowed at present."""
        if self._max_queue_seconds is not None:
            return self._max_queue_seconds
        return max(_LEAST_BURST_SECONDS, _BURST_SEQUENCES * self.pace.sequence_seconds())

    @property
    def overload_rows(self) -> int:
        """Rows that are let in while the engine is overloaded."""
        rows = self.pace.enough_rows()
        return max(_LEAST_ROWS, rows + max(_LEAST_SPARE_ROWS, math.isqrt(rows)))

    # --- reports ---------------------------------------------------------------------------------

    def submitted(self, job: Job) -> None:
        """A job that was let in has joined the queue."""
        num_source_tokens = len(job.request.source_ids)
        if job.num_rows:
            self.pace.came(num_source_tokens)
        steps = max(self.pace.expected_steps(num_source_tokens), job.request.least_steps)
        self.backlog.added(job, job.num_rows * min(steps, job.max_new_tokens))

    def iterated(
        self, num_rows: int, seconds: float, joined: Iterable[Job], share: float = 1.0
    ) -> None:
        """A turn of the step loop took so long, and these jobs joined the batch in it.

        It was the turn of this share of the rows that stepped at that time.
        """
        if num_rows:
            self.pace.stepped(num_rows, seconds, share)
        for job in joined:
            self.backlog.joined(job)

    def answered(self, job: Job, result: GenerationResult) -> None:
        """A job has ended."""
        if not job.num_rows:
            return
        options = job.request.options
        has_ended = result.finish_reason is FinishReason.EOS
        # At its client's limit, or where it may hardly end, its length says nothing of others.
        was_free = options.max_new_tokens is None and not options.suppressed_ids
        if has_ended or (was_free and result.finish_reason is FinishReason.LENGTH):
            num_steps = len(result.token_ids) + has_ended
            if num_steps > job.request.least_steps:
                self.pace.ended(len(job.request.source_ids), num_steps)

    # --- decisions -------------------------------------------------------------------------------

    def enter(self, request: GenerationRequest | None, num_rows: int, client: str = "") -> None:
        """Take the places of a call.

        Args:
            request: the call's first; None if it is not known.
            num_rows: places to take.
            client: who takes them.

        Raises:
            ResourceExhaustedError: not now; says when to come back.
            DeadlineExceededError: its deadline has passed, or passes sooner than it could be done.
        """
        if request is not None:
            self._check_deadline(request)
            self._check_wait(request)
        if not self.places.take(num_rows, client):
            self._refuse(
                Refusal.PLACES,
                f"{self.places.num_taken} of {self.places.capacity} places are taken, and there "
                f"are none for {num_rows} more of this client",
                self._work_off_seconds(),
            )

    def _check_wait(self, request: GenerationRequest) -> None:
        wait, limit = self.wait_seconds(request), self.max_wait_seconds
        if wait > limit:
            self._overload()
            self._refuse(
                Refusal.WAIT,
                f"the queue is {wait:.2f} s long, and {limit:.2f} s is the limit",
                max(wait - limit, self._work_off_seconds()),
            )
        if self.is_overloaded and not self._is_within_share(request):
            # A beam can be too wide for the share even where little is inside: that is no overload,
            # and must not last as long as the beam is asked for.
            if 2 * self.backlog.num_rows_inside >= self.overload_rows:
                self._overload()
            self._refuse(
                Refusal.OVERLOAD,
                "more calls arrive than can be answered",
                self._work_off_seconds(),
            )

    def _is_within_share(self, request: GenerationRequest) -> bool:
        """Whether an overloaded engine still takes this: altogether, or from this client."""
        if not self.backlog.num_rows_inside:
            return True
        places, limit, num_rows = self.places, self.overload_rows, request.num_rows
        # Large calls that came before the overload may hold more than they would get now.
        spare = min(places.num_spare, limit // 2)
        if places.num_taken - places.num_spare + spare + num_rows <= limit:
            return True
        held = places.held_by(request.client)
        num_clients = places.num_clients + (held == 0)
        return held + num_rows <= limit / num_clients

    def _check_deadline(self, request: GenerationRequest) -> None:
        if request.deadline is None:
            return
        left = request.deadline - self._clock()
        if left <= 0.0:
            self._on_refused(Refusal.DEADLINE)
            raise DeadlineExceededError("the deadline had passed on arrival")
        if not request.num_rows:  # scored in one pass: not a matter of steps
            return
        if not self.backlog.num_rows_inside:  # tried, whatever the estimate says
            return
        pace, num_rows = self.pace, request.num_rows
        steps = max(pace.least_steps(len(request.source_ids)), request.least_steps)
        if request.options.max_new_tokens is not None:
            steps = min(steps, request.options.max_new_tokens)
        least = steps * pace.least_step_seconds(num_rows)
        if least > left:
            self._on_refused(Refusal.DEADLINE)
            raise DeadlineExceededError(
                f"the deadline is {left:.3f} s away, "
                f"and an idle server takes {least:.3f} s at least"
            )
        wait = self._least_wait_seconds(request)
        width = min(self._max_rows, self.backlog.num_rows_inside + num_rows)
        late = wait + steps * pace.step_seconds(width) - left
        if wait > 0.0 and late > 0.0:
            self._refuse(
                Refusal.DEADLINE,
                f"the deadline is {left:.3f} s away, and the queue is {wait:.3f} s long at least",
                late,
            )

    def _least_wait_seconds(self, request: GenerationRequest) -> float:
        """What the wait is longer than, with few exceptions.

        An estimate over n sequences is off by some 1/sqrt(n) of itself, as their lengths vary.
        """
        return self.wait_seconds(request) * (1.0 - 1.0 / math.sqrt(len(self.backlog) + 1))

    def _spare_limit(self) -> float:
        """Rows up to which large calls may send more while the engine is overloaded: half."""
        return self.overload_rows // 2 if self.is_overloaded else math.inf

    def _work_off_seconds(self) -> float:
        """How long what is inside now takes."""
        rate = self.pace.rows_per_second()
        return self.places.num_taken * self.pace.mean_steps / rate

    def _overload(self) -> None:
        if self._max_queue_seconds is None:
            calm = max(_LEAST_CALM_SECONDS, _CALM_SEQUENCES * self.pace.sequence_seconds())
            self._overloaded_until = self._clock() + calm

    def _refuse(self, reason: Refusal, message: str, retry_after_seconds: float) -> None:
        self._on_refused(reason)
        seconds = min(_MAX_RETRY_SECONDS, max(_MIN_RETRY_SECONDS, retry_after_seconds))
        error: DragomanError = ResourceExhaustedError(message, seconds, reason=reason.value)
        raise error
