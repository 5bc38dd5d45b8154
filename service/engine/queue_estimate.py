"""The queue as the event loop knows it: how much work waits, and how much of it goes first.

The queue itself belongs to the step loop's thread. This is its mirror: what was submitted, less
what the step loop has reported since. It lags behind by a few iterations at most.
"""

from __future__ import annotations

from dataclasses import dataclass

from service.batching.fair_queue import WEIGHTS
from service.decoding.requests import GenerationRequest, Priority

# With more flows than this, their sum stands for each of them.
_MAX_FLOWS_LOOKED_AT = 256

_FlowKey = tuple[str, Priority]


@dataclass
class _Entry:
    """One request inside the engine; `work` is its expected steps over all its rows."""

    flow: _FlowKey
    num_rows: int
    work: float
    waits: bool = True


@dataclass
class _FlowEstimate:
    """What waits of one client with one priority: requests, and their expected steps."""

    num_requests: int = 0
    work: float = 0.0

    @property
    def mean_work(self) -> float:
        return self.work / self.num_requests


class QueueEstimate:
    """Work that waits, by flow, in expected steps over all rows.

    Attributes:
        num_rows_inside: rows of all requests that were submitted and have not ended.
        num_rows_running: of those, rows that are known to be in use.
        num_waiting: requests that wait.
        total: all the work that waits.
    """

    def __init__(self) -> None:
        self.num_rows_inside = 0
        self.num_rows_running = 0
        self.num_waiting = 0
        self.total = 0.0
        self._entries: dict[int, _Entry] = {}
        self._flows: dict[_FlowKey, _FlowEstimate] = {}
        self._sum_of_means = 0.0  # one mean request of each flow

    def submitted(self, request_id: int, request: GenerationRequest, work: float) -> None:
        """A request came that will take so many steps over all its rows."""
        entry = _Entry((request.client, request.priority), request.num_rows, work)
        self._entries[request_id] = entry
        self.num_rows_inside += entry.num_rows
        self._change(entry, 1)

    def joined(self, request_id: int) -> None:
        """A request joined the batch; nothing happens if it has ended."""
        entry = self._entries.get(request_id)
        if entry is not None and entry.waits:
            entry.waits = False
            self.num_rows_running += entry.num_rows
            self._change(entry, -1)

    def ended(self, request_id: int) -> None:
        """A request has left, or will before the next step, whether it ran or not."""
        entry = self._entries.pop(request_id, None)
        if entry is None:
            return
        self.num_rows_inside -= entry.num_rows
        if entry.waits:
            self._change(entry, -1)
        else:
            self.num_rows_running -= entry.num_rows

    def ahead(self, client: str, priority: Priority) -> float:
        """Work that begins before a request that this client submits now.

        By the rule of `service.batching.fair_queue`: all of the client's own work with this
        priority comes first, and of each other flow as much as its weight gives it meanwhile, but
        at least one request, which was there before.
        """
        own = self._flows.get((client, priority))
        if own is None and len(self._flows) > _MAX_FLOWS_LOOKED_AT:
            return self._sum_of_means
        own_work = own.work if own is not None else 0.0
        share = own_work / WEIGHTS[priority]
        if len(self._flows) > _MAX_FLOWS_LOOKED_AT:
            most = own_work + self._sum_of_means + share * max(WEIGHTS.values())
            return min(self.total, most)
        others = (
            min(flow.work, flow.mean_work + share * WEIGHTS[key[1]])
            for key, flow in self._flows.items()
            if flow is not own
        )
        return own_work + sum(others)

    def _change(self, entry: _Entry, count: int) -> None:
        """Add a request to what waits (1) or remove it (-1)."""
        self.num_waiting += count
        if not self.num_waiting:  # cleared, so that rounding errors do not add up
            self._flows.clear()
            self.total = self._sum_of_means = 0.0
            return
        flow = self._flows.setdefault(entry.flow, _FlowEstimate())
        if flow.num_requests:
            self._sum_of_means -= flow.mean_work
        flow.num_requests += count
        flow.work += count * entry.work
        self.total += count * entry.work
        if flow.num_requests:
            self._sum_of_means += flow.mean_work
        else:
            del self._flows[entry.flow]
