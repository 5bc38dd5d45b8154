"""Translations that wait for rows, for runners that encode on a separate thread.

With many rows in use, sources are encoded before their requests join. Otherwise all rows would wait
for each encode. An encode waits some steps for more sources, since a source costs much less in a
batch. With few rows, a source is encoded in the iteration in which its request joins: steps are
short then, and the encode gets the whole processor.

Pure policy, like the scheduler: no tensors, no clock, no threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from service.batching.records import RequestEntry
from service.batching.row_queue import RowQueue
from service.domain.plan import EncodedSource

# In a full batch, sources for 1 / AHEAD_PART of the rows are encoded before rows are free. With
# the included model, about as many rows come free during an encode.
AHEAD_PART = 8
# With this number of rows, an encode waits until it has this number of sources, for this number of
# steps at most. (With the included model and 64 rows, two or three requests end in a step.)
_LOADED_ROWS = 16
_GATHERED_SOURCES = 8
_GATHERING_STEPS = 2


class EncodeQueue:
    """Translations without rows: those to encode, those being encoded, and those that may join.

    Args:
        waiting: queue of the translations that are neither encoded nor being encoded.
        token_budget: most source tokens to encode at once; a longer source is encoded alone.
        max_rows: number of rows of all lanes.
        max_batches: most encodes in flight. A second one waits for the first, so that the thread
            goes on at once, even while the loop's thread steps.

    Attributes:
        is_bypassed: whether requests join without having been encoded, at present.
        num_promised: number of rows reserved for requests that have left `waiting`.
    """

    def __init__(
        self, waiting: RowQueue, token_budget: int, max_rows: int, max_batches: int = 1
    ) -> None:
        self.is_bypassed = True
        self.num_promised = 0
        self._waiting = waiting
        self._token_budget = token_budget
        self._num_ahead = max(1, max_rows // AHEAD_PART)
        self._max_batches = max_batches
        self._batches: deque[list[RequestEntry]] = deque()  # in flight, even if discarded since
        self._encoding: dict[RequestEntry, None] = {}
        self._encoded: dict[RequestEntry, None] = {}
        self._num_steps = 0  # that ended while sources could have been encoded

    def __len__(self) -> int:
        return len(self._waiting) + len(self._encoding) + len(self._encoded)

    def __iter__(self) -> Iterator[RequestEntry]:
        yield from self._encoded
        yield from self._encoding
        yield from self._waiting

    @property
    def num_rows(self) -> int:
        """Number of rows that all of them need together."""
        return self._waiting.num_rows + self.num_promised

    def peek(self, fits: Callable[[RequestEntry], bool]) -> RequestEntry | None:
        """The request that joins next: the first one that fits.

        A background request that does not fit lets others pass, since they take other rows.
        """
        for entry in self._encoded:
            if fits(entry):
                return entry
            if not entry.is_background:
                return None
        if self._encoded or not self.is_bypassed:
            return None
        head = self._waiting.peek()
        return head if head is not None and fits(head) else None

    def take(self, entry: RequestEntry) -> None:
        """Remove the request that `peek` returned."""
        if entry in self._encoded:
            del self._encoded[entry]
            self.num_promised -= entry.num_rows
        else:
            self._waiting.take()

    def discard(self, entry: RequestEntry) -> None:
        """Remove a request that is no longer wanted."""
        for entries in (self._encoding, self._encoded):
            if entry in entries:
                del entries[entry]
                self.num_promised -= entry.num_rows
                self._waiting.release(entry)
                return
        self._waiting.discard(entry)

    # --- encoding --------------------------------------------------------------------------------

    @property
    def is_encoding(self) -> bool:
        """Whether an encode is in flight."""
        return bool(self._batches)

    def stepped(self, num_steps: int = 1) -> None:
        """Record that steps ended."""
        self._waiting.shares.stepped(num_steps)
        if not self._batches and self._num_free() > 0:
            self._num_steps += num_steps

    def can_begin(self) -> bool:
        """Whether `begin` would return any request."""
        if self.is_bypassed or not self._fits():
            return False
        if min(len(self._waiting), self._num_free()) >= _GATHERED_SOURCES:
            return len(self._batches) < self._max_batches
        shares = self._waiting.shares
        is_loaded = shares.num_rows - shares.num_background >= _LOADED_ROWS
        return not (self._batches or (is_loaded and self._num_steps < _GATHERING_STEPS))

    def _fits(self) -> bool:
        """Whether there will be rows for the request that waits first."""
        head = self._waiting.peek()
        return head is not None and head.num_rows <= self._num_free()

    def _num_free(self) -> int:
        """Number of rows for which sources may be encoded now; 0 if none waits."""
        if (head := self._waiting.peek()) is None:
            return 0
        return self._waiting.shares.room(head, self._num_ahead)

    def begin(self) -> list[RequestEntry]:
        """Choose the requests to encode together now, in the queue's order.

        Call `end` after each encode, in order.
        """
        budget = self._token_budget
        batch: list[RequestEntry] = []
        if not self.can_begin():
            return batch
        self._num_steps = 0
        while self._fits() and (entry := self._waiting.peek()) is not None:
            if batch and entry.num_encoded_tokens > budget:
                break
            budget -= entry.num_encoded_tokens
            self.num_promised += entry.num_rows
            self._encoding[self._waiting.take()] = None
            batch.append(entry)
        self._batches.append(batch)
        return list(batch)

    def end(self, sources: Sequence[EncodedSource] | None) -> list[RequestEntry]:
        """Let the requests of the oldest `begin` join, except those discarded since.

        Args:
            sources: their encoded sources; None if the encode failed, and none may join.

        Returns:
            These requests.
        """
        batch = self._batches.popleft()
        for entry, source in zip(batch, sources or [], strict=sources is not None):
            if entry in self._encoding:
                del self._encoding[entry]
                entry.encoded = source
                self._encoded[entry] = None
        return batch
