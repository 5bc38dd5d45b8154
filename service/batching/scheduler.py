"""Iteration-level scheduling: requests join the batch, step and leave (Orca, OSDI 2022).

The scheduler is pure policy: no tensors of the model, no clock, no threads. For each lane
independently, a step loop calls `schedule` for a plan, executes it, and calls `update` with the
output.

Lanes are groups of rows that step as batches of their own; a runner without lanes counts as one.
All share one queue. With few rows, lanes take turns, each with all arithmetic threads, and a
request joins the lane with the most rows, so that there are few turns. With more rows, lanes step
concurrently, and a request joins the lane with the fewest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from service.batching.background_time import BackgroundTime
from service.batching.encode_queue import EncodeQueue
from service.batching.lane import NEVER, Lane, RowsInUse
from service.batching.output import Schedule, Update
from service.batching.records import EngineRequest, Finished, RequestEntry, RequestState
from service.batching.row_queue import RowQueue
from service.batching.score_scheduler import ScoreScheduler
from service.domain.plan import EncodedSource, RunnerLimits, StepOutput, TargetScore
from service.domain.requests import FinishReason
from service.errors import DeadlineExceededError, DragomanError

# Most source tokens that are encoded ahead at once for a single lane: all sources wait for the end
# of the encode, and a token costs no less in larger ones. (Two lanes fill more rows with larger
# ones, and a row costs less among more.)
_SINGLE_LANE_TOKENS = 192


class Scheduler:
    """Schedules the iterations of one or more lanes; owned by one thread.

    A lane is busy between `schedule` and `update` (or `fail_step`), and from `schedule` to `scored`
    (or `fail_scores`) while it scores.

    Args:
        limits: limits of each lane.
        bos_id, eos_id: ids that begin and end a target.
        encode_token_budget: most source tokens to encode in one iteration, so that new requests do
            not stall the running rows; a longer source is encoded alone.
        max_turn_rows: most rows, in use or waited for, with which lanes take turns.
        encodes_ahead: whether the loop encodes sources before their requests join, with more rows.
    """

    def __init__(
        self,
        limits: Sequence[RunnerLimits],
        *,
        bos_id: int,
        eos_id: int,
        encode_token_budget: int,
        max_turn_rows: int = 0,
        encodes_ahead: bool = False,
    ) -> None:
        self._max_turn_rows = max_turn_rows
        self.encodes_ahead = encodes_ahead
        self._encode_token_budget = encode_token_budget
        self._lanes = self._make_lanes(limits, bos_id, eos_id)
        max_rows = sum(lane.max_rows for lane in self._lanes)
        max_paused = sum(lane.max_paused_rows for lane in self._lanes)
        background = BackgroundTime(max_paused) if max_paused else None
        self._waiting = RowQueue(max_rows, max_paused, background)
        if len(self._lanes) == 1:  # it steps on the loop's thread
            ahead = min(encode_token_budget, _SINGLE_LANE_TOKENS)
            self._queue = EncodeQueue(self._waiting, ahead, max_rows, max_batches=2)
        else:
            self._queue = EncodeQueue(self._waiting, encode_token_budget, max_rows)
        self._scores = ScoreScheduler(encode_token_budget, self._waiting, eos_id)
        self._entries: dict[int, RequestEntry] = {}
        self._stepping: set[int] = set()
        self._scoring: int | None = None  # number of the lane that scores
        self._last_lane = 0
        # A lower bound of the deadlines of all waiting requests.
        self._next_deadline = NEVER

    def _make_lanes(
        self, limits: Sequence[RunnerLimits], bos_id: int, eos_id: int
    ) -> Sequence[Lane]:
        return [Lane(n, one, bos_id=bos_id, eos_id=eos_id) for n, one in enumerate(limits)]

    @property
    def num_waiting(self) -> int:
        """Number of requests that wait for rows or to be scored."""
        return len(self._queue) + len(self._scores)

    @property
    def num_running(self) -> int:
        """Number of rows in use, in all lanes."""
        return sum([lane.num_running for lane in self._lanes])

    @property
    def num_busy(self) -> int:
        """Number of lanes with work in flight."""
        scores_only = self._scoring is not None and self._scoring not in self._stepping
        return len(self._stepping) + scores_only

    @property
    def is_idle(self) -> bool:
        """Whether no request is left and nothing is in flight."""
        return not (self._entries or self.num_busy or self.is_encoding)

    @property
    def takes_turns(self) -> bool:
        """Whether rows are so few that lanes take turns with the whole processor."""
        return self._demand() <= self._max_turn_rows

    def num_beside(self, lane: int) -> int:
        """Number of rows in use in the other lanes."""
        return self.num_running - self._lanes[lane].num_running

    def running(self, lane: int) -> list[RequestEntry]:
        """The requests in the rows of a lane."""
        return self._lanes[lane].running()

    # --- commands --------------------------------------------------------------------------------

    def add(self, requests: Iterable[EngineRequest]) -> None:
        """Queue requests."""
        for request in requests:
            entry = RequestEntry(request)
            self._entries[entry.id] = entry
            if entry.num_rows:
                self._waiting.push(entry)
            else:
                self._scores.push(entry)
            self._next_deadline = min(self._next_deadline, entry.deadline)

    def stream(self, request_id: int) -> list[int]:
        """Report the request's tokens at every step from now on; returns its tokens so far."""
        entry = self._entries.get(request_id)
        if entry is None:
            return []
        entry.streams = True
        return [] if entry.lane is None else self._lanes[entry.lane].stream(entry)

    def cancel(self, request_id: int, error: DragomanError, now: float) -> list[Finished]:
        """Drop a request at once or, if it has rows, before its lane's next step."""
        entry = self._entries.get(request_id)
        if entry is None:
            return []
        if entry.lane is not None:
            self._lanes[entry.lane].cancel(entry, error)
            return []
        return [self._end_without_rows(entry, now, FinishReason.CANCELLED, error)]

    # --- encoding ahead --------------------------------------------------------------------------

    @property
    def is_encoding(self) -> bool:
        """Whether an encode is in flight."""
        return self._queue.is_encoding

    @property
    def can_encode(self) -> bool:
        """Whether `to_encode` would return any request."""
        if not self.encodes_ahead or not len(self._waiting):
            return False
        self._must_take_turns(self._demand())
        return self._queue.can_begin()

    def to_encode(self) -> list[RequestEntry]:
        """Choose requests to encode now; if there are any, call `encoded` or `encode_failed`."""
        return self._queue.begin() if self.can_encode else []

    def encoded(self, sources: Sequence[EncodedSource]) -> None:
        """Record the encoded sources of the requests of `to_encode`, in its order."""
        self._queue.end(sources)

    def encode_failed(self, error: DragomanError, now: float) -> list[Finished]:
        """Finish the requests of `to_encode` with an error."""
        return self._fail(self._queue.end(None), error, now)

    def _must_take_turns(self, demand: int) -> bool:
        """Decide by the demand whether lanes take turns and whether sources are encoded ahead."""
        takes_turns = demand <= self._max_turn_rows
        self._queue.is_bypassed = takes_turns or not self.encodes_ahead
        return takes_turns

    # --- an iteration ----------------------------------------------------------------------------

    def ready(self) -> list[int]:
        """Numbers of the lanes that can begin work now: only the next one if they take turns."""
        demand = self._demand()
        takes_turns = self._must_take_turns(demand)
        if takes_turns and self.num_busy:
            return []
        self._waiting.begin()
        lanes = [lane for lane in range(len(self._lanes)) if self._has_work(lane, demand)]
        if takes_turns and len(lanes) > 1:
            num_lanes = len(self._lanes)
            return [min(lanes, key=lambda lane: (lane - self._last_lane - 1) % num_lanes)]
        return lanes

    def schedule(self, now: float, lane: int = 0) -> Schedule:
        """Choose the next work of a lane."""
        dropped = self._drop(now, lane)
        self._waiting.begin()
        admitted, scoring = self._choose(now, lane)
        plan = self._lanes[lane].plan(admitted, self._waiting.background)
        self._last_lane = lane
        if plan is not None:
            self._stepping.add(lane)
        return Schedule(lane, now, plan, admitted, dropped, scoring)

    def advance(self, outputs: Sequence[StepOutput], now: float, lane: int = 0) -> None:
        """Append the tokens of a lane's step and of those that followed it at once, but the last.

        Args:
            outputs: outputs of these steps, in order; `update` takes the last one.
            now: time at which the first of them ended.
        """
        self._lanes[lane].advance(outputs, now)
        self._queue.stepped(len(outputs))

    def update(self, output: StepOutput, now: float, lane: int = 0) -> Update:
        """Append the tokens chosen after a lane's step, or after the last that followed it."""
        self._stepping.discard(lane)
        update = self._lanes[lane].update(output, now)
        self._queue.stepped()
        self._forget(update.finished)
        return update

    def fail_step(self, error: DragomanError, now: float, lane: int = 0) -> list[Finished]:
        """Finish the requests in the rows of a lane after its step has failed."""
        self._stepping.discard(lane)
        return self._forget(self._lanes[lane].fail(error, now))

    def scored(
        self, entries: Iterable[RequestEntry], scores: Iterable[TargetScore], now: float
    ) -> list[Finished]:
        """Finish the requests of `Schedule.scoring` with their scores."""
        self._scoring = None
        return self._forget(self._scores.scored(entries, scores, now))

    def fail_scores(
        self, entries: Iterable[RequestEntry], error: DragomanError, now: float
    ) -> list[Finished]:
        """Finish the requests of `Schedule.scoring` with an error."""
        self._scoring = None
        return self._fail(entries, error, now)

    # --- steps that follow each other at once ----------------------------------------------------

    def num_uninterrupted_steps(self, lane: int = 0) -> int:
        """Number of steps, the planned one included, that can run without an update between."""
        is_scoring = self._scoring is not None or self._scores.has_debt
        if self.num_waiting or is_scoring or self.num_beside(lane):
            return 1
        return self._lanes[lane].num_uninterrupted_steps

    def can_continue(self, output: StepOutput, now: float, lane: int = 0) -> bool:
        """Whether no row ended with its best token, and no deadline has passed."""
        return self._lanes[lane].can_continue(output, now)

    # --- dropping --------------------------------------------------------------------------------

    def _drop(self, now: float, lane: int) -> list[Finished]:
        dropped = self._forget(self._lanes[lane].drop(now))
        if now < self._next_deadline:
            return dropped
        waiting = [*self._queue, *self._scores]
        later = (entry.deadline for entry in waiting if entry.deadline > now)
        self._next_deadline = min(later, default=NEVER)
        for entry in waiting:
            if entry.deadline <= now:
                error = DeadlineExceededError("the deadline passed while it waited")
                dropped.append(self._end_without_rows(entry, now, FinishReason.DEADLINE, error))
        return dropped

    def _fail(
        self, entries: Iterable[RequestEntry], error: DragomanError, now: float
    ) -> list[Finished]:
        return [
            self._end_without_rows(entry, now, FinishReason.ERROR, error)
            for entry in entries
            if entry.state is not RequestState.FINISHED
        ]

    def _end_without_rows(
        self, entry: RequestEntry, now: float, reason: FinishReason, error: DragomanError
    ) -> Finished:
        (self._queue if entry.num_rows else self._scores).discard(entry)
        del self._entries[entry.id]
        return entry.finish(now, reason=reason, error=error)

    def _forget(self, all_finished: list[Finished]) -> list[Finished]:
        for finished in all_finished:
            entry = self._entries.pop(finished.id)
            if entry.num_rows:
                self._waiting.release(entry)
                self._waiting.settle(entry)
        return all_finished

    # --- admission to a lane ---------------------------------------------------------------------

    def _choose(self, now: float, lane: int) -> tuple[list[RequestEntry], list[RequestEntry]]:
        """Requests that join a lane now, and targets to score after its step, within one budget.

        Translations come first, as in the iteration, unless they left no room for a score in the
        last one.
        """
        if not (len(self._scores) or self._scores.has_debt) or not self._may_score(lane):
            return self._admit(now, lane), []
        beside_rows = self.num_running > 0
        scoring: list[RequestEntry] = []
        if self._scores.is_first:
            scoring = self._scores.schedule(now, beside_rows=beside_rows)
        admitted = self._admit(now, lane, _num_tokens(scoring))
        if not scoring:
            scoring = self._scores.schedule(now, _num_tokens(admitted), beside_rows=beside_rows)
        if scoring:
            self._scoring = lane
        return admitted, scoring

    def _admit(self, now: float, lane: int, num_spent: int = 0) -> list[RequestEntry]:
        """Requests that join a lane now, in the queue's order, while rows and budget suffice.

        `num_spent` tokens of the budget have been spent.
        """
        admitted: list[RequestEntry] = []
        if not len(self._queue):
            return admitted
        rows, demand = [one.rows_in_use() for one in self._lanes], self._demand()
        while (entry := self._queue.peek(partial(self._takes, lane, rows, demand))) is not None:
            if num_spent and num_spent + entry.num_encoded_tokens > self._encode_token_budget:
                break
            self._queue.take(entry)
            entry.admit(now)
            rows[lane] = rows[lane].with_rows_of(entry)
            num_spent += entry.num_encoded_tokens
            admitted.append(entry)
        return admitted

    def _takes(
        self, lane: int, in_use: Sequence[RowsInUse], demand: int, entry: RequestEntry
    ) -> bool:
        """Whether a lane takes a request that may join, given the rows in use in each lane."""
        if not self._lanes[lane].has_room(entry, in_use[lane]):
            return False
        if len(in_use) == 1:
            return True
        lanes = enumerate(zip(self._lanes, in_use, strict=True))
        fitting = [n for n, (one, used) in lanes if one.has_room(entry, used)]
        rows = [used.total for used in in_use]
        if demand <= self._max_turn_rows:
            return lane == max(fitting, key=lambda n: (rows[n], -n))
        # A lane below its share of the demand takes it, otherwise the lane with the fewest rows.
        # Lanes that score come last, since a score may take much longer than a step. Of two lanes
        # with the same number of rows, one that is not stepping takes it, since it can do so now.
        if (rows[lane] + entry.num_rows) * len(rows) < demand + len(rows):
            return True
        return lane == min(
            fitting, key=lambda n: (n == self._scoring, rows[n], n in self._stepping, n)
        )

    def _may_score(self, lane: int) -> bool:
        """Whether a lane may score: one lane at a time, and only the one with the most rows."""
        most = max(range(len(self._lanes)), key=lambda n: (self._lanes[n].num_running, -n))
        return self._scoring is None and lane == most

    def _has_work(self, lane: int, demand: int) -> bool:
        """Whether a lane has work and nothing in flight."""
        if lane in self._stepping or lane == self._scoring:
            return False
        is_paused = self._lanes[lane].is_paused(self._waiting.background)
        if self._lanes[lane].num_running and not is_paused:
            return True
        if len(self._scores) and self._may_score(lane):
            return True
        if not len(self._queue):
            return False
        rows = [one.rows_in_use() for one in self._lanes]
        return self._queue.peek(partial(self._takes, lane, rows, demand)) is not None

    def _demand(self) -> int:
        """Number of rows in use and rows waited for."""
        return self.num_running + self._queue.num_rows


def _num_tokens(entries: Iterable[RequestEntry]) -> int:
    return sum(entry.num_encoded_tokens for entry in entries)
