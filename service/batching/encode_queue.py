"""Between the queue and the rows, for runners that encode beside their steps.

Among many rows, sources are encoded before they join. Otherwise every row would wait for each
encode; and the longer the last one took, the more have come meanwhile to share the next. Among few,
a newcomer is encoded where it joins: the steps there are short, and it gets the whole processor.
Scores need no row, and their scorer encodes: they pass it.

Pure policy, like the scheduler: no tensors, no clock, no threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from service.batching.fair_queue import FairQueue
from service.batching.jobs import Job
from service.runtime.plan import EncodedSource


class EncodeQueue:
    """The queue as lanes see it: those who may join now, and all who have not joined.

    Args:
        waiting: the queue.
        token_budget: most source tokens to encode at once; a longer source is encoded alone.

    Attributes:
        is_passed: whether newcomers join without having been encoded, at present.
    """

    def __init__(self, waiting: FairQueue, token_budget: int) -> None:
        self.is_passed = True
        self._waiting = waiting
        self._token_budget = token_budget
        self._encoding: dict[Job, None] = {}
        self._let_in: dict[Job, None] = {}

    # --- the queue -------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._waiting) + len(self._encoding) + len(self._let_in)

    @property
    def num_queued(self) -> int:
        """Jobs that are still in the queue."""
        return len(self._waiting)

    @property
    def num_rows(self) -> int:
        """Rows that all of them need together."""
        return self._waiting.num_rows + self.num_promised

    def push(self, job: Job) -> None:
        """Add a job."""
        self._waiting.push(job)

    def peek(self, *, scored: bool = False) -> Job | None:
        """Who joins next, or is scored next."""
        if scored:
            return self._waiting.peek(scored=True)
        if self._let_in:
            return next(iter(self._let_in))
        return self._waiting.peek() if self.is_passed else None

    def take(self, *, scored: bool = False) -> Job:
        """Take out the job that `peek` gave."""
        if scored or not self._let_in:
            return self._waiting.take(scored=scored)
        job = next(iter(self._let_in))
        del self._let_in[job]
        return job

    def discard(self, job: Job) -> bool:
        """Take `job` out, which gave up; whether it was there."""
        for some in (self._encoding, self._let_in):
            if job in some:
                del some[job]
                return True
        return self._waiting.discard(job)

    def settle(self, job: Job, num_steps: int) -> None:
        """A translation has left its rows after so many steps."""
        self._waiting.settle(job, num_steps)

    def jobs(self) -> Iterator[Job]:
        """All of them."""
        yield from self._let_in
        yield from self._encoding
        yield from self._waiting.jobs()

    # --- encoding --------------------------------------------------------------------------------

    @property
    def num_promised(self) -> int:
        """Rows that are kept for those who have left the queue."""
        return sum(job.num_rows for some in (self._encoding, self._let_in) for job in some)

    def can_begin(self, num_free: int) -> bool:
        """Whether `begin` would do anything, if so many rows are to be had."""
        head = None if self.is_passed else self._waiting.peek()
        return head is not None and head.num_rows <= num_free

    def begin(self, num_free: int) -> list[Job]:
        """Those to encode together now, in the queue's order.

        `encoded` or `discard` ends it for each.
        """
        jobs: list[Job] = []
        budget = self._token_budget
        while not self.is_passed and (job := self._waiting.peek()) is not None:
            num_tokens = job.request.num_encoded_tokens
            if job.num_rows > num_free or (jobs and num_tokens > budget):
                break
            budget -= num_tokens
            num_free -= job.num_rows
            self._encoding[self._waiting.take()] = None
            jobs.append(job)
        return jobs

    def encoded(self, jobs: Sequence[Job], sources: Sequence[EncodedSource]) -> None:
        """Let those in who have not given up meanwhile."""
        for job, source in zip(jobs, sources, strict=True):
            if job in self._encoding:
                del self._encoding[job]
                job.encoded = source
                self._let_in[job] = None
