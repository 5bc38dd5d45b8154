"""Which lane a request joins, where rows are in lanes that step beside each other.

Each lane has a `Scheduler` of its own, and all of them one queue: who is next is decided there, and
which lane takes it here. While there are few rows, lanes take turns, each with the whole processor,
and who comes joins the lane with the most, so that there are few turns. With more, lanes step
beside each other, and who comes joins the one with the fewest.

Pure policy, like the scheduler: no tensors, no clock, no threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from service.batching.encode_queue import EncodeQueue
from service.batching.fair_queue import FairQueue
from service.batching.jobs import Job
from service.batching.scheduler import Finished, Schedule, Scheduler
from service.errors import DragomanError
from service.runtime.plan import EncodedSource, RunnerLimits, TargetScore

# In a full batch, sources for such a part of the rows are encoded before there is a row for them:
# of as many rows in the model that ships, somebody ends while an encode takes its time.
_AHEAD_PART = 8
# One thread encodes for so many lanes. In the model that ships, an encode takes about half as long
# as the steps of the same text; with more lanes, each encodes for itself.
_MOST_LANES_ENCODED_FOR = 2


class LaneScheduler:
    """Decides for every lane; a lane is named by its number.

    Between `schedule` and `release` a lane is busy: its step is under way, or what it scores.

    Args:
        limits: of each lane.
        bos_id, eos_id, encode_token_budget: as for `Scheduler`.
        together: up to so many rows, those that wait included, lanes take turns.
    """

    def __init__(
        self,
        limits: Sequence[RunnerLimits],
        *,
        bos_id: int,
        eos_id: int,
        encode_token_budget: int,
        together: int,
    ) -> None:
        self._together = together
        self._waiting = EncodeQueue(FairQueue(), encode_token_budget)
        self._lanes = [
            Scheduler(
                one,
                bos_id=bos_id,
                eos_id=eos_id,
                encode_token_budget=encode_token_budget,
                waiting=self._waiting,
            )
            for one in limits
        ]
        self._max_rows = sum(one.max_rows for one in limits)
        self._encoding: list[Job] = []
        self._busy: set[int] = set()
        self._scoring: int | None = None  # the lane that scores
        self._last = 0  # whose turn it was

    @property
    def num_waiting(self) -> int:
        """Jobs that wait for a row."""
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        """Rows in use, in all lanes."""
        return sum(lane.num_running for lane in self._lanes)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to schedule and nothing under way."""
        if self._busy or self._encoding or self.num_running or self.num_waiting:
            return False
        return not any(lane.must_drop for lane in self._lanes)

    @property
    def takes_turns(self) -> bool:
        """Whether there are few enough rows that one lane at a time has the whole processor."""
        return self._demand() <= self._together

    @property
    def num_busy(self) -> int:
        """Lanes with something under way."""
        return len(self._busy)

    def num_beside(self, lane: int) -> int:
        """Rows in use in the other lanes."""
        return self.num_running - self._lanes[lane].num_running

    def is_alone(self, lane: int) -> bool:
        """Whether none of the other lanes has anything to do, but for those who wait."""
        return not any(
            other.num_running or other.must_drop
            for number, other in enumerate(self._lanes)
            if number != lane
        )

    # --- orders, as `Scheduler` takes them -------------------------------------------------------

    def add(self, jobs: Iterable[Job]) -> None:
        """Let jobs wait for their turn."""
        for job in jobs:
            self._waiting.push(job)
            for lane in self._lanes:
                lane.expect(job)

    def stream(self, job: Job) -> list[int]:
        """From now on report the job's tokens at every step. Returns its tokens so far."""
        return self._lane_of(job).stream(job)

    def cancel(self, job: Job, error: DragomanError) -> None:
        """Let the job leave before its lane's next step, unless it has ended."""
        # Nobody may let it join meanwhile.
        self._waiting.discard(job)
        self._lane_of(job).cancel(job, error)

    def _lane_of(self, job: Job) -> Scheduler:
        """The lane that a job is in; the first for who is in none."""
        return next((lane for lane in self._lanes if lane.owns(job)), self._lanes[0])

    # --- encoding, beside what the lanes do ------------------------------------------------------

    @property
    def is_encoding(self) -> bool:
        """Whether an encode is under way."""
        return bool(self._encoding)

    @property
    def can_encode(self) -> bool:
        """Whether `to_encode` would do anything."""
        if self._encoding or not self._waiting.num_queued:
            return False
        self._choose_way(self._demand())
        return self._waiting.can_begin(self._num_free())

    def to_encode(self) -> list[Job]:
        """Those whose sources are encoded now; if any, end it with `encoded` or `encode_failed`."""
        if self._encoding or not self._waiting.num_queued:
            return []
        self._choose_way(self._demand())
        self._encoding = self._waiting.begin(self._num_free())
        return list(self._encoding)

    def encoded(self, sources: Sequence[EncodedSource]) -> None:
        """Let those join whose sources have been encoded, in the order of `to_encode`."""
        self._waiting.encoded(self._encoding, sources)
        self._encoding = []

    def encode_failed(self, error: DragomanError, now: float) -> list[Finished]:
        """End those whose sources could not be encoded."""
        jobs, self._encoding = self._encoding, []
        return self.fail(jobs, error, now)

    def _choose_way(self, demand: int) -> bool:
        """Whether lanes take turns, with so much to do; newcomers join accordingly."""
        takes_turns = demand <= self._together
        self._waiting.is_passed = takes_turns or len(self._lanes) > _MOST_LANES_ENCODED_FOR
        return takes_turns

    def _num_free(self) -> int:
        """Rows to encode for. A few more than are free, lest one that comes free has to wait."""
        ahead = max(1, self._max_rows // _AHEAD_PART)
        return self._max_rows + ahead - self.num_running - self._waiting.num_promised

    # --- what the lanes do -----------------------------------------------------------------------

    def ready(self) -> list[int]:
        """Lanes that can begin something now: the next one if they take turns."""
        demand = self._demand()
        takes_turns = self._choose_way(demand)
        if takes_turns and self._busy:
            return []
        lanes = self._with_work(demand)
        if takes_turns and lanes:
            return [min(lanes, key=lambda number: (number - self._last - 1) % len(self._lanes))]
        return lanes

    def _with_work(self, demand: int) -> list[int]:
        """Lanes that have something to do and nothing under way."""
        head, score = self._waiting.peek(), self._waiting.peek(scored=True)
        rows = self._rows()
        return [
            number
            for number, lane in enumerate(self._lanes)
            if number not in self._busy
            and (
                lane.num_running
                or lane.must_drop
                or (head is not None and self._takes(number, head, rows, demand))
                or (score is not None and self._may_score(number, rows))
            )
        ]

    def schedule(self, number: int, now: float) -> Schedule:
        """What a lane does next. If that is anything, the lane is busy until it is released."""
        rows: list[int] = []
        demand = 0
        may_score = False

        def may_join(job: Job) -> bool:
            nonlocal demand, may_score
            if not rows:  # only now: who was dropped has left the lane
                rows.extend(self._rows())
                demand, may_score = self._demand(), self._may_score(number, rows)
            if not (self._takes(number, job, rows, demand) if job.num_rows else may_score):
                return False
            rows[number] += job.num_rows
            return True

        schedule = self._lanes[number].schedule(now, may_join)
        self._last = number
        if schedule.plan is not None or schedule.scoring:
            self._busy.add(number)
        if schedule.scoring:
            self._scoring = number
        return schedule

    def lane(self, number: int) -> Scheduler:
        """A lane's own scheduler, to take in what its step brought."""
        return self._lanes[number]

    def scored(
        self, jobs: Iterable[Job], scores: Iterable[TargetScore], now: float
    ) -> list[Finished]:
        """End jobs of `Schedule.scoring` with what scoring them brought.

        A lane beside the one that scored them may have dropped some, which were cancelled.
        """
        return self._lanes[0].scored(jobs, scores, now)

    def fail(self, jobs: Iterable[Job], error: DragomanError, now: float) -> list[Finished]:
        """End jobs that have no row with an error, but for those that have ended."""
        return self._lanes[0].fail(jobs, error, now)

    def release(self, number: int) -> None:
        """What a lane had under way has been taken in."""
        self._busy.discard(number)
        if self._scoring == number:
            self._scoring = None

    def _rows(self) -> list[int]:
        return [lane.num_running for lane in self._lanes]

    def _demand(self) -> int:
        """Rows in use and rows that are waited for."""
        return self.num_running + self._waiting.num_rows

    def _may_score(self, number: int, rows: Sequence[int]) -> bool:
        """Whether this lane may score: one at a time.

        It is one with rows, if there are any: there, scores get no more than their part.
        """
        most = max(range(len(rows)), key=lambda other: (rows[other], -other))
        return self._scoring is None and number == most

    def _takes(self, number: int, job: Job, rows: Sequence[int], demand: int) -> bool:
        """Whether this lane takes a job that needs rows, given the rows in use in each."""
        fitting = [
            other
            for other, used in enumerate(rows)
            if self._lanes[other].max_rows - used >= job.num_rows
        ]
        if number not in fitting:
            return False
        if demand <= self._together:
            return number == max(fitting, key=lambda other: (rows[other], -other))
        # Its share of all that there is to do, or else the lane with the fewest: one that does not
        # score, which may take much longer than a step; of two that are alike, the one that can
        # take it now.
        if (rows[number] + job.num_rows) * len(rows) < demand + len(rows):
            return True
        return number == min(
            fitting,
            key=lambda other: (other == self._scoring, rows[other], other in self._busy, other),
        )
