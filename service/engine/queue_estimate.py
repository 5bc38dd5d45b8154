"""What is inside an engine as far as its clients' side knows: who waits, and before whom.

The queue itself belongs to the step loop's thread. This is its mirror on the event loop: what was
submitted, less what the step loop has reported since. It is never more than a few iterations
behind.
"""

from __future__ import annotations

from dataclasses import dataclass

from service.batching.fair_queue import WEIGHTS
from service.batching.jobs import Job
from service.decoding.requests import Priority

# With more flows than this their sum stands for the look at each of them.
_MAX_FLOWS_LOOKED_AT = 256

_FlowKey = tuple[str, Priority]


@dataclass
class _FlowEstimate:
    """What waits of one client with one priority.

    Attributes:
        num_jobs: how many.
        work: their expected steps, over all rows.
    """

    num_jobs: int = 0
    work: float = 0.0

    @property
    def turn(self) -> float:
        """The work of one of them."""
        return self.work / self.num_jobs


class QueueEstimate:
    """Work that waits, by flow, in expected steps over all rows.

    Attributes:
        num_rows_inside: rows of everybody who was submitted and has neither ended nor given up.
        num_rows_running: of those, rows that are known to be in use.
        total: all the work that waits.
    """

    def __init__(self) -> None:
        self.num_rows_inside = 0
        self.num_rows_running = 0
        self._inside: set[Job] = set()
        self._works: dict[Job, float] = {}  # of those who wait
        self._flows: dict[_FlowKey, _FlowEstimate] = {}
        self.total = 0.0
        self._turns = 0.0  # one of each flow

    def __len__(self) -> int:
        return len(self._works)

    def added(self, job: Job, work: float) -> None:
        """A job came, and will take so many steps over all its rows; a score takes none."""
        if not job.num_rows:
            return
        self.num_rows_inside += job.num_rows
        self._inside.add(job)
        self._works[job] = work
        self._change(job, 1, work)

    def joined(self, job: Job) -> None:
        """It waits no more."""
        if job in self._works:
            self._leave(job)
            self.num_rows_running += job.num_rows

    def ended(self, job: Job) -> None:
        """It has left, or will before the next step, whether it ran or not; once or more."""
        if job not in self._inside:
            return
        self._inside.remove(job)
        self.num_rows_inside -= job.num_rows
        if job in self._works:
            self._leave(job)
        else:
            self.num_rows_running -= job.num_rows

    def ahead(self, client: str, priority: Priority) -> float:
        """Work that is begun before a job that this client submits now.

        By the rule of `service.batching.fair_queue`: the client's own with this priority all comes
        before it, and of each other flow as much as its weight gives it meanwhile, but no less than
        one job, which was there first.
        """
        own = self._flows.get((client, priority))
        if own is None and len(self._flows) > _MAX_FLOWS_LOOKED_AT:
            return self._turns
        own_work = own.work if own is not None else 0.0
        share = own_work / WEIGHTS[priority]
        if len(self._flows) > _MAX_FLOWS_LOOKED_AT:
            return min(self.total, own_work + self._turns + share * max(WEIGHTS.values()))
        others = (
            min(flow.work, flow.turn + share * WEIGHTS[key[1]])
            for key, flow in self._flows.items()
            if flow is not own
        )
        return own_work + sum(others)

    def _leave(self, job: Job) -> None:
        self._change(job, -1, -self._works.pop(job))
        if not self._works:  # so that rounding does not add up
            self._flows.clear()
            self.total = self._turns = 0.0

    def _change(self, job: Job, count: int, work: float) -> None:
        key = job.request.client, job.request.priority
        flow = self._flows.get(key)
        if flow is None:
            flow = self._flows[key] = _FlowEstimate()
        else:
            self._turns -= flow.turn
        flow.num_jobs += count
        flow.work += work
        self.total += work
        if flow.num_jobs:
            self._turns += flow.turn
        else:
            del self._flows[key]
