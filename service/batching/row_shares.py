"""The rows that each sender holds, and which of its requests run in the background.

A step of all rows takes much longer than a step of a few, for hardly more tokens a second. So if
one sender fills the batch, with many requests or with one wide beam, the steps of all others become
several times as long. Therefore, while several senders are present, a sender's rows beyond its
share are *background*: they get a part of the time (`BackgroundTime`), and join in rows of their
own, so that the other rows stay free for everybody else.

A sender that is alone has no share: all its rows step, and it may fill the batch.

Runners that cannot pause rows get a simpler rule. There, a sender beyond its share gets rows only
while fewer than half of them would be in use.

A sender is a client, or one of the ids that the client names.
"""

from __future__ import annotations

from collections import Counter

from service.batching.records import RequestEntry

# Number of steps for which a sender is present after its last row came free.
_REMEMBERED_STEPS = 64
# A sender's share of the rows, where rows can be paused: a usual beam. Elsewhere, the least share,
# however many senders there are.
SMALL_SHARE = 4
# The least part of the time that background rows get, however many senders hold other rows: a beam
# with a deadline has to end some time.
_LEAST_PART = 0.125

_Sender = tuple[str, str]


class RowShares:
    """Counts the rows of each sender, and marks background requests.

    Args:
        max_rows: number of rows that the senders share.
        max_paused_rows: number of rows beyond these, for background requests; 0 for a runner that
            cannot pause rows.

    Attributes:
        num_rows: number of rows that requests have taken, in the background or not.
        num_background: number of them in the background.
    """

    def __init__(self, max_rows: int, max_paused_rows: int = 0) -> None:
        self.num_rows = 0
        self.num_background = 0
        self._max_rows = max_rows
        self._max_paused_rows = max_paused_rows
        # The requests of each sender that is present, in the order in which they took rows.
        self._entries: dict[_Sender, dict[RequestEntry, None]] = {}
        self._held: Counter[_Sender] = Counter()  # rows that are not in the background
        self._left: dict[_Sender, int] = {}  # step at which its last row came free, oldest first
        self._num_steps = 0

    # --- events ----------------------------------------------------------------------------------

    def meet(self, entry: RequestEntry) -> None:
        """Record that the sender of a request that waits is present."""
        sender = _sender(entry)
        if sender in self._entries:
            return
        self._entries[sender] = {}
        self._left[sender] = self._num_steps
        if len(self._entries) == 2:  # the first one has been alone until now
            for entries in self._entries.values():
                self._mark(entries)

    def take(self, entry: RequestEntry) -> None:
        """Record that a request gets rows, and whether it runs in the background."""
        self.meet(entry)
        sender = _sender(entry)
        entry.is_background = self.is_beyond_share(entry)
        self._entries[sender][entry] = None
        self._left.pop(sender, None)
        self.num_rows += entry.num_rows
        if entry.is_background:
            self.num_background += entry.num_rows
        else:
            self._held[sender] += entry.num_rows

    def release(self, entry: RequestEntry) -> None:
        """Record that a request's rows come free."""
        sender = _sender(entry)
        del self._entries[sender][entry]
        self.num_rows -= entry.num_rows
        if entry.is_background:
            self.num_background -= entry.num_rows
        else:
            self._held[sender] -= entry.num_rows
        if not self._entries[sender]:
            self._left[sender] = self._num_steps

    def stepped(self, num_steps: int = 1) -> None:
        """Record that steps ended."""
        self._num_steps += num_steps
        while self._left:
            sender, left_at = next(iter(self._left.items()))
            if self._num_steps - left_at < _REMEMBERED_STEPS:
                return
            del self._left[sender], self._entries[sender]
            self._held.pop(sender, None)
            if len(self._entries) == 1:
                self._unmark()

    # --- decisions -------------------------------------------------------------------------------

    def is_beyond_share(self, entry: RequestEntry) -> bool:
        """Whether a request would give its sender more than its share, beside other senders."""
        sender = _sender(entry)
        num_senders = len(self._entries) + (sender not in self._entries)
        return num_senders > 1 and self._held[sender] + entry.num_rows > self._share(num_senders)

    def room(self, entry: RequestEntry) -> int:
        """Number of rows that are free for a request of this kind, beyond its share or not.

        Rows that other requests are about to leave are not free yet.
        """
        if not self.is_beyond_share(entry):
            taken = self.num_rows - (self.num_background if self._max_paused_rows else 0)
            return self._max_rows - taken
        if self._max_paused_rows:
            return self._max_paused_rows - self.num_background
        half = self._max_rows // 2
        if entry.num_rows > half and not self.num_background:  # it never fits into half
            return self._max_rows - self.num_rows
        return half - self.num_rows

    @property
    def background_part(self) -> float:
        """The part of the time, from 0 to 1, for senders with background rows beside others."""
        senders = self._entries.values()
        behind = sum([any(entry.is_background for entry in entries) for entries in senders])
        return max(_LEAST_PART, behind / max(1, len(senders)))

    def _share(self, num_senders: int) -> float:
        if self._max_paused_rows:
            return SMALL_SHARE
        return max(SMALL_SHARE, self._max_rows / num_senders)

    def _mark(self, entries: dict[RequestEntry, None]) -> None:
        """Put a sender's requests beyond its share, the latest ones, into the background."""
        share, held = self._share(len(self._entries)), 0
        for entry in entries:
            if held + entry.num_rows <= share:
                held += entry.num_rows
            elif not entry.is_background:
                entry.is_background = True
                self.num_background += entry.num_rows
                self._held[_sender(entry)] -= entry.num_rows

    def _unmark(self) -> None:
        """Let the background requests of the only sender run as its others."""
        [(sender, entries)] = self._entries.items()
        for entry in entries:
            entry.is_background = False
        self.num_background = 0
        self._held[sender] = sum([entry.num_rows for entry in entries])


def _sender(entry: RequestEntry) -> _Sender:
    return entry.request.client, entry.request.client_id
