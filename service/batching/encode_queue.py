"""Translations between the fair queue and their rows, for runners that encode beside their steps.

Among many rows, sources are encoded ahead, before they join. Otherwise every row would wait for
each encode; and the longer the last one took, the more have come meanwhile to share the next. Among
few, a source is encoded where it joins: the steps there are short, and it gets the whole processor.

Pure policy, like the scheduler: no tensors, no clock, no threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from service.batching.fair_queue import FairQueue
from service.batching.records import RequestEntry
from service.runtime.plan import EncodedSource


class EncodeQueue:
    """Translations without rows: those to encode, those being encoded, and those that may join.

    Args:
        waiting: those that are neither encoded nor being encoded.
        token_budget: most source tokens to encode at once; a longer source is encoded alone.

    Attributes:
        is_bypassed: whether requests join without having been encoded, at present.
        num_promised: rows that are kept for requests that have left `waiting`.
    """

    def __init__(self, waiting: FairQueue, token_budget: int) -> None:
        self.is_bypassed = True
        self.num_promised = 0
        self._waiting = waiting
        self._token_budget = token_budget
        self._encoding: dict[RequestEntry, None] = {}
        self._encoded: dict[RequestEntry, None] = {}

    def __len__(self) -> int:
        return len(self._waiting) + len(self._encoding) + len(self._encoded)

    def __iter__(self) -> Iterator[RequestEntry]:
        yield from self._encoded
        yield from self._encoding
        yield from self._waiting

    @property
    def num_rows(self) -> int:
        """Rows that all of them need together."""
        return self._waiting.num_rows + self.num_promised

    def peek(self) -> RequestEntry | None:
        """The request that joins next."""
        if self._encoded:
            return next(iter(self._encoded))
        return self._waiting.peek() if self.is_bypassed else None

    def take(self) -> RequestEntry:
        """Take out the request that `peek` gave."""
        if not self._encoded:
            return self._waiting.take()
        entry = next(iter(self._encoded))
        del self._encoded[entry]
        self.num_promised -= entry.num_rows
        return entry

    def discard(self, entry: RequestEntry) -> None:
        """Take out a request that is not wanted any more."""
        for entries in (self._encoding, self._encoded):
            if entry in entries:
                del entries[entry]
                self.num_promised -= entry.num_rows
                return
        self._waiting.discard(entry)

    # --- encoding --------------------------------------------------------------------------------

    def can_begin(self, num_free: int) -> bool:
        """Whether `begin` would return anything."""
        head = None if self.is_bypassed else self._waiting.peek()
        return head is not None and head.num_rows <= num_free

    def begin(self, num_free: int) -> list[RequestEntry]:
        """Requests to encode together now, in the queue's order; end it with `encoded`.

        Args:
            num_free: rows that may be promised to them.
        """
        begun: list[RequestEntry] = []
        budget = self._token_budget
        while not self.is_bypassed and (entry := self._waiting.peek()) is not None:
            num_tokens = entry.num_encoded_tokens
            if entry.num_rows > num_free or (begun and num_tokens > budget):
                break
            budget -= num_tokens
            num_free -= entry.num_rows
            self.num_promised += entry.num_rows
            self._encoding[self._waiting.take()] = None
            begun.append(entry)
        return begun

    def encoded(self, entries: Sequence[RequestEntry], sources: Sequence[EncodedSource]) -> None:
        """Let those of `begin` join that have not been discarded meanwhile."""
        for entry, source in zip(entries, sources, strict=True):
            if entry in self._encoding:
                del self._encoding[entry]
                entry.encoded = source
                self._encoded[entry] = None
