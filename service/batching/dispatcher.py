"""Distributes the requests of a model to its processes, from one queue.

A request waits in one fair queue until a process has room for it, so that clients share the model
as if it had one process, and no request waits in one process while another has free rows. It goes
to the process with the most free rows, of those for background requests if it is one (`RowShares`).
All rows of a request are in one process.

Pure policy, like the scheduler: no processes, no clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from service.batching.encode_queue import AHEAD_PART
from service.batching.fair_queue import FairQueue
from service.batching.records import EngineRequest, Finished, RequestEntry
from service.batching.row_queue import RowQueue
from service.domain.plan import RunnerLimits
from service.domain.requests import FinishReason
from service.errors import DeadlineExceededError, DragomanError

# Encode budgets of scores that a process holds: one is scored while the next one is on its way.
_SCORE_BUDGETS = 2


@dataclass
class _Load:
    """The requests of one process.

    Attributes:
        max_rows: rows that it may hold: those of its batch, and some whose sources are encoded
            before rows are free.
        max_paused_rows: rows that it may hold for background requests; 0 if they share the others.
        requests: its requests.
        num_rows: number of their rows.
        num_score_tokens: number of tokens of its scores.
    """

    max_rows: int
    max_paused_rows: int = 0
    requests: dict[RequestEntry, None] = field(default_factory=dict)
    num_rows: int = 0
    num_score_tokens: int = 0

    def room(self, *, background: bool) -> int:
        """Number of rows that it may hold in addition, for a background request or another."""
        if not self.max_paused_rows:
            return self.max_rows - self.num_rows
        behind = sum([entry.num_rows for entry in self.requests if entry.is_background])
        if background:
            return self.max_paused_rows - behind
        return self.max_rows - (self.num_rows - behind)


class Dispatcher:
    """The queue of a model with several processes, and the requests of each process.

    Args:
        limits: limits of the processes.
        encode_token_budget: same as for the schedulers of the processes.
    """

    def __init__(self, limits: Sequence[RunnerLimits], encode_token_budget: int) -> None:
        self._loads = [
            _Load(one.max_rows + max(1, one.max_rows // AHEAD_PART), one.max_paused_rows)
            for one in limits
        ]
        self._max_score_tokens = _SCORE_BUDGETS * encode_token_budget
        max_rows = sum(one.max_rows for one in limits)
        max_paused = sum(one.max_paused_rows for one in limits)
        self._translations = RowQueue(max_rows, max_paused, fits=self._fits)
        self._scores = FairQueue()
        self._num_steps = 0  # of one process each
        self._entries: dict[int, RequestEntry] = {}
        self._processes: dict[int, int] = {}  # by request id; without those that wait
        # A lower bound of the deadlines of all waiting requests.
        self._next_deadline = math.inf

    @property
    def num_waiting(self) -> int:
        """Number of requests that no process has."""
        return len(self._translations) + len(self._scores)

    @property
    def busy(self) -> set[int]:
        """Numbers of the processes that have requests."""
        return {n for n, load in enumerate(self._loads) if load.requests}

    def process_of(self, request_id: int) -> int | None:
        """Number of the process that has a request; None if it waits or has ended."""
        return self._processes.get(request_id)

    def add(self, requests: Iterable[EngineRequest]) -> None:
        """Queue requests."""
        for request in requests:
            entry = RequestEntry(request)
            self._entries[entry.id] = entry
            (self._translations if entry.num_rows else self._scores).push(entry)
            self._next_deadline = min(self._next_deadline, entry.deadline)

    def stream(self, request_id: int) -> None:
        """Mark a request as one that streams."""
        if (entry := self._entries.get(request_id)) is not None:
            entry.streams = True

    # --- to the processes ------------------------------------------------------------------------

    def dispatch(self) -> dict[int, list[RequestEntry]]:
        """Take the requests for which there is room from the queue; returns them by process."""
        chosen: dict[int, list[RequestEntry]] = {}
        while (entry := self._translations.peek()) is not None:
            if not self._fits(entry):
                break
            rooms = self._rooms(entry)
            self._send(self._translations.take(), rooms.index(max(rooms)), chosen)
        while (entry := self._scores.peek()) is not None:
            process = min(range(len(self._loads)), key=self._score_load)
            tokens = self._loads[process].num_score_tokens
            if tokens and tokens + entry.num_encoded_tokens > self._max_score_tokens:
                break
            self._translations.charge(self._scores.take(), entry.work)
            self._send(entry, process, chosen)
        return chosen

    def _rooms(self, entry: RequestEntry) -> list[int]:
        """Number of free rows of each process, for a background request or another."""
        return [load.room(background=entry.is_background) for load in self._loads]

    def _fits(self, entry: RequestEntry) -> bool:
        return entry.num_rows <= max(self._rooms(entry))

    def _score_load(self, process: int) -> tuple[int, int]:
        load = self._loads[process]
        return load.num_score_tokens, load.num_rows

    def _send(
        self, entry: RequestEntry, process: int, chosen: dict[int, list[RequestEntry]]
    ) -> None:
        self._processes[entry.id] = process
        self._count(entry, process, 1)
        chosen.setdefault(process, []).append(entry)

    def _count(self, entry: RequestEntry, process: int, count: int) -> None:
        load = self._loads[process]
        if count > 0:
            load.requests[entry] = None
        else:
            del load.requests[entry]
        load.num_rows += count * entry.num_rows
        if not entry.num_rows:
            load.num_score_tokens += count * entry.num_encoded_tokens

    # --- from them -------------------------------------------------------------------------------

    def stepped(self) -> None:
        """Record a step of one process."""
        self._num_steps += 1
        if self._num_steps % len(self._loads) == 0:
            self._translations.shares.stepped()

    def ended(self, finished: Finished) -> None:
        """Record that a process has finished a request."""
        entry = self._entries.pop(finished.id)
        self._count(entry, self._processes.pop(entry.id), -1)
        if entry.num_rows:
            entry.num_steps = finished.result.num_steps
            self._translations.release(entry)
            self._translations.settle(entry)

    # --- dropping --------------------------------------------------------------------------------

    def cancel(self, request_id: int, error: DragomanError, now: float) -> list[Finished]:
        """Drop a request that waits; returns its result, if it did."""
        entry = self._entries.get(request_id)
        if entry is None or request_id in self._processes:
            return []
        return [self._end(entry, now, FinishReason.CANCELLED, error)]

    def expired(self, now: float) -> list[Finished]:
        """Drop the requests that wait and have passed their deadline; returns their results."""
        if now < self._next_deadline:
            return []
        waiting = [*self._translations, *self._scores]
        later = (entry.deadline for entry in waiting if entry.deadline > now)
        self._next_deadline = min(later, default=math.inf)
        error = DeadlineExceededError("the deadline passed while it waited")
        return [
            self._end(entry, now, FinishReason.DEADLINE, error)
            for entry in waiting
            if entry.deadline <= now
        ]

    def _end(
        self, entry: RequestEntry, now: float, reason: FinishReason, error: DragomanError
    ) -> Finished:
        (self._translations if entry.num_rows else self._scores).discard(entry)
        del self._entries[entry.id]
        return entry.finish(now, reason=reason, error=error)
