"""Requests that wait, in the order in which they are admitted: fair between clients.

A *flow* is what one client sends with one priority. Each admitted request moves its flow on by its
work over the priority's weight, and the flow that has come least far is next. So a client with one
sentence waits for about one request of each other client, however many thousands those have sent,
and low priorities get a small share rather than none: no request waits for ever. A flow that was
idle begins where the others are; what it did not use is not saved up. (Self-clocked fair queueing:
Golestani, 1994.) A request's work is an estimate; what it took beyond that moves its flow on when
it ends.

A client that names ids of its own (`GenerationRequest.client_id`) has its share divided among them
by the same rule: its flow holds flows, one an id, and however many there are, they are one flow to
the others. Within an id, first come first served.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from service.batching.records import RequestEntry
from service.domain.requests import Priority

# Of a priority: its share against the others.
WEIGHTS = {Priority.LOW: 0.125, Priority.NORMAL: 1.0, Priority.HIGH: 8.0}

# How many idle flows are remembered, so that coming back is no advantage: clients, and ids of one
# client, which are remembered only while others of its requests wait.
_MAX_IDLE_CLIENTS = 4096
_MAX_IDLE_IDS = 256

_Key = TypeVar("_Key", bound=Hashable)
_Waiting = TypeVar("_Waiting", bound=Iterable[RequestEntry])

# In order, and keyed so that one is discarded at once.
_Entries = OrderedDict[RequestEntry, None]


@dataclass(eq=False)
class _Flow(Generic[_Key, _Waiting]):
    """A flow that takes turns with others.

    Attributes:
        key: whose it is.
        progress: work admitted, over the weight; comparable between flows.
        waiting: what waits; false once that is nothing.
    """

    key: _Key
    progress: float
    waiting: _Waiting


class _Flows(Generic[_Key, _Waiting]):
    """Flows that take turns: the one that has come least far is next.

    Args:
        new: what a flow holds, while nothing waits in it.
        max_idle: how many idle flows are remembered.
    """

    def __init__(self, new: Callable[[], _Waiting], max_idle: int) -> None:
        self._new = new
        self._max_idle = max_idle
        self._flows: dict[_Key, _Flow[_Key, _Waiting]] = {}
        # One heap item for each of `_flows`: progress, number of the item, flow.
        self._heap: list[tuple[float, int, _Flow[_Key, _Waiting]]] = []
        self._idle: dict[_Key, float] = {}
        self._progress = 0.0  # of the flow that was last served: none is behind it
        self._num_items = 0

    def __bool__(self) -> bool:
        return self.next() is not None

    def __iter__(self) -> Iterator[RequestEntry]:
        for flow in self._flows.values():
            yield from flow.waiting

    def get(self, key: _Key) -> _Waiting | None:
        """What waits in a flow, if it is there."""
        flow = self._flows.get(key)
        return None if flow is None else flow.waiting

    def open(self, key: _Key) -> _Waiting:
        """What waits in a flow, to which something is going to be added."""
        flow = self._flows.get(key)
        if flow is None:
            progress = max(self._progress, self._idle.pop(key, 0.0))
            flow = self._flows[key] = _Flow(key, progress, self._new())
            heapq.heappush(self._heap, self._item(flow))
        return flow.waiting

    def next(self) -> _Waiting | None:
        """What waits in the flow that is next; None if nothing waits."""
        while self._heap:
            flow = self._heap[0][2]
            if flow.waiting:
                return flow.waiting
            self._drop_first()
        return None

    def served(self, cost: float) -> None:
        """Move on the flow that `next` gave."""
        self._progress, _, flow = self._heap[0]
        flow.progress += cost
        if flow.waiting:
            heapq.heapreplace(self._heap, self._item(flow))
        else:  # at once: flows that always come anew would fill the heap behind them
            self._drop_first()

    def charge(self, key: _Key, cost: float) -> None:
        """Move on a flow, which keeps its place in the order until it has been served."""
        is_empty = not self
        flow = self._flows.get(key)
        if flow is not None:
            flow.progress += cost
            return
        progress = max(self._progress, self._idle.pop(key, 0.0))
        if is_empty:
            self._progress = progress
        self._remember(key, progress + cost)

    def _drop_first(self) -> None:
        flow = heapq.heappop(self._heap)[2]
        del self._flows[flow.key]
        self._remember(flow.key, flow.progress)

    def _item(self, flow: _Flow[_Key, _Waiting]) -> tuple[float, int, _Flow[_Key, _Waiting]]:
        self._num_items += 1  # equals take turns
        return flow.progress, self._num_items, flow

    def _remember(self, key: _Key, progress: float) -> None:
        if progress <= self._progress:
            return
        self._idle[key] = progress
        if len(self._idle) > self._max_idle:
            ahead = {key: p for key, p in self._idle.items() if p > self._progress}
            # Many ahead of the others at once: the newest are kept.
            self._idle = dict(list(ahead.items())[-self._max_idle // 2 :])


# Of one client with one priority: its ids, each with its requests.
_Ids = _Flows[str, _Entries]


def _new_ids() -> _Ids:
    return _Flows(OrderedDict, _MAX_IDLE_IDS)


class FairQueue:
    """Requests of one kind that wait: translations for rows, or scores for their budget.

    Attributes:
        num_rows: rows that they need together.
    """

    def __init__(self) -> None:
        self.num_rows = 0
        self._clients: _Flows[tuple[str, Priority], _Ids] = _Flows(_new_ids, _MAX_IDLE_CLIENTS)
        self._num_entries = 0

    def __len__(self) -> int:
        return self._num_entries

    def __iter__(self) -> Iterator[RequestEntry]:
        """All of them, flow by flow."""
        return iter(self._clients)

    def push(self, entry: RequestEntry) -> None:
        """Add a request behind the others of its flow."""
        self._clients.open(_key(entry)).open(entry.request.client_id)[entry] = None
        self._num_entries += 1
        self.num_rows += entry.num_rows

    def peek(self) -> RequestEntry | None:
        """The request to admit next."""
        if (ids := self._clients.next()) is None or (entries := ids.next()) is None:
            return None
        return next(iter(entries))

    def take(self) -> RequestEntry:
        """Take out the request that `peek` gave, which is admitted."""
        entry = self.peek()
        assert entry is not None, "the queue is empty"
        ids = self._clients.open(_key(entry))
        self._remove(entry, ids.open(entry.request.client_id))
        cost = entry.work / WEIGHTS[entry.request.priority]
        ids.served(cost)
        self._clients.served(cost)
        return entry

    def charge(self, entry: RequestEntry, work: float) -> None:
        """Move on the flow of a request that has left, or is of another queue.

        The flow's first request keeps its place. While the queue is empty, the charge is at no
        other flow's cost: all begin where this flow was.
        """
        cost = work / WEIGHTS[entry.request.priority]
        if (ids := self._clients.get(_key(entry))) is not None:
            ids.charge(entry.request.client_id, cost)
        self._clients.charge(_key(entry), cost)

    def settle(self, entry: RequestEntry) -> None:
        """Charge the steps that a translation took beyond its work."""
        beyond = entry.num_rows * entry.num_steps - entry.work
        if beyond > 0:
            self.charge(entry, beyond)

    def discard(self, entry: RequestEntry) -> bool:
        """Take a request out that is not wanted any more, at no cost; whether it was there."""
        ids = self._clients.get(_key(entry))
        entries = None if ids is None else ids.get(entry.request.client_id)
        if entries is None or entry not in entries:
            return False
        self._remove(entry, entries)
        return True

    def _remove(self, entry: RequestEntry, entries: _Entries) -> None:
        del entries[entry]
        self._num_entries -= 1
        self.num_rows -= entry.num_rows


def _key(entry: RequestEntry) -> tuple[str, Priority]:
    return entry.request.client, entry.request.priority
