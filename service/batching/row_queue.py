"""The translations that wait for rows, in the order in which they take them.

The order is that of the fair queue, with one exception. A request beyond its sender's share
(`RowShares`) that finds no room steps aside, into a second fair queue, and lets those pass that are
within theirs: they take other rows. No other request beyond its share passes it, so a wide beam
gets its turn. It comes back when it is within the share again.

Runners that cannot pause rows have no other rows. There, those within their shares pass for some
steps, and then none does until the first one aside has its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from service.batching.background_time import BackgroundTime
from service.batching.fair_queue import FairQueue
from service.batching.records import RequestEntry
from service.batching.row_shares import RowShares

# Steps for which others pass the first request aside, where no rows can be paused.
_PATIENT_STEPS = 64


class RowQueue:
    """Waiting translations, and the rows that others have taken.

    Args:
        max_rows: number of rows that senders share.
        max_paused_rows: number of rows for background requests, as in `RowShares`.
        background: time of background requests; None if they need not wait for it.
        fits: whether the free rows for background requests, which may be in several places, suit
            one of them.

    Attributes:
        shares: rows that requests have taken.
        background: time of background requests; None if they need not wait for it.
    """

    def __init__(
        self,
        max_rows: int,
        max_paused_rows: int = 0,
        background: BackgroundTime | None = None,
        fits: Callable[[RequestEntry], bool] = lambda _: True,
    ) -> None:
        self.shares = RowShares(max_rows, max_paused_rows)
        self.background = background
        self._fits = fits
        self._pauses = max_paused_rows > 0
        self._waiting = FairQueue()
        self._aside = FairQueue()
        # The request that is first aside, and since which step.
        self._first: tuple[RequestEntry, int] | None = None

    def __len__(self) -> int:
        return len(self._waiting) + len(self._aside)

    def __iter__(self) -> Iterator[RequestEntry]:
        yield from self._aside
        yield from self._waiting

    @property
    def num_rows(self) -> int:
        """Number of rows that the waiting requests need together."""
        return self._waiting.num_rows + self._aside.num_rows

    def begin(self) -> None:
        """Begin an iteration: find out which part of the time is the background's."""
        self._begin(is_used=bool(self.shares.num_background or len(self._aside)))

    def push(self, entry: RequestEntry) -> None:
        """Add a request behind the others of its flow."""
        self._waiting.push(entry)
        self.shares.meet(entry)

    def peek(self) -> RequestEntry | None:
        """The request that takes rows next; there may be no room for it yet."""
        head = self._waiting.peek()
        if head is not None:
            self.shares.meet(head)  # so that those aside know that they are not alone
        aside = self._aside.peek()
        if aside is not None and (self._takes_its_turn(aside) or self._is_due(aside)):
            return aside
        while head is not None and not self._takes_its_turn(head):
            self._waiting.discard(head)
            self._aside.push(head)
            if (head := self._waiting.peek()) is not None:
                self.shares.meet(head)
        return head

    def take(self) -> RequestEntry:
        """Remove and return the request that `peek` returns, with its rows."""
        entry = self.peek()
        assert entry is not None, "the queue is empty"
        if self._aside.peek() is entry:
            self._waiting.charge(self._aside.take(), entry.work)
        else:
            self._waiting.take()
        self.shares.take(entry)
        if entry is self.shares.due:
            self.shares.due = None
        if self.background is not None and entry.is_background:
            self.background.spend(entry.num_encoded_tokens)
        return entry

    def release(self, entry: RequestEntry) -> None:
        """Record that the rows of a request that was taken come free."""
        self.shares.release(entry)
        num_free = entry.num_rows
        for aside in self._aside.firsts(entry):
            if aside.num_rows <= num_free and not self.shares.is_beyond_share(aside):
                num_free -= aside.num_rows
                self._aside.discard(aside)
                self._waiting.put_back(aside)

    def discard(self, entry: RequestEntry) -> None:
        """Remove a request that is no longer wanted."""
        if not self._waiting.discard(entry):
            self._aside.discard(entry)
        if entry is self.shares.due:
            self.shares.due = None

    def charge(self, entry: RequestEntry, work: float) -> None:
        """Advance the flow of a request that is elsewhere."""
        self._waiting.charge(entry, work)

    def settle(self, entry: RequestEntry) -> None:
        """Charge the steps that a translation took in addition to its estimated work."""
        self._waiting.settle(entry)

    def _begin(self, *, is_used: bool) -> None:
        if self.background is not None:
            self.background.begin(
                self.shares.background_part if is_used else 0.0,
                others_run=self.shares.num_rows > self.shares.num_background,
            )

    def _takes_its_turn(self, entry: RequestEntry) -> bool:
        """Whether a request is within its sender's share, or has room beyond it; marks it."""
        entry.is_background = self.shares.is_beyond_share(entry)
        if not entry.is_background:
            return True
        self._begin(is_used=True)  # it has no part before its first request
        if self.background is not None and not self.background.may_run:
            return False
        if len(self._aside) and entry is not self._aside.peek():
            return False
        return entry.num_rows <= self.shares.room(entry) and self._fits(entry)

    def _is_due(self, entry: RequestEntry) -> bool:
        """Whether the first request aside, which has no room, takes the next rows of any kind."""
        if self._pauses:
            return False
        step = self.shares.num_steps
        if self._first is None or self._first[0] is not entry:
            self._first = entry, step
        if step - self._first[1] < _PATIENT_STEPS:
            return False
        self.shares.due = entry
        entry.is_background = False
        return True
