"""Between the queue and the rows, for runners that encode beside their steps.

Among many rows, sources are encoded before they join. Otherwise every row would wait for each
encode; and the longer the last one took, the more have come meanwhile to share the next. Among few,
a newcomer is encoded where it joins: the steps there are short, and it gets the whole processor.

Pure policy, like the scheduler: no tensors, no clock, no threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from service.jobs import Job
from service.plan import EncodedSource
from service.waiting import WaitingQueue


class Anteroom:
    """The queue as lanes see it: those who may join now, and all who have not joined.

    Args:
        waiting: the queue.
        token_budget: most source tokens to encode at once; a longer source is encoded alone. Scores
            are let in up to as much.

    Attributes:
        is_passed: whether newcomers join without having been encoded, at present.
    """

    def __init__(self, waiting: WaitingQueue, token_budget: int) -> None:
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

    def peek(self) -> Job | None:
        """Who joins next."""
        if self._let_in:
            return next(iter(self._let_in))
        head = self._waiting.peek()
        return head if head is not None and (self.is_passed or _is_scored(head)) else None

    def take(self) -> Job:
        """Take out the job that `peek` gave."""
        if not self._let_in:
            return self._waiting.take()
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
        head = self._waiting.peek()
        if self.is_passed or head is None:
            return False
        if _is_scored(head):  # with nobody before it, it is for the lanes already
            return bool(self._let_in) and self._room_for_scores() > 0
        return head.num_rows <= num_free

    def begin(self, num_free: int) -> list[Job]:
        """Let in, in the queue's order, whoever needs no encode; those to encode together now.

        `encoded` or `discard` ends it for each.
        """
        jobs: list[Job] = []
        budget, for_scores = self._token_budget, self._room_for_scores()
        while (job := self._waiting.peek()) is not None and not self.is_passed:
            num_tokens = job.request.num_encoded_tokens
            if _is_scored(job):
                if for_scores <= 0:
                    break
                for_scores -= num_tokens
                self._let_in[self._waiting.take()] = None
                continue
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

    def _room_for_scores(self) -> int:
        let_in = sum(job.request.num_encoded_tokens for job in self._let_in if _is_scored(job))
        return self._token_budget - let_in


def _is_scored(job: Job) -> bool:
    """Whether it needs no row; then its scorer encodes."""
    return not job.num_rows
