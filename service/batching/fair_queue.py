"""The queue of waiting requests, which divides the engine fairly among clients.

A *flow* is all requests of one client with one priority. Each admitted request advances its flow by
its work divided by the priority's weight, and the flow with the least progress is next. So a client
with one sentence waits for about one request of each other client, however many thousands they have
sent, and low priorities get a small share rather than none: no request waits forever. A flow that
was idle continues at the progress of the others; an unused share is not saved up (self-clocked fair
queueing: Golestani, 1994). A request's work is an estimate; if it took more, its flow advances by
the difference when it ends.

If a client names ids of its own (`GenerationRequest.client_id`), its share is divided among them by
the same rule: its flow consists of one flow for each id, and counts as one flow among the others.
Within an id, requests are served in the order of arrival.
"""

from __future__ import annotations

import heapq
import itertools
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from service.batching.records import RequestEntry
from service.domain.requests import Priority

# The weight of each priority's flows.
WEIGHTS = {Priority.LOW: 0.125, Priority.NORMAL: 1.0, Priority.HIGH: 8.0}

# Number of idle flows whose progress is remembered, so that a flow gains nothing from leaving and
# coming back. The ids of a client are remembered only while requests of the client wait.
_MAX_IDLE_CLIENTS = 4096
_MAX_IDLE_IDS = 256

_Key = TypeVar("_Key", bound=Hashable)
_Waiting = TypeVar("_Waiting", bound=Iterable[RequestEntry])

# An ordered set of requests, from which one is removed in constant time.
_Entries = OrderedDict[RequestEntry, None]


@dataclass(eq=False)
class _Flow(Generic[_Key, _Waiting]):
    """A flow that takes turns with others.

    Attributes:
        key: client and priority, or id of the client.
        progress: admitted work divided by the weight; comparable between flows.
        waiting: waiting requests, or flows of them; false if empty.
    """

    key: _Key
    progress: float
    waiting: _Waiting


class _Flows(Generic[_Key, _Waiting]):
    """Flows that take turns: the one with the least progress is next.

    Args:
        new: makes the empty container of a flow's waiting requests.
        max_idle: most idle flows to remember.
    """

    def __init__(self, new: Callable[[], _Waiting], max_idle: int) -> None:
        self._new = new
        self._max_idle = max_idle
        self._flows: dict[_Key, _Flow[_Key, _Waiting]] = {}
        # One heap item for each of `_flows`: progress, number of the item, flow.
        self._heap: list[tuple[float, int, _Flow[_Key, _Waiting]]] = []
        self._idle: dict[_Key, float] = {}
        self._progress = 0.0  # of the flow served last, which is the least of all
        self._num_items = 0

    def __bool__(self) -> bool:
        return self.next() is not None

    def __iter__(self) -> Iterator[RequestEntry]:
        for flow in self._flows.values():
            yield from flow.waiting

    def get(self, key: _Key) -> _Waiting | None:
        """The waiting requests of a flow; None if there is no such flow."""
        flow = self._flows.get(key)
        return None if flow is None else flow.waiting

    def open(self, key: _Key) -> _Waiting:
        """The waiting requests of a flow, which is made if needed; the caller adds one."""
        flow = self._flows.get(key)
        if flow is None:
            progress = max(self._progress, self._idle.pop(key, 0.0))
            flow = self._flows[key] = _Flow(key, progress, self._new())
            heapq.heappush(self._heap, self._item(flow))
        return flow.waiting

    def next(self) -> _Waiting | None:
        """The waiting requests of the flow that is next; None if nothing waits."""
        while self._heap:
            flow = self._heap[0][2]
            if flow.waiting:
                return flow.waiting
            self._drop_first()
        return None

    def served(self, cost: float) -> None:
        """Advance the flow that `next` returned."""
        self._progress, _, flow = self._heap[0]
        flow.progress += cost
        if flow.waiting:
            heapq.heapreplace(self._heap, self._item(flow))
        else:  # at once, or flows that come and go would fill the heap
            self._drop_first()

    def charge(self, key: _Key, cost: float) -> None:
        """Advance a flow, which keeps its place in the order until it is served."""
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
        self._num_items += 1  # so that flows of equal progress take turns
        return flow.progress, self._num_items, flow

    def _remember(self, key: _Key, progress: float) -> None:
        if progress <= self._progress:
            return
        self._idle[key] = progress
        if len(self._idle) > self._max_idle:
            ahead = {key: p for key, p in self._idle.items() if p > self._progress}
            # Many idle flows are ahead of the others: the newest are kept.
            self._idle = dict(list(ahead.items())[-self._max_idle // 2 :])


# The ids of one client with one priority, each with its requests.
_Ids = _Flows[str, _Entries]


def _new_ids() -> _Ids:
    return _Flows(OrderedDict, _MAX_IDLE_IDS)


class FairQueue:
    """Waiting requests of one kind: translations that wait for rows, or scores for their budget.

    Attributes:
        num_rows: number of rows that they need together.
    """

    def __init__(self) -> None:
        self.num_rows = 0
        self._clients: _Flows[tuple[str, Priority], _Ids] = _Flows(_new_ids, _MAX_IDLE_CLIENTS)
        self._num_entries = 0

    def __len__(self) -> int:
        return self._num_entries

    def __iter__(self) -> Iterator[RequestEntry]:
        """All requests, flow by flow."""
        return iter(self._clients)

    def push(self, entry: RequestEntry) -> None:
        """Add a request behind the others of its flow."""
        self._clients.open(_key(entry)).open(entry.request.client_id)[entry] = None
        self._num_entries += 1
        self.num_rows += entry.num_rows

    def put_back(self, entry: RequestEntry) -> None:
        """Add a request before the others of its flow, which it preceded."""
        self.push(entry)
        ids = self._clients.open(_key(entry))
        ids.open(entry.request.client_id).move_to_end(entry, last=False)

    def firsts(self, entry: RequestEntry) -> list[RequestEntry]:
        """The next requests of the sender of a request: of its client, and of its id."""
        found: dict[RequestEntry, None] = {}
        for priority in sorted(WEIGHTS, key=WEIGHTS.__getitem__, reverse=True):
            if (ids := self._clients.get((entry.request.client, priority))) is None:
                continue
            for entries in (ids.get(entry.request.client_id), ids.next()):
                found |= dict.fromkeys(itertools.islice(entries or (), entry.num_rows))
        return list(found)

    def peek(self) -> RequestEntry | None:
        """The request to admit next."""
        if (ids := self._clients.next()) is None or (entries := ids.next()) is None:
            return None
        return next(iter(entries))

    def take(self) -> RequestEntry:
        """Remove and return the request that `peek` returns, and charge its flow for it."""
        entry = self.peek()
        assert entry is not None, "the queue is empty"
        ids = self._clients.open(_key(entry))
        self._remove(entry, ids.open(entry.request.client_id))
        cost = entry.work / WEIGHTS[entry.request.priority]
        ids.served(cost)
        self._clients.served(cost)
        return entry

    def charge(self, entry: RequestEntry, work: float) -> None:
        """Advance the flow of a request that has left, or is in another queue.

        The flow's first request keeps its place. While the queue is empty, the charge is free,
        since no other flow waited.
        """
        cost = work / WEIGHTS[entry.request.priority]
        if (ids := self._clients.get(_key(entry))) is not None:
            ids.charge(entry.request.client_id, cost)
        self._clients.charge(_key(entry), cost)

    def settle(self, entry: RequestEntry) -> None:
        """Charge the steps that a translation took in addition to its estimated work."""
        beyond = entry.num_rows * entry.num_steps - entry.work
        if beyond > 0:
            self.charge(entry, beyond)

    def discard(self, entry: RequestEntry) -> bool:
        """Remove a request that is no longer wanted, at no charge; returns whether it waited."""
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
