"""Admission control: which requests an engine takes and which it refuses.

A call is refused for one of these reasons, always before anything is computed for it:

- *quota*: the queue is full (`max_waiting` rows), or this client holds its share of it.
- *wait*: its first sequence would wait longer than allowed.
- *overload*: the engine is overloaded, and this client has its share of the rows.
- *deadline*: it would miss its deadline. RESOURCE_EXHAUSTED where load is the reason, since the
  same call may succeed later; DEADLINE_EXCEEDED where an idle server would miss it too.

An idle engine admits every call that fits and whose deadline has not passed: no other call is
delayed, and only steps correct an estimate that has become too high.

**Overload.** A step gets slower with every row, so a full batch answers hardly more sequences than
one that is two thirds full, but each of them takes half as long again. And a standing queue, as
opposed to a burst, adds latency without adding throughput (Nichols and Jacobson, "Controlling Queue
Delay", ACM Queue 10(5), 2012). So the automatic limit has two levels, as in Maurer, "Fail at Scale"
(ACM Queue 13(8), 2015). Normally a burst may queue for twice the duration of a sequence. After a
refusal, and until some time has passed since the last one, the engine admits only as many rows as
reach 95 % of the widest batch's throughput, plus the square root of that number, so that random
gaps between arrivals leave no row idle (Halfin and Whitt, 1981). Clients have equal shares of these
rows. A client that holds none has an equal share of all rows, so that clients that retry constantly
do not keep it out.

Naming ids of its own (`client_id`) does not enlarge a client's share. Within the share, an id
without rows is admitted while there is room. An id with rows has an equal part, with one part kept
for a new id. Three quarters of the share are open to any id, so that a single id can use them.
"""

from __future__ import annotations

import enum
import math
import sys
from collections.abc import Callable, Sequence

from model.bundle.limits import default_max_new_tokens
from service.batching.events import Iteration
from service.batching.records import EngineRequest
from service.domain.requests import FinishReason, GenerationRequest, GenerationResult
from service.engine.latency_model import CompletionEstimate, LatencyModel
from service.engine.queue_estimate import QueueEstimate
from service.engine.quota import AdmittedCall, Enqueue, Quota
from service.errors import DeadlineExceededError, ResourceExhaustedError

# How long a burst may queue: a multiple of a sequence's duration, and a minimum.
_BURST_SEQUENCES = 2.0
_MIN_BURST_SECONDS = 0.25
# How long an overload lasts after the last refusal: a multiple of a sequence's duration, and a
# minimum.
_CALM_SEQUENCES = 2.0
_MIN_CALM_SECONDS = 1.0
# Fewest rows admitted while overloaded, and fewest of them beyond `LatencyModel.enough_rows`. With
# less than this, random gaps would leave rows idle.
_MIN_ROWS, _MIN_SPARE_ROWS = 8, 4
# The part of a client's share that any of its ids may fill.
_OPEN_TO_ANY_ID = 0.75
_MAX_RETRY_SECONDS, _MIN_RETRY_SECONDS = 60.0, 0.1


class Refusal(enum.Enum):
    """The reason for a refusal."""

    QUOTA = "quota"
    WAIT = "wait"
    OVERLOAD = "overload"
    DEADLINE = "deadline"


class AdmissionController:
    """Admits or refuses requests, by quota, expected wait and deadline.

    It follows each admitted request through the engine, by its id.

    Args:
        max_rows: rows of the widest batch.
        max_waiting: number of rows that may wait in addition to those.
        max_queue_seconds: longest time that a call may wait for its first sequence to begin; None
            for the automatic limit.
        clock: returns the time in seconds, by which deadlines are measured.
        on_held_back: called with the number of calls that are held back, as in `Quota`.
        on_refused: called with the reason of every refusal.
        pauses_rows: whether rows of a sender beyond a small share leave those of others free.
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
        pauses_rows: bool = False,
    ) -> None:
        self._latency = LatencyModel(max_rows)
        self._queue = QueueEstimate()
        self._quota = Quota(
            max_rows + max_waiting, max_waiting // 2, on_held_back, self._spare_limit
        )
        self._max_rows = max_rows
        self._max_queue_seconds = max_queue_seconds
        self._clock = clock
        self._on_refused = on_refused
        self._pauses_rows = pauses_rows
        self._overloaded_until = -math.inf

    # --- decisions -------------------------------------------------------------------------------

    def admit(
        self,
        first: GenerationRequest | None,
        max_in_flight: int,
        enqueue: Enqueue,
        before: CompletionEstimate | None = None,
    ) -> AdmittedCall:
        """Admit a call with one or more sequences.

        Args:
            first: the call's first request; the others have the same client and number of rows.
                None checks only the quota.
            max_in_flight: most sequences of the call inside the engine at a time.
            enqueue: puts a request into the queue.
            before: estimate for the engine that has to run first; None without one, or if it is
                idle.

        Raises:
            ResourceExhaustedError: there is no room at present; the error says when to retry.
            DeadlineExceededError: the deadline has passed, or even an idle server would miss it.
        """
        num_rows = self.enter(first, before)
        client, client_id = ("", "") if first is None else (first.client, first.client_id)
        return AdmittedCall(
            self._quota,
            max_in_flight,
            enqueue,
            num_rows=num_rows,
            client=client,
            client_id=client_id,
        )

    def enter(
        self, first: GenerationRequest | None, before: CompletionEstimate | None = None
    ) -> int:
        """Take the quota for a call's first request, for its client.

        Returns:
            The number of rows taken.

        Raises:
            ResourceExhaustedError, DeadlineExceededError: for the same reasons as in `admit`.
        """
        num_rows = self.check(first, before)
        client, client_id = ("", "") if first is None else (first.client, first.client_id)
        has_taken = self._quota.take(num_rows, client, client_id)
        assert has_taken, "it was open"
        return num_rows

    def check(
        self, first: GenerationRequest | None, before: CompletionEstimate | None = None
    ) -> int:
        """Return the number of rows that `enter` would take, or raise the errors of `enter`."""
        # A score needs no row, but counts as one.
        num_rows, client = 1, ""
        if first is not None:
            num_rows, client = max(num_rows, first.num_rows), first.client
            self._check_deadline(first, before)
            self._check_wait(first)
        if not self._quota.is_open_to(num_rows, client):
            taken, capacity = self._quota.num_taken, self._quota.capacity
            raise self._refusal(
                Refusal.QUOTA,
                f"{taken} of {capacity} rows are taken, and there is no room for {num_rows} more "
                "of this client",
                self._drain_seconds(),
            )
        return num_rows

    def _check_deadline(
        self, request: GenerationRequest, before: CompletionEstimate | None
    ) -> None:
        if request.deadline is None:
            return
        left = request.deadline - self._clock()
        if left <= 0.0:
            self._on_refused(Refusal.DEADLINE)
            raise DeadlineExceededError("the deadline had passed on arrival")
        # An idle engine tries whatever the estimate is.
        if (estimate := self.estimate(request)) is None:
            return
        if before is not None:
            estimate = estimate.after(before)
        if estimate.least > left:
            self._on_refused(Refusal.DEADLINE)
            raise DeadlineExceededError(
                f"the deadline is {left:.3f} s away, "
                f"and an idle server takes {estimate.least:.3f} s at least"
            )
        late = estimate.wait + estimate.steps - left
        if estimate.wait > 0.0 and late > 0.0:
            raise self._refusal(
                Refusal.DEADLINE,
                f"the deadline is {left:.3f} s away, and the queue is {estimate.wait:.3f} s long "
                "at least",
                late,
            )

    def _check_wait(self, request: GenerationRequest) -> None:
        wait, limit = self.wait_seconds(request), self.max_wait_seconds
        if wait > limit:
            self._start_overload()
            raise self._refusal(
                Refusal.WAIT,
                f"the queue is {wait:.2f} s long, and {limit:.2f} s is the limit",
                max(wait - limit, self._drain_seconds()),
            )
        if self.is_overloaded and not self._is_within_share(request):
            # A beam can be too wide for the share of a nearly idle engine. That is no overload, and
            # repeating the request must not prolong one.
            if 2 * self._queue.num_rows_inside >= self.overload_rows:
                self._start_overload()
            raise self._refusal(
                Refusal.OVERLOAD,
                "more calls arrive than can be answered",
                self._drain_seconds(),
            )

    def _is_within_share(self, request: GenerationRequest) -> bool:
        """Whether an overloaded engine has room for the request, in total or for its client."""
        if not self._queue.num_rows_inside or self._finds_rows(request):
            return True
        quota, limit, num_rows = self._quota, self.overload_rows, request.num_rows
        # Large calls admitted before the overload may hold more than they would get now.
        spare = min(quota.num_spare, limit // 2)
        if quota.num_taken - quota.num_spare + spare + num_rows <= limit:
            return True
        held = quota.held_by(request.client)
        num_clients = quota.num_clients + (held == 0)
        # While all clients' first sequences fit into the rows, they are not an overload.
        share = (limit if held else max(limit, self._max_rows)) / num_clients
        return held + num_rows <= share and self._is_within_part(request, share)

    def _finds_rows(self, request: GenerationRequest) -> bool:
        """Whether a request has rows at once, whatever others have beyond their shares."""
        fits = self._queue.num_small_rows + request.num_rows <= self._max_rows
        return self._pauses_rows and fits and self._queue.is_small(request)

    def _is_within_part(self, request: GenerationRequest, share: float) -> bool:
        """Whether the client's share has room for the request's `client_id`."""
        quota, client, num_rows = self._quota, request.client, request.num_rows
        held = quota.held_by_id(client, request.client_id)
        if not request.client_id or not held:
            return True
        part = share / (quota.num_ids(client) + 1)
        is_open = quota.held_by(client) + num_rows <= _OPEN_TO_ANY_ID * share
        return is_open or held + num_rows <= part

    def _spare_limit(self) -> float:
        """Rows up to which large calls may submit more while the engine is overloaded: half."""
        return self.overload_rows // 2 if self.is_overloaded else math.inf

    def _start_overload(self) -> None:
        if self._max_queue_seconds is None:
            calm = max(_MIN_CALM_SECONDS, _CALM_SEQUENCES * self._latency.sequence_seconds())
            self._overloaded_until = self._clock() + calm

    def _refusal(
        self, reason: Refusal, message: str, retry_after_seconds: float
    ) -> ResourceExhaustedError:
        self._on_refused(reason)
        seconds = min(_MAX_RETRY_SECONDS, max(_MIN_RETRY_SECONDS, retry_after_seconds))
        return ResourceExhaustedError(message, seconds, reason=reason.value)

    # --- events ----------------------------------------------------------------------------------

    def submitted(self, submitted: EngineRequest) -> None:
        """Record that an admitted request was put into the queue."""
        request = submitted.request
        if not request.num_rows:  # a score waits for no row
            return
        num_source_tokens = len(request.source_ids)
        self._latency.submitted(num_source_tokens)
        steps = max(self._latency.expected_steps(num_source_tokens), request.least_steps)
        work = request.num_rows * min(steps, submitted.max_new_tokens)
        self._queue.submitted(submitted.id, request, work)

    def iterated(self, iterations: Sequence[Iteration]) -> None:
        """Learn from iterations that the step loop reported."""
        latency = self._latency
        for iteration in iterations:
            if num_rows := iteration.num_stepping:
                latency.stepped(num_rows, iteration.seconds, iteration.num_rows / num_rows)
            for request_id in iteration.admitted:
                self._queue.joined(request_id)
            if iteration.num_rows_encoded:
                latency.encoded(iteration.num_rows_encoded, iteration.encode_seconds)

    def answered(self, request: GenerationRequest, result: GenerationResult) -> None:
        """Learn from the length of a request's result."""
        if not request.num_rows:
            return
        options = request.options
        has_ended = result.finish_reason is FinishReason.EOS
        # At a tight limit, or where EOS is suppressed, the length is not the model's own.
        usual = default_max_new_tokens(len(request.source_ids), sys.maxsize)
        was_free = (options.max_new_tokens or usual) >= usual and not options.suppressed_ids
        if has_ended or (was_free and result.finish_reason is FinishReason.LENGTH):
            num_steps = len(result.token_ids) + has_ended
            if num_steps > request.least_steps:
                self._latency.finished(len(request.source_ids), num_steps)

    def ended(self, request_id: int) -> None:
        """Forget a request that has left the engine or will before the next step.

        May be called repeatedly.
        """
        self._queue.ended(request_id)

    # --- state and estimates ---------------------------------------------------------------------

    @property
    def num_taken(self) -> int:
        """Rows that wait or run, and those reserved by admitted calls; a score counts as one."""
        return self._quota.num_taken

    async def wait_until_empty(self) -> None:
        """Wait until everything admitted has been released."""
        await self._quota.empty.wait()

    @property
    def is_overloaded(self) -> bool:
        """Whether a call was recently refused because of load."""
        return self._clock() < self._overloaded_until

    @property
    def overload_rows(self) -> int:
        """Number of rows admitted while the engine is overloaded."""
        rows = self._latency.enough_rows()
        return max(_MIN_ROWS, rows + max(_MIN_SPARE_ROWS, math.isqrt(rows)))

    @property
    def max_wait_seconds(self) -> float:
        """The longest wait allowed at present, in seconds."""
        if self._max_queue_seconds is not None:
            return self._max_queue_seconds
        return max(_MIN_BURST_SECONDS, _BURST_SEQUENCES * self._latency.sequence_seconds())

    def wait_seconds(self, request: GenerationRequest) -> float:
        """Expected wait for rows of a request that arrives now, in seconds; 0 for a score."""
        queue, latency = self._queue, self._latency
        num_rows = request.num_rows
        fits = queue.num_rows_inside + num_rows <= self._max_rows
        if not num_rows or fits or self._finds_rows(request):
            return 0.0
        free = self._max_rows - queue.num_rows_running
        ahead = queue.ahead(request) - free * latency.mean_steps
        # In a full batch, a sequence's own rows come free in the time that as many take.
        return (max(0.0, ahead) + num_rows * latency.mean_steps) / latency.rows_per_second()

    def estimate(self, request: GenerationRequest) -> CompletionEstimate | None:
        """Estimate the time of a request that arrives now; None while the engine is idle.

        Also None for a score, which takes one pass and no steps.
        """
        num_rows, num_rows_inside = request.num_rows, self._queue.num_rows_inside
        if not num_rows or not num_rows_inside:
            return None
        latency = self._latency
        steps = max(latency.least_steps(len(request.source_ids)), request.least_steps)
        if request.options.max_new_tokens is not None:
            steps = min(steps, request.options.max_new_tokens)
        # The relative error of an estimate over n sequences is about 1/sqrt(n): lengths vary.
        certainty = 1.0 - 1.0 / math.sqrt(self._queue.num_waiting + 1)
        width = min(self._max_rows, num_rows_inside + num_rows)
        return CompletionEstimate(
            steps * latency.least_step_seconds(num_rows),
            self.wait_seconds(request) * certainty,
            steps * latency.step_seconds(width),
        )

    def expected_seconds(
        self, num_steps: int, num_positions: int, least_step_seconds: float
    ) -> float:
        """Longest time that steps of the present batch, encodes and scores take, in seconds.

        Args:
            num_steps: number of steps of all rows inside.
            num_positions: number of positions encoded or scored. Each costs less than a step of
                one row.
            least_step_seconds: lower bound on the duration of a step of one row.
        """
        num_rows = min(self._max_rows, max(1, self._queue.num_rows_inside))
        position_seconds = max(least_step_seconds, self._latency.step_seconds(1))
        return num_steps * self._latency.step_seconds(num_rows) + num_positions * position_seconds

    def _drain_seconds(self) -> float:
        """Expected time until everything inside the engine has finished, in seconds."""
        rows_per_second = self._latency.rows_per_second()
        return self._quota.num_taken * self._latency.mean_steps / rows_per_second
