"""Limits each sender to its share of the rows once half of them are in use.

A step of all rows takes about twice as long as a step of half of them, for hardly more tokens a
second. So a sender beyond its share gets rows only while fewer than half are in use, unless it is
alone: the steps of the others stay short, and rows are free for their next requests. The order of
the queue stays the same.

A sender is a client, or one of the ids that the client names.
"""

from __future__ import annotations

from collections import Counter

from service.batching.records import RequestEntry

# Number of steps for which a sender counts after its last row came free.
_REMEMBERED_STEPS = 64
# A sender with fewer rows than this is within its share, however many senders there are.
_SMALL_SHARE = 4

_Sender = tuple[str, str]


class RowShares:
    """Counts the rows of each sender.

    Args:
        max_rows: number of rows that the senders share.
    """

    def __init__(self, max_rows: int) -> None:
        self._max_rows = max_rows
        self._held: Counter[_Sender] = Counter()  # rows; 0 for a sender that is only remembered
        self._left: dict[_Sender, int] = {}  # step at which its last row came free, oldest first
        self._num_steps = 0

    def take(self, entry: RequestEntry) -> None:
        """Record that a request gets rows."""
        sender = _sender(entry)
        self._held[sender] += entry.num_rows
        self._left.pop(sender, None)

    def release(self, entry: RequestEntry) -> None:
        """Record that a request's rows come free."""
        sender = _sender(entry)
        self._held[sender] -= entry.num_rows
        if not self._held[sender]:
            self._left[sender] = self._num_steps

    def stepped(self, num_steps: int = 1) -> None:
        """Record that steps ended."""
        self._num_steps += num_steps
        while self._left:
            sender, left_at = next(iter(self._left.items()))
            if self._num_steps - left_at < _REMEMBERED_STEPS:
                return
            del self._left[sender], self._held[sender]

    def is_within_share(self, entry: RequestEntry) -> bool:
        """Whether the request's sender is alone or has less than its share of the rows."""
        sender = _sender(entry)
        num_senders = len(self._held) + (sender not in self._held)
        share = max(_SMALL_SHARE, self._max_rows / num_senders)
        return num_senders == 1 or self._held.get(sender, 0) < share


def _sender(entry: RequestEntry) -> _Sender:
    return entry.request.client, entry.request.client_id
