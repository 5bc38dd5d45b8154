"""Requests that wait, in the order in which they are admitted: fair between clients.

A *flow* is what one client sends with one priority; within it, first come first served. Each
admitted request moves its flow on by its work over the priority's weight, and the flow that has
come least far is next. So a client with one sentence waits for about one request of each other
client, however many thousands those have sent, and low priorities get a small share rather than
none: no request waits for ever. A flow that was idle begins where the others are; what it did not
use is not saved up. (Self-clocked fair queueing: Golestani, 1994.) A request's work is an
estimate; what it took beyond that moves its flow on when it ends.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from service.batching.records import RequestEntry
from service.decoding.requests import Priority

# Of a priority: its share against the others.
WEIGHTS = {Priority.LOW: 0.125, Priority.NORMAL: 1.0, Priority.HIGH: 8.0}

# How many idle flows are remembered, so that coming back is no advantage.
_MAX_IDLE = 4096

_FlowKey = tuple[str, Priority]


@dataclass(eq=False)
class _Flow:
    """What one client sends with one priority.

    Attributes:
        key: client and priority.
        progress: work admitted, over the weight; comparable between flows.
        entries: those that wait, in order, and keyed so that one is discarded at once.
    """

    key: _FlowKey
    progress: float
    entries: OrderedDict[RequestEntry, None] = field(default_factory=OrderedDict)


class FairQueue:
    """Requests of one kind that wait: translations for rows, or scores for their budget.

    Attributes:
        num_rows: rows that they need together.
    """

    def __init__(self) -> None:
        self.num_rows = 0
        self._flows: dict[_FlowKey, _Flow] = {}
        # One heap item for each of `_flows`: progress, number of the item, flow.
        self._heap: list[tuple[float, int, _Flow]] = []
        self._idle: dict[_FlowKey, float] = {}
        self._progress = 0.0  # of the flow that was last served: none is behind it
        self._num_items = 0
        self._num_entries = 0

    def __len__(self) -> int:
        return self._num_entries

    def __iter__(self) -> Iterator[RequestEntry]:
        """All of them, flow by flow."""
        for flow in self._flows.values():
            yield from flow.entries

    def push(self, entry: RequestEntry) -> None:
        """Add a request behind the others of its flow."""
        key = _key(entry)
        flow = self._flows.get(key)
        if flow is None:
            progress = max(self._progress, self._idle.pop(key, 0.0))
            flow = self._flows[key] = _Flow(key, progress)
            heapq.heappush(self._heap, self._item(flow))
        flow.entries[entry] = None
        self._num_entries += 1
        self.num_rows += entry.num_rows

    def peek(self) -> RequestEntry | None:
        """The request to admit next."""
        while self._heap:
            flow = self._heap[0][2]
            if flow.entries:
                return next(iter(flow.entries))
            heapq.heappop(self._heap)
            del self._flows[flow.key]
            self._remember(flow.key, flow.progress)
        return None

    def take(self) -> RequestEntry:
        """Take out the request that `peek` gave, which is admitted."""
        entry = self.peek()
        assert entry is not None, "the queue is empty"
        self._progress, _, flow = self._heap[0]
        del flow.entries[entry]
        self._num_entries -= 1
        self.num_rows -= entry.num_rows
        flow.progress += entry.work / WEIGHTS[entry.request.priority]
        heapq.heapreplace(self._heap, self._item(flow))
        return entry

    def charge(self, entry: RequestEntry, work: float) -> None:
        """Move on the flow of a request that has left, or is of another queue.

        The flow's first request keeps its place. While the queue is empty, the charge is at no
        other flow's cost: all begin where this flow was.
        """
        is_empty = self.peek() is None
        key = _key(entry)
        flow = self._flows.get(key)
        cost = work / WEIGHTS[entry.request.priority]
        if flow is not None:
            flow.progress += cost
            return
        progress = max(self._progress, self._idle.pop(key, 0.0))
        if is_empty:
            self._progress = progress
        self._remember(key, progress + cost)

    def settle(self, entry: RequestEntry) -> None:
        """Charge the steps that a translation took beyond its work."""
        beyond = entry.num_rows * entry.num_steps - entry.work
        if beyond > 0:
            self.charge(entry, beyond)

    def discard(self, entry: RequestEntry) -> bool:
        """Take a request out that is not wanted any more, at no cost; whether it was there."""
        flow = self._flows.get(_key(entry))
        if flow is None or entry not in flow.entries:
            return False
        del flow.entries[entry]
        self._num_entries -= 1
        self.num_rows -= entry.num_rows
        return True

    def _item(self, flow: _Flow) -> tuple[float, int, _Flow]:
        self._num_items += 1  # equals take turns
        return flow.progress, self._num_items, flow

    def _remember(self, key: _FlowKey, progress: float) -> None:
        if progress <= self._progress:
            return
        self._idle[key] = progress
        if len(self._idle) > _MAX_IDLE:
            ahead = {key: p for key, p in self._idle.items() if p > self._progress}
            # Many ahead of the others at once: the newest are kept.
            self._idle = dict(list(ahead.items())[-_MAX_IDLE // 2 :])


def _key(entry: RequestEntry) -> _FlowKey:
    return entry.request.client, entry.request.priority
