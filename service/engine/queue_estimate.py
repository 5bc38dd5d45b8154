"""Queue estimate: the work that waits, and how much of it precedes a new request.

The queue itself belongs to the step loop's thread. The event loop keeps this copy of it: the
submitted requests, less those that the step loop has reported since. It lags behind by a few
iterations at most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from service.batching.fair_queue import WEIGHTS
from service.batching.row_shares import SMALL_SHARE
from service.domain.requests import GenerationRequest, Priority

# With more flows than this, `ahead` uses their sum instead of looking at each.
_MAX_FLOWS_LOOKED_AT = 256

_FlowKey = tuple[str, Priority]
_Key = TypeVar("_Key", bound=Hashable)


@dataclass
class _Entry:
    """One request inside the engine; `work` is its expected steps over all its rows."""

    flow: _FlowKey
    client_id: str
    num_rows: int
    work: float
    waits: bool = True


@dataclass
class _FlowEstimate:
    """Number of requests that wait in a flow, and their expected steps."""

    num_requests: int = 0
    work: float = 0.0

    @property
    def mean_work(self) -> float:
        return self.work / self.num_requests


@dataclass
class _FlowEstimates(Generic[_Key]):
    """Waiting work of flows that take turns.

    Attributes:
        work: work of all flows, in steps.
    """

    work: float = 0.0
    _flows: dict[_Key, _FlowEstimate] = field(default_factory=dict)
    _sum_of_means: float = 0.0  # one mean request of each flow

    def __len__(self) -> int:
        return len(self._flows)

    def __contains__(self, key: _Key) -> bool:
        return key in self._flows

    def change(self, key: _Key, count: int, work: float) -> None:
        """Add a waiting request (`count` is 1) or remove it (-1)."""
        flow = self._flows.get(key)
        if flow is None:
            flow = self._flows[key] = _FlowEstimate()
        if flow.num_requests:
            self._sum_of_means -= flow.mean_work
        flow.num_requests += count
        flow.work += count * work
        self.work += count * work
        if flow.num_requests:
            self._sum_of_means += flow.mean_work
        else:
            del self._flows[key]
        if not self._flows:  # so that rounding errors do not add up
            self.work = self._sum_of_means = 0.0

    def ahead(
        self,
        key: _Key,
        weight_of: Callable[[_Key], float] = lambda _: 1.0,
        own_work: float | None = None,
    ) -> float:
        """Work that begins before a new request of a flow.

        Args:
            key: the flow.
            weight_of: returns the weight of a flow.
            own_work: work of the same flow that precedes the request; None for all of it.
        """
        own = self._flows.get(key)
        if own_work is None:
            own_work = own.work if own is not None else 0.0
        share = own_work / weight_of(key)
        if len(self._flows) > _MAX_FLOWS_LOOKED_AT:
            most = own_work + self._sum_of_means + share * max(WEIGHTS.values())
            return min(self.work, most) if own is not None else self._sum_of_means
        others = (
            min(flow.work, flow.mean_work + share * weight_of(key))
            for key, flow in self._flows.items()
            if flow is not own
        )
        return own_work + sum(others)


def _weight_of(key: _FlowKey) -> float:
    return WEIGHTS[key[1]]


class QueueEstimate:
    """Waiting work by flow, in expected steps over all rows.

    Attributes:
        num_rows_inside: number of rows of all requests submitted and not ended.
        num_rows_running: number of those rows that are in use.
        num_waiting: number of requests that wait.
        num_small_rows: number of rows inside, without those of each client beyond a small share,
            which join in rows of their own (`service.batching.row_shares`).
    """

    def __init__(self) -> None:
        self.num_rows_inside = 0
        self.num_small_rows = 0
        self.num_rows_running = 0
        self.num_waiting = 0
        self._entries: dict[int, _Entry] = {}
        self._held: Counter[str] = Counter()  # rows inside, by client
        self._clients: _FlowEstimates[_FlowKey] = _FlowEstimates()
        # Waiting work by client id, only for flows whose requests name ids. To keep it for every
        # flow would double the cost of calls that name none.
        self._ids: dict[_FlowKey, _FlowEstimates[str]] = {}

    @property
    def total(self) -> float:
        """All waiting work, in steps."""
        return self._clients.work

    def submitted(self, request_id: int, request: GenerationRequest, work: float) -> None:
        """Add a request that is expected to take `work` steps over all its rows."""
        flow = request.client, request.priority
        entry = _Entry(flow, request.client_id, request.num_rows, work)
        self._entries[request_id] = entry
        self._hold(entry, entry.num_rows)
        self._change(entry, 1)

    def joined(self, request_id: int) -> None:
        """Record that a request joined the batch. Does nothing if it has ended."""
        entry = self._entries.get(request_id)
        if entry is not None and entry.waits:
            entry.waits = False
            self.num_rows_running += entry.num_rows
            self._change(entry, -1)

    def ended(self, request_id: int) -> None:
        """Remove a request that has left or will leave before the next step."""
        entry = self._entries.pop(request_id, None)
        if entry is None:
            return
        self._hold(entry, -entry.num_rows)
        if entry.waits:
            self._change(entry, -1)
        else:
            self.num_rows_running -= entry.num_rows

    def ahead(self, request: GenerationRequest) -> float:
        """Work that begins before a request that is submitted now.

        This follows the order of `service.batching.fair_queue`: first comes all work with the same
        client, priority and client id, and in the same time each other flow gets a part by its
        weight, at least one request.
        """
        key = request.client, request.priority
        ids = self._ids.get(key)
        if ids is None and request.client_id and key in self._clients:
            ids = self._ids[key] = self._by_id(key)  # the next refused call needs it again
        own_work = None if ids is None else ids.ahead(request.client_id)
        return self._clients.ahead(key, _weight_of, own_work)

    def is_small(self, request: GenerationRequest) -> bool:
        """Whether its client would have a small share of the rows with the request."""
        return self._held[request.client] + request.num_rows <= SMALL_SHARE

    def _hold(self, entry: _Entry, num_rows: int) -> None:
        client, _ = entry.flow
        before = self._held[client]
        self._held[client] = after = before + num_rows
        if not after:
            del self._held[client]
        self.num_rows_inside += num_rows
        self.num_small_rows += min(SMALL_SHARE, after) - min(SMALL_SHARE, before)

    def _change(self, entry: _Entry, count: int) -> None:
        """Add a waiting request (`count` is 1) or remove it (-1)."""
        self.num_waiting += count
        self._clients.change(entry.flow, count, entry.work)
        if entry.client_id or entry.flow in self._ids:
            ids = self._ids.get(entry.flow)
            if ids is None:
                ids = self._ids[entry.flow] = self._by_id(entry.flow, besides=entry)
            ids.change(entry.client_id, count, entry.work)
            if not ids:
                del self._ids[entry.flow]

    def _by_id(self, flow: _FlowKey, besides: _Entry | None = None) -> _FlowEstimates[str]:
        """Waiting work of a flow by client id, without the request `besides`."""
        ids: _FlowEstimates[str] = _FlowEstimates()
        for entry in self._entries.values():
            if entry.waits and entry.flow == flow and entry is not besides:
                ids.change(entry.client_id, 1, entry.work)
        return ids
