"""The scheduler for pipelined steps on a GPU; unrelated to asyncio.

It plans a step before the output of the previous step is known. Otherwise the host would wait for
the device during a step, and the device for the host after it. Greedy rows do not need the host:
the runner feeds each its own best token (`StepPlan.chained`). So a plan is made from a state that
is one or more steps old:

- A row that has ended since then steps again, and its output is discarded.
- Joining, leaving and cancelling are delayed by the number of steps in flight. With many rows, new
  requests wait up to three more steps, so that several join at once.
- Rows don't move while a step is in flight: free rows are given to new requests, or stay free.

Searches that need the host at every step (beams, sampling, repetition rules, forced tokens) are not
scheduled ahead: while one of them runs, the output of every step is awaited before the next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from service.batching.background_time import BackgroundTime
from service.batching.lane import Lane, RowsInUse
from service.batching.output import Update
from service.batching.records import Finished, RequestEntry, RequestState
from service.batching.scheduler import Scheduler
from service.decoding.row_states import Indices
from service.domain.plan import Bools, RunnerLimits, StepOutput, StepPlan
from service.errors import DragomanError

# With a larger share of free rows than this, no step is scheduled ahead, so that rows can move.
_MAX_FREE_PART = 0.25

# When requests join, be it one or twenty, the host launches an encode and sends its inputs, which
# takes about as long as a GPU's step of many rows. So with this many rows or more, requests join at
# every fourth step at most.
_MANY_ROWS = 64
JOIN_EVERY = 4


class AsyncScheduler(Scheduler):
    """A scheduler of one lane that can have several steps in flight.

    Args:
        limits: limits of the runner.
        bos_id, eos_id: ids that begin and end a target.
        encode_token_budget: most source tokens to encode in one iteration.
        many_rows: number of running rows from which on requests join together.
    """

    def __init__(
        self,
        limits: RunnerLimits,
        *,
        bos_id: int,
        eos_id: int,
        encode_token_budget: int,
        many_rows: int = _MANY_ROWS,
    ) -> None:
        super().__init__(
            [limits], bos_id=bos_id, eos_id=eos_id, encode_token_budget=encode_token_budget
        )
        self._many_rows = many_rows
        self._steps_since_join = 0  # counts steps scheduled ahead

    def _make_lanes(
        self, limits: Sequence[RunnerLimits], bos_id: int, eos_id: int
    ) -> Sequence[Lane]:
        self._lane = AsyncLane(0, limits[0], bos_id=bos_id, eos_id=eos_id)
        return [self._lane]

    def can_schedule(self) -> bool:
        """Whether `schedule` may be called before the steps in flight have been updated."""
        if not self._lane.num_in_flight:
            return True
        if not self._lane.is_greedy or self._scores.is_due:
            return False
        head = self._queue.peek(lambda _: True)
        if head is None:
            return not self._lane.is_sparse and self._lane.continues_after_in_flight
        return _is_greedy(head)  # another joins when rows may move

    def _choose(self, now: float, lane: int) -> tuple[list[RequestEntry], list[RequestEntry]]:
        if not self._lane.num_in_flight:
            return super()._choose(now, lane)
        self._scores.pay()  # nothing is scored beside a step in flight
        self._steps_since_join += 1
        if self.num_running >= self._many_rows and self._steps_since_join < JOIN_EVERY:
            return [], []
        admitted = self._admit(now, lane)
        if admitted:
            self._steps_since_join = 0
        return admitted, []

    def _takes(
        self, lane: int, in_use: Sequence[RowsInUse], demand: int, entry: RequestEntry
    ) -> bool:
        if self._lane.num_in_flight and not _is_greedy(entry):
            return False
        return super()._takes(lane, in_use, demand, entry)


class AsyncLane(Lane):
    """A lane that can be planned while steps are in flight; `update` follows the plans' order."""

    def __init__(self, number: int, limits: RunnerLimits, *, bos_id: int, eos_id: int) -> None:
        super().__init__(number, limits, bos_id=bos_id, eos_id=eos_id)
        # For each plan in flight: the request in each of its rows, and the requests it admitted.
        self._in_flight: deque[tuple[list[RequestEntry | None], list[RequestEntry]]] = deque()

    @property
    def num_in_flight(self) -> int:
        """Number of plans that have not been updated with their output."""
        return len(self._in_flight)

    @property
    def is_greedy(self) -> bool:
        """Whether every row takes the model's best token."""
        return self._decoding.is_greedy

    @property
    def is_sparse(self) -> bool:
        """Whether so many rows are free that the others should be moved together."""
        return len(self._free_rows) > _MAX_FREE_PART * len(self._owners)

    @property
    def continues_after_in_flight(self) -> bool:
        """Whether any row will continue after the steps in flight."""
        rows = [row for row, entry in enumerate(self._owners) if entry is not None]
        return self._decoding.continues_after(rows, self.num_in_flight)

    def plan(
        self, admitted: list[RequestEntry], background: BackgroundTime | None = None
    ) -> StepPlan | None:
        """Plan a step to follow those in flight; no row pauses."""
        plan = super().plan(admitted)
        if plan is not None:
            self._in_flight.append((list(self._owners), admitted))
        return plan

    def _close_gaps(self) -> None:
        if not self._in_flight:
            super()._close_gaps()
            return
        while self._owners and self._owners[-1] is None:
            self._owners.pop()
            self._free_rows.remove(len(self._owners))

    def _chained(self, admitted: list[RequestEntry]) -> Bools | None:
        if not self._in_flight:
            return None
        chained = np.ones(len(self._owners), np.bool_)
        chained[[entry.rows[0] for entry in admitted]] = False
        return chained

    def update(self, output: StepOutput, now: float) -> Update:
        """Append the output of the oldest plan in flight, for rows with the same request."""
        owners, admitted = self._in_flight.popleft()
        self._admitted = [one for one in admitted if one.state is not RequestState.FINISHED]
        self._set_first_token_at(now)
        rows = self._still_owned(owners)
        if len(rows) == len(owners) == len(self._owners):
            return self._report(self._decoding.advance(output), now)
        finished_rows = self._decoding.advance_some(output, rows)
        return self._report(finished_rows, now, set(rows.tolist()))

    def fail(self, error: DragomanError, now: float) -> list[Finished]:
        """Finish all requests after the oldest plan in flight has failed.

        The plans after it used caches that can't be trusted; their output is ignored.
        """
        self._in_flight.popleft()
        return super().fail(error, now)

    def _still_owned(self, owners: list[RequestEntry | None]) -> Indices:
        """The rows of a plan that still hold the same request."""
        pairs = enumerate(zip(owners, self._owners, strict=False))
        rows = [row for row, (then, now) in pairs if then is not None and then is now]
        return np.array(rows, np.intp)


def _is_greedy(entry: RequestEntry) -> bool:
    """Whether the request needs the host only to report its tokens."""
    options = entry.request.options
    return entry.num_rows == 1 and options.sampling is None and not options.has_constraints
