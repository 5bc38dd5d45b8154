"""The queue of jobs that wait for their turn: who is next is decided here alone.

Fair between clients, by work and not by number: a flow is what one client sends with one priority;
within it, first come first served. Each admitted job moves its flow on by its work over the
priority's weight, and the flow that has come least far is next. So a client with one sentence waits
for about one turn of the others, however many thousands they have sent, and low priorities get a
small share rather than none: nobody waits for ever. A flow that was idle begins where the others
are; what it did not use is not saved up. (Self-clocked fair queueing: Golestani, 1994.) A job's
work is an estimate; what it took beyond that moves its flow on when it ends.

Translations wait for rows, and scores for their part of the iterations. So each kind has a line of
its own, and who may not go yet keeps nobody of the other kind. What is scored for a flow moves it
on in the line of translations, too. Not so the other way round: fewer scores than translations may
go, so that whoever translates much would never have a turn against those who only score.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from service.batching.jobs import Job
from service.decoding.requests import Priority

# Of a priority: its share against the others.
WEIGHTS = {Priority.LOW: 0.125, Priority.NORMAL: 1.0, Priority.HIGH: 8.0}

# How many flows that are idle are remembered, so that coming back is no advantage.
_MAX_IDLE = 4096

_FlowKey = tuple[str, Priority]


@dataclass(eq=False)
class _Flow:
    """What one client sends with one priority.

    Attributes:
        key: whose it is.
        progress: work admitted, over the weight; comparable between flows.
        jobs: those that wait, in order, and keyed so that one who gives up leaves at once.
    """

    key: _FlowKey
    progress: float
    jobs: OrderedDict[Job, None] = field(default_factory=OrderedDict)


class JobQueue(Protocol):
    """What a scheduler takes its jobs from."""

    def __len__(self) -> int: ...

    def push(self, job: Job) -> None:
        """Add a job."""
        ...

    def peek(self, *, scored: bool = False) -> Job | None:
        """The translation to admit next, or the target to score next."""
        ...

    def take(self, *, scored: bool = False) -> Job:
        """Take out the job that `peek` gave, which is admitted."""
        ...

    def discard(self, job: Job) -> bool:
        """Take `job` out, which gave up; whether it was there."""
        ...

    def settle(self, job: Job, num_steps: int) -> None:
        """A translation has left its rows after so many steps."""
        ...

    def jobs(self) -> Iterator[Job]:
        """All of them."""
        ...


class FairQueue:
    """Translations that wait for rows, and scores that wait for their part."""

    def __init__(self) -> None:
        self._translations = _Line()
        self._scores = _Line()

    def __len__(self) -> int:
        return len(self._translations) + len(self._scores)

    @property
    def num_rows(self) -> int:
        """Rows that the jobs need together."""
        return self._translations.num_rows

    def push(self, job: Job) -> None:
        """Add a job behind the others of its flow and kind."""
        self._line(not job.num_rows).push(job)

    def peek(self, *, scored: bool = False) -> Job | None:
        """The translation to admit next, or the target to score next."""
        return self._line(scored).peek()

    def take(self, *, scored: bool = False) -> Job:
        """Take out the job that `peek` gave, which is admitted."""
        job = self._line(scored).take()
        if scored:
            self._translations.charge(job, job.work)
        return job

    def discard(self, job: Job) -> bool:
        """Take `job` out, which gave up; whether it was there. It costs its client nothing."""
        return self._line(not job.num_rows).discard(job)

    def settle(self, job: Job, num_steps: int) -> None:
        """A translation has left its rows after so many steps: more than its work, it may be."""
        beyond = job.num_rows * num_steps - job.work
        if beyond > 0:
            self._translations.charge(job, beyond)

    def jobs(self) -> Iterator[Job]:
        """All of them, flow by flow."""
        yield from self._translations.jobs()
        yield from self._scores.jobs()

    def _line(self, scored: bool) -> _Line:
        return self._scores if scored else self._translations


class _Line:
    """Jobs of one kind."""

    def __init__(self) -> None:
        self._flows: dict[_FlowKey, _Flow] = {}
        # One entry for each of `_flows`: progress, number of the entry, flow.
        self._heap: list[tuple[float, int, _Flow]] = []
        self._idle: dict[_FlowKey, float] = {}
        self._progress = 0.0  # of the flow that was last served: none is behind it
        self._num_entries = 0
        self._num_jobs = 0
        self._num_rows = 0

    def __len__(self) -> int:
        return self._num_jobs

    @property
    def num_rows(self) -> int:
        """Rows that the jobs need together."""
        return self._num_rows

    def push(self, job: Job) -> None:
        """Add a job behind the others of its flow."""
        key = _key(job)
        flow = self._flows.get(key)
        if flow is None:
            progress = max(self._progress, self._idle.pop(key, 0.0))
            flow = self._flows[key] = _Flow(key, progress)
            heapq.heappush(self._heap, self._entry(flow))
        flow.jobs[job] = None
        self._num_jobs += 1
        self._num_rows += job.num_rows

    def peek(self) -> Job | None:
        """The job to admit next."""
        while self._heap:
            flow = self._heap[0][2]
            if flow.jobs:
                return next(iter(flow.jobs))
            heapq.heappop(self._heap)
            del self._flows[flow.key]
            self._remember(flow.key, flow.progress)
        return None

    def take(self) -> Job:
        """Take out the job that `peek` gave, which is admitted."""
        job = self.peek()
        assert job is not None, "nobody waits"
        self._progress, _, flow = self._heap[0]
        del flow.jobs[job]
        self._num_jobs -= 1
        self._num_rows -= job.num_rows
        flow.progress += job.work / WEIGHTS[job.request.priority]
        heapq.heapreplace(self._heap, self._entry(flow))
        return job

    def charge(self, job: Job, work: float) -> None:
        """Move on the flow of a job that left, or is of another line; its first keeps its place.

        While nobody waits here, that is at nobody's cost: all begin where this flow was.
        """
        nobody_waits = self.peek() is None
        key = _key(job)
        flow = self._flows.get(key)
        cost = work / WEIGHTS[job.request.priority]
        if flow is not None:
            flow.progress += cost
            return
        progress = max(self._progress, self._idle.pop(key, 0.0))
        if nobody_waits:
            self._progress = progress
        self._remember(key, progress + cost)

    def discard(self, job: Job) -> bool:
        """Take `job` out, which gave up; whether it was there. It costs its client nothing."""
        flow = self._flows.get(_key(job))
        if flow is None or job not in flow.jobs:
            return False
        del flow.jobs[job]
        self._num_jobs -= 1
        self._num_rows -= job.num_rows
        return True

    def jobs(self) -> Iterator[Job]:
        """All of them, flow by flow."""
        for flow in self._flows.values():
            yield from flow.jobs

    def _entry(self, flow: _Flow) -> tuple[float, int, _Flow]:
        self._num_entries += 1  # equals take turns
        return flow.progress, self._num_entries, flow

    def _remember(self, key: _FlowKey, progress: float) -> None:
        if progress <= self._progress:
            return
        self._idle[key] = progress
        if len(self._idle) > _MAX_IDLE:
            ahead = {key: p for key, p in self._idle.items() if p > self._progress}
            # Many ahead of the others at once: the newest are kept.
            self._idle = dict(list(ahead.items())[-_MAX_IDLE // 2 :])


def _key(job: Job) -> _FlowKey:
    return job.request.client, job.request.priority
