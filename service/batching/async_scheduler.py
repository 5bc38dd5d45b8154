"""Planning a step before the one under way has been looked at.

While a device works on a step, the host would otherwise wait for it, and then the device for the
host. Greedy rows need no host: the runner feeds each its own best token (`StepPlan.chained`). So
the next plan is made from what is known, which is that of one step or more ago:

- A row that has ended meanwhile steps for nobody once more; what it brings is left out afterwards.
- Who joins, leaves or is cancelled does so as many steps later as are under way; and among many
  rows, who joins waits up to three steps more for others to join with.
- Rows don't move while a step is under way: holes are filled by newcomers, or wait.

Searches that ask the host at every step (beams, sampling, repetition rules, forced tokens) are not
planned ahead: while one of them is there, every step is looked at before the next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from service.batching.jobs import Job
from service.batching.scheduler import Finished, Schedule, Scheduler, Update
from service.decoding.row_states import Indices
from service.errors import DragomanError
from service.runtime.plan import Adjustments, Bools, RunnerLimits, StepOutput, StepPlan

# With more rows that nobody owns than this share, rows are made dense instead.
_MOST_HOLES = 0.25

# To let somebody join takes the host about as long as a step of many rows takes a GPU, be it one or
# twenty: launching an encode, and sending what goes with it. So from so many rows on, newcomers
# join at every fourth step at most.
_MANY_ROWS = 64
JOIN_EVERY = 4


@dataclass(frozen=True)
class _Flight:
    """A plan under way.

    Attributes:
        owners: who was in each of its rows; None in one that steps for nobody.
        newcomers: who joined with it.
    """

    owners: list[Job | None]
    newcomers: list[Job]


class AsyncScheduler(Scheduler):
    """A scheduler that can also plan ahead. `update` takes in the outputs in the plans' order.

    Args:
        limits, bos_id, eos_id, encode_token_budget: as for `Scheduler`.
        many_rows: that run, from which on newcomers join together.
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
            limits, bos_id=bos_id, eos_id=eos_id, encode_token_budget=encode_token_budget
        )
        self._many_rows = many_rows
        self._steps_since_join = 0  # of those that were planned ahead
        self._under_way: deque[_Flight] = deque()

    @property
    def num_under_way(self) -> int:
        """Plans whose output has not been taken in."""
        return len(self._under_way)

    def schedule(self, now: float, may_join: Callable[[Job], bool] | None = None) -> Schedule:
        """Choose who steps next, when nothing is under way."""
        assert not self._under_way, "with a step under way, rows may not move"
        schedule = super().schedule(now, may_join)
        if schedule.plan is not None:
            self._under_way.append(_Flight(list(self._owners), self._newcomers))
        return schedule

    def schedule_ahead(self, now: float) -> Schedule | None:
        """Choose who steps after the plans under way; None if they have to be looked at first.

        With a schedule but no plan, there is nobody to step.
        """
        if not self._can_plan_ahead():
            return None
        dropped = self._drop_cancelled(now) if self._cancelled else []
        if now >= self._next_deadline:
            dropped += self._drop_expired(now)
        newcomers = self._admit_together(now)
        encodes = self._place(newcomers)
        self._drop_last_holes()
        num_rows = len(self._owners)
        if not num_rows:
            return Schedule(None, newcomers, dropped, [])
        plan = StepPlan(
            copies=(),
            encodes=encodes,
            token_ids=self._states.token_ids[:num_rows].copy(),
            positions=self._states.positions[:num_rows].copy(),
            adjustments=Adjustments.none(),
            top_k=self._decoding.top_k,
            chained=self._chained(newcomers),
        )
        self._under_way.append(_Flight(list(self._owners), newcomers))
        return Schedule(plan, newcomers, dropped, [])

    def update(self, output: StepOutput, now: float) -> Update:
        """Take in what the oldest plan under way brought."""
        flight = self._under_way.popleft()
        self._newcomers = [job for job in flight.newcomers if not job.has_ended]
        rows = self._still_there(flight)
        if len(rows) == len(flight.owners) == len(self._owners):
            return super().update(output, now)
        finished_rows = self._decoding.advance_some(output, rows)
        for job in self._newcomers:
            job.first_token_at = now
        stepped = set(rows.tolist())
        streamed = [(job, tokens) for job, tokens in self._new_tokens() if job.rows[0] in stepped]
        finished = [self._end(self._owner(row), None, now) for row in finished_rows]
        return Update(self._newcomers, streamed, finished)

    def fail_running(self, error: DragomanError, now: float) -> list[Finished]:
        """End every job that has a row: the oldest plan under way failed.

        What comes after it went on with caches that can't be trusted, and is left out as it comes.
        """
        self._under_way.popleft()
        return super().fail_running(error, now)

    def _can_plan_ahead(self) -> bool:
        if not self._decoding.is_greedy:
            return False
        if self._may_score():
            return False  # not beside a step under way
        head = self._waiting.peek()
        if head is not None and not _is_greedy(head):
            return False  # its turn comes when rows may move
        if len(self._holes) > _MOST_HOLES * len(self._owners) and head is None:
            return False
        # Whether somebody certainly goes on, or joins.
        return head is not None or self._decoding.goes_on(
            [row for row, job in enumerate(self._owners) if job is not None], self.num_under_way
        )

    def _admit_together(self, now: float) -> list[Job]:
        self._steps_since_join += 1
        if self.num_running >= self._many_rows and self._steps_since_join < JOIN_EVERY:
            return []
        newcomers = self._admit(now, _is_greedy)
        if newcomers:
            self._steps_since_join = 0
        return newcomers

    def _chained(self, newcomers: list[Job]) -> Bools:
        chained = np.ones(len(self._owners), np.bool_)
        chained[[job.rows[0] for job in newcomers]] = False
        return chained

    def _drop_last_holes(self) -> None:
        while self._owners and self._owners[-1] is None:
            self._owners.pop()
            self._holes.remove(len(self._owners))

    def _still_there(self, flight: _Flight) -> Indices:
        """The rows of the plan whose owner is still the same."""
        pairs = enumerate(zip(flight.owners, self._owners, strict=False))
        rows = [row for row, (then, now) in pairs if then is not None and then is now]
        return np.array(rows, np.intp)


def _is_greedy(job: Job) -> bool:
    """Whether the job needs the host for nothing but to be told its tokens."""
    options = job.request.options
    return job.num_rows == 1 and options.sampling is None and not options.has_constraints
