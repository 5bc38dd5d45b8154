"""The rows of one lane: the request in each, and the plan of their next step.

A lane is a group of rows that steps as one batch, with its own caches.

Rows of background requests (`RowShares`) are behind the others, and pause: they step when it is
their time (`BackgroundTime`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from service.batching.background_time import BackgroundTime
from service.batching.output import Update
from service.batching.records import Finished, RequestEntry
from service.decoding.token_choice import Decoding
from service.domain.plan import (
    Adjustments,
    Bools,
    RunnerLimits,
    StepOutput,
    StepPlan,
)
from service.domain.requests import FinishReason
from service.errors import DeadlineExceededError, DragomanError

NEVER = float("inf")
_NO_ADJUSTMENTS = Adjustments.none()


@dataclass(frozen=True)
class RowsInUse:
    """The rows of a lane that requests have.

    Attributes:
        total: number of rows.
        background: number of them that background requests have.
    """

    total: int
    background: int

    def with_rows_of(self, entry: RequestEntry) -> RowsInUse:
        """The rows in use when a request has joined."""
        background = self.background + entry.num_rows * entry.is_background
        return RowsInUse(self.total + entry.num_rows, background)


class Lane:
    """The rows of one lane. They are dense: a step runs on rows 0 to n-1.

    When a row comes free, a new request takes it, or the last row moves there. If rows pause, they
    change places with others, so that they are the last.

    Args:
        number: number of the lane, from 0.
        limits: limits of the lane.
        bos_id, eos_id: ids that begin and end a target.

    Attributes:
        max_rows: number of rows.
        max_paused_rows: number of rows in addition to these, for background requests.
        num_running: number of rows in use.
    """

    def __init__(self, number: int, limits: RunnerLimits, *, bos_id: int, eos_id: int) -> None:
        self.max_rows = limits.max_rows
        self.max_paused_rows = limits.max_paused_rows
        self.num_running = 0
        self._number = number
        self._eos_id = eos_id
        self._decoding = Decoding(
            limits.num_rows, limits.max_target_positions, bos_id=bos_id, eos_id=eos_id
        )
        self._states = self._decoding.states
        # The request in each row of the last plan; None where it has finished since.
        self._owners: list[RequestEntry | None] = []
        self._free_rows: list[int] = []  # rows of these without a request
        self._num_stepping = 0  # rows of the last plan that step
        self._admitted: list[RequestEntry] = []  # that have not stepped
        self._streaming: dict[RequestEntry, None] = {}
        self._cancelled: dict[RequestEntry, DragomanError] = {}
        # A lower bound of all deadlines.
        self._next_deadline = NEVER

    def running(self) -> list[RequestEntry]:
        """The requests in its rows."""
        return list(dict.fromkeys(entry for entry in self._owners if entry is not None))

    def rows_in_use(self) -> RowsInUse:
        """The rows that requests have."""
        if not self.max_paused_rows:
            return RowsInUse(self.num_running, 0)
        background = [entry for entry in self._owners if entry is not None and entry.is_background]
        return RowsInUse(self.num_running, len(background))

    def has_room(self, entry: RequestEntry, in_use: RowsInUse) -> bool:
        """Whether a request may join when these rows are in use."""
        if in_use.total + entry.num_rows > self.max_rows + self.max_paused_rows:
            return False
        if entry.is_background and self.max_paused_rows:
            return in_use.background + entry.num_rows <= self.max_paused_rows
        return in_use.total - in_use.background + entry.num_rows <= self.max_rows

    def is_paused(self, background: BackgroundTime | None) -> bool:
        """Whether all its rows are in the background, and it is not their time."""
        if background is None or not background.part or background.may_run:
            return False
        return self.num_running > 0 and self.rows_in_use().background == self.num_running

    # --- commands --------------------------------------------------------------------------------

    def stream(self, entry: RequestEntry) -> list[int]:
        """Report the request's tokens at every step from now on; returns its tokens so far."""
        self._streaming[entry] = None
        return self._states.tokens(entry.rows[0])

    def cancel(self, entry: RequestEntry, error: DragomanError) -> None:
        """Drop the request before the next step, unless it finishes first."""
        self._cancelled[entry] = error

    # --- before a step ---------------------------------------------------------------------------

    def drop(self, now: float) -> list[Finished]:
        """Finish the requests that were cancelled or have passed their deadline."""
        finished = []
        if self._cancelled:
            cancelled = list(self._cancelled.items())
            finished += [self._end(e, now, FinishReason.CANCELLED, error) for e, error in cancelled]
        if now >= self._next_deadline:
            running = self.running()
            for entry in running:
                if entry.deadline <= now:
                    error = DeadlineExceededError("the deadline passed while it ran")
                    finished.append(self._end(entry, now, FinishReason.DEADLINE, error))
            later = (entry.deadline for entry in running if entry.deadline > now)
            self._next_deadline = min(later, default=NEVER)
        return finished

    def plan(
        self, admitted: list[RequestEntry], background: BackgroundTime | None = None
    ) -> StepPlan | None:
        """Give rows to the admitted requests, and plan a step; None if no row steps.

        Background rows pause unless it is their time; without `background`, all rows step.
        """
        admitted = self._place(admitted)
        self._close_gaps()
        num_rows = self._num_stepping = self._choose_stepping(background)
        if not num_rows and admitted:  # they are encoded with a step
            num_rows = self._num_stepping = len(self._owners)
        self._admitted += admitted
        if not num_rows:
            return None
        encodes = [entry.encode_item() for entry in admitted]
        for entry in admitted:
            entry.encoded = None  # the plan has it
        # Copies of the arrays, since `update` writes them, and a plan must not change.
        return StepPlan(
            copies=self._decoding.take_copies({row for one in admitted for row in one.rows}),
            encodes=encodes,
            token_ids=self._states.token_ids[:num_rows].copy(),
            positions=self._states.positions[:num_rows].copy(),
            adjustments=_NO_ADJUSTMENTS,
            top_k=self._decoding.top_k_of(num_rows),
            num_paused=len(self._owners) - num_rows,
            chained=self._chained(admitted),
        )

    def _place(self, admitted: list[RequestEntry]) -> list[RequestEntry]:
        """Assign rows to requests, shortest source first: free rows, then rows at the end.

        Returns:
            The requests in this order.
        """
        self._free_rows.sort(reverse=True)
        ordered = sorted(admitted, key=lambda entry: len(entry.request.source_ids))
        for entry in ordered:
            for _ in range(entry.num_rows):
                if self._free_rows:
                    row = self._free_rows.pop()
                    self._owners[row] = entry
                else:
                    row = len(self._owners)
                    self._owners.append(entry)
                entry.rows.append(row)
            entry.lane = self._number
            self.num_running += entry.num_rows
            self._decoding.begin(entry.rows, entry.request.options, entry.max_new_tokens)
            if entry.streams:
                self._streaming[entry] = None
            self._next_deadline = min(self._next_deadline, entry.deadline)
        return ordered

    def _close_gaps(self) -> None:
        """Move the last rows into free ones, so that rows stay dense; a hook for async lanes."""
        free_rows = self._free_rows  # descending, as `_place` left them
        while free_rows:
            if self._owners[-1] is None:
                self._owners.pop()
                del free_rows[0]  # the largest, so the last row itself
                continue
            target = free_rows.pop()
            source = len(self._owners) - 1
            entry = self._owner(source)
            self._owners[target] = entry
            self._owners.pop()
            entry.rows[entry.rows.index(source)] = target
            self._decoding.move(source, target)

    def _choose_stepping(self, background: BackgroundTime | None) -> int:
        """Move background rows behind the others; returns the number of rows that step now."""
        num_rows = len(self._owners)
        if background is None or not background.part or not self.max_paused_rows:
            return num_rows
        num_front = self._move_background_back()
        background.earn(num_front)
        if not background.may_run:
            return num_front
        background.spend(num_rows - num_front)
        return num_rows

    def _move_background_back(self) -> int:
        """Exchange rows until those of background requests are the last; returns the others'."""
        is_back = [self._owner(row).is_background for row in range(len(self._owners))]
        num_front = is_back.count(False)
        ahead = [row for row in range(num_front) if is_back[row]]
        behind = [row for row in range(num_front, len(is_back)) if not is_back[row]]
        for one, other in zip(ahead, behind, strict=True):
            self._decoding.swap(one, other)
            for row, to in ((one, other), (other, one)):
                rows = self._owner(row).rows
                rows[rows.index(row)] = to
            self._owners[one], self._owners[other] = self._owners[other], self._owners[one]
        return num_front

    def _chained(self, admitted: list[RequestEntry]) -> Bools | None:
        """`StepPlan.chained` of the next plan; a hook for async lanes."""
        return None

    # --- after a step ----------------------------------------------------------------------------

    def advance(self, outputs: Sequence[StepOutput], now: float) -> None:
        """Append the tokens of the last plan's step and of those that followed it, but the last.

        Args:
            outputs: outputs of these steps, in order; `update` takes the last one.
            now: time at which the first of them ended.
        """
        self._set_first_token_at(now)
        self._decoding.advance_all(outputs)

    def update(self, output: StepOutput, now: float) -> Update:
        """Append the tokens chosen after the last plan's step, or after the last that followed."""
        finished_rows = self._decoding.advance(output)
        self._set_first_token_at(now)
        return self._report(finished_rows, now, range(self._num_stepping))

    def _set_first_token_at(self, now: float) -> None:
        """Record the first token of the admitted requests that stepped."""
        left = []
        for entry in self._admitted:
            if entry.rows and entry.rows[0] >= self._num_stepping:
                left.append(entry)
            else:
                entry.first_token_at = now
        self._admitted = left

    def fail(self, error: DragomanError, now: float) -> list[Finished]:
        """Finish all requests after a failed step: the caches cannot be trusted."""
        return [self._end(entry, now, FinishReason.ERROR, error) for entry in self.running()]

    def _report(
        self, finished_rows: list[int], now: float, stepped: Collection[int] | None = None
    ) -> Update:
        """The results of a step of the rows `stepped`; None for all rows."""
        streamed = []
        if self._streaming:
            last_tokens = self._states.token_ids.tolist()
            for entry in self._streaming:
                row = entry.rows[0]
                if last_tokens[row] != self._eos_id and (stepped is None or row in stepped):
                    streamed.append((entry.id, [last_tokens[row]]))
        finished = [self._end(self._owner(row), now) for row in finished_rows]
        return Update(streamed, finished)

    def _end(
        self,
        entry: RequestEntry,
        now: float,
        reason: FinishReason | None = None,
        error: DragomanError | None = None,
    ) -> Finished:
        """Free the request's rows and write its result."""
        entry.num_steps = int(self._states.positions[entry.rows[0]])
        hypotheses = self._decoding.end(entry.rows)
        for row in entry.rows:
            self._owners[row] = None
        self._free_rows += entry.rows
        entry.rows = []
        entry.lane = None
        self.num_running -= entry.num_rows
        self._streaming.pop(entry, None)
        self._cancelled.pop(entry, None)
        return entry.finish(now, hypotheses, reason, error)

    def _owner(self, row: int) -> RequestEntry:
        entry = self._owners[row]
        assert entry is not None, f"row {row} is free"
        return entry

    # --- steps that follow each other at once ----------------------------------------------------

    @property
    def num_uninterrupted_steps(self) -> int:
        """Number of steps, the planned one included, that can run without an update between them.

        In each after the first, the rows continue with the best tokens of the step before it
        (`StepPlan.followed_by`), as long as `can_continue` is true.
        """
        if self._streaming or not self._decoding.is_mostly_greedy:
            return 1
        if self._num_stepping < len(self._owners):
            return 1
        return self._decoding.num_left(len(self._owners))

    def can_continue(self, output: StepOutput, now: float) -> bool:
        """Whether each row takes its best token and goes on, and no deadline has passed."""
        return now < self._next_deadline and not self._decoding.ends(output)
