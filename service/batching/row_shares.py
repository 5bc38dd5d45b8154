"""The rows that each sender holds, and which of its requests run in the background.

A step of all rows takes much longer than a step of a few, for hardly more tokens a second. So if
one sender fills the batch, with many requests or with one wide beam, the steps of all others become
several times as long. Therefore, while several senders are present, a sender's rows beyond its
share are *background*: they get a part of the time (`BackgroundTime`), and join in rows of their
own, so that the other rows stay free for everybody else.

A sender that is alone has no share: all its rows step, and it may fill the batch.

Runners that cannot pause rows get a simpler rule. There, a sender beyond its share gets rows only
while fewer than half of them would be in use.

A sender is a client. The ids that a client names are senders of their own within its share, or of
all rows while no other client is present: naming many ids enlarges no share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable

from service.batching.records import RequestEntry

# Number of steps for which a sender is present after its last row came free.
_REMEMBERED_STEPS = 64
# A sender's share of the rows, where rows can be paused: a usual beam. Elsewhere, the least share,
# however many senders there are.
SMALL_SHARE = 4
# The least part of the time that background rows get, however many senders hold other rows: a beam
# with a deadline has to end some time.
_LEAST_PART = 0.125


class _Senders:
    """The senders that are present, told apart by a key.

    Attributes:
        held: rows of each that are not in the background.
    """

    def __init__(self, key: Callable[[RequestEntry], Hashable]) -> None:
        self.key = key
        self.held: Counter[Hashable] = Counter()
        self._behind: dict[Hashable, dict[RequestEntry, None]] = {}  # in the background
        self._num_requests: dict[Hashable, int] = {}  # with rows
        self._left: dict[Hashable, int] = {}  # step at which the last row came free, oldest first

    def __len__(self) -> int:
        return len(self._num_requests)

    def with_sender_of(self, entry: RequestEntry) -> int:
        """The number of senders, among them that of a request."""
        return len(self._num_requests) + (self.key(entry) not in self._num_requests)

    @property
    def background_part(self) -> float:
        """The part of the senders that have background rows."""
        return len(self._behind) / max(1, len(self._num_requests))

    def behind(self, entry: RequestEntry) -> list[RequestEntry]:
        """The background requests of a request's sender, the first one first."""
        return list(self._behind.get(self.key(entry), ()))

    def meet(self, entry: RequestEntry, step: int) -> None:
        """Record that the sender of a request is present."""
        key = self.key(entry)
        if key not in self._num_requests:
            self._num_requests[key] = 0
            self._left[key] = step

    def count(self, entry: RequestEntry, sign: int) -> None:
        """Count a request's rows (1), or no longer (-1), in the background or not."""
        key = self.key(entry)
        if not entry.is_background:
            self.held[key] += sign * entry.num_rows
        elif sign > 0:
            self._behind.setdefault(key, {})[entry] = None
        else:
            del self._behind[key][entry]
            if not self._behind[key]:
                del self._behind[key]

    def take(self, entry: RequestEntry) -> None:
        """Record that a request gets rows, after its sender was met."""
        key = self.key(entry)
        self._num_requests[key] += 1
        self._left.pop(key, None)

    def release(self, entry: RequestEntry, step: int) -> None:
        """Record that a request's rows come free."""
        key = self.key(entry)
        self._num_requests[key] -= 1
        if not self._num_requests[key]:
            self._left[key] = step

    def forget(self, step: int) -> None:
        """Forget the senders without rows since some steps."""
        while self._left:
            key, left_at = next(iter(self._left.items()))
            if step - left_at < _REMEMBERED_STEPS:
                return
            del self._left[key], self._num_requests[key]
            self.held.pop(key, None)


class RowShares:
    """Counts the rows of each sender, and marks background requests.

    Args:
        max_rows: number of rows that the senders share.
        max_paused_rows: number of rows beyond these, for background requests; 0 for a runner that
            cannot pause rows.

    Attributes:
        num_rows: number of rows that requests have taken, in the background or not.
        num_background: number of them in the background.
        num_steps: number of steps so far.
        due: a request that joins as if it were within its share; None for none.
    """

    def __init__(self, max_rows: int, max_paused_rows: int = 0) -> None:
        self.num_rows = 0
        self.num_background = 0
        self.num_steps = 0
        self.due: RequestEntry | None = None
        self._max_rows = max_rows
        self._max_paused_rows = max_paused_rows
        self._clients = _Senders(lambda entry: entry.request.client)
        self._ids = _Senders(lambda entry: (entry.request.client, entry.request.client_id))
        self._entries: dict[RequestEntry, None] = {}  # in the order in which they took rows

    # --- events ----------------------------------------------------------------------------------

    def meet(self, entry: RequestEntry) -> None:
        """Record that the sender of a request that waits is present."""
        before = len(self._clients), len(self._ids)
        self._clients.meet(entry, self.num_steps)
        self._ids.meet(entry, self.num_steps)
        if (1, 2) in zip(before, (len(self._clients), len(self._ids)), strict=True):
            self._mark()  # the first one has been alone until now

    def take(self, entry: RequestEntry) -> None:
        """Record that a request gets rows, and whether it runs in the background."""
        self.meet(entry)
        entry.is_background = self.is_beyond_share(entry)
        self._entries[entry] = None
        self.num_rows += entry.num_rows
        self._count(entry, 1)
        for senders in (self._clients, self._ids):
            senders.take(entry)

    def release(self, entry: RequestEntry) -> None:
        """Record that a request's rows come free."""
        del self._entries[entry]
        self.num_rows -= entry.num_rows
        self._count(entry, -1)
        for senders in (self._clients, self._ids):
            senders.release(entry, self.num_steps)
        self._promote(entry)

    def stepped(self, num_steps: int = 1) -> None:
        """Record that steps ended."""
        self.num_steps += num_steps
        for senders in (self._clients, self._ids):
            before = len(senders)
            senders.forget(self.num_steps)
            if before > 1 and len(senders) == 1:
                self._mark()

    # --- decisions -------------------------------------------------------------------------------

    def is_beyond_share(self, entry: RequestEntry) -> bool:
        """Whether a request would give its sender more than its share, beside other senders."""
        if entry is self.due:
            return False
        return self._exceeds(entry, self._clients) or self._exceeds(entry, self._ids)

    def _exceeds(self, entry: RequestEntry, senders: _Senders) -> bool:
        num_senders = senders.with_sender_of(entry)
        rows = senders.held[senders.key(entry)] + entry.num_rows
        return num_senders > 1 and rows > self._share(num_senders)

    def room(self, entry: RequestEntry, ahead: int = 0) -> int:
        """Number of rows that are free for a request of this kind, beyond its share or not.

        Rows that other requests are about to leave are not free yet.

        Args:
            ahead: number of rows for which requests within their shares may be prepared besides.
        """
        is_beyond = self.is_beyond_share(entry)
        if self._max_paused_rows:
            num_free = self._max_rows - (self.num_rows - self.num_background) + ahead
            if is_beyond:
                num_free = self._max_paused_rows - self.num_background
            return min(num_free, self._num_places())
        if not is_beyond:
            return self._max_rows - self.num_rows + ahead
        half = self._max_rows // 2
        if entry.num_rows > half and not self.num_background:  # it never fits into half
            return self._max_rows - self.num_rows
        return half - self.num_rows

    def _num_places(self) -> int:
        """Number of free rows of any kind, where rows can be paused.

        Half as many as senders share are kept from the ids of a client that is alone: what they
        hold pauses when another client comes.
        """
        kept = self._max_rows // 2 if len(self._clients) == 1 else 0
        return self._max_rows + self._max_paused_rows - kept - self.num_rows

    @property
    def background_part(self) -> float:
        """The part of the time, from 0 to 1, for senders with background rows beside others."""
        senders = self._clients if len(self._clients) > 1 else self._ids
        return max(_LEAST_PART, senders.background_part)

    def _share(self, num_senders: int) -> float:
        if self._max_paused_rows:
            return SMALL_SHARE
        return max(SMALL_SHARE, self._max_rows / num_senders)

    def _mark(self) -> None:
        """Put what is beyond a share into the background, the latest requests first."""
        for entry in self._entries:
            self._count(entry, -1)
        for entry in self._entries:
            entry.is_background = self.is_beyond_share(entry)
            self._count(entry, 1)

    def _promote(self, ended: RequestEntry) -> None:
        """Take requests that are within the share again out of the background."""
        num_free = ended.num_rows
        for entry in self._clients.behind(ended):
            if num_free <= 0:
                return
            has_room = self.num_rows - self.num_background + entry.num_rows <= self._max_rows
            if has_room and not self.is_beyond_share(entry):
                num_free -= entry.num_rows
                self._count(entry, -1)
                entry.is_background = False
                self._count(entry, 1)

    def _count(self, entry: RequestEntry, sign: int) -> None:
        self.num_background += sign * entry.num_rows * entry.is_background
        for senders in (self._clients, self._ids):
            senders.count(entry, sign)
