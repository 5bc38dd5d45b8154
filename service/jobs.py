"""A request on its way through the engine, and the queue it waits in."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from service.errors import DragomanError
from service.requests import GenerationRequest, GenerationResult


class Reply(Protocol):
    """Where a request's answer goes. Each request owns its own."""

    def push(self, token_ids: list[int]) -> None:
        """Hand over new tokens; only for a job that streams."""
        ...

    def finish(self, result: GenerationResult) -> None:
        """Hand over the result: once, after everything else."""
        ...


@dataclass(eq=False)
class Job:
    """A request inside the engine. Times are seconds of the engine's clock.

    Attributes:
        request: what is asked.
        reply: where the answer goes. The scheduler carries it and never uses it.
        max_new_tokens: the request's own bound or the default, within the model's.
        submitted_at: when it came.
        rows: the rows it occupies; empty while it waits and after it ended.
        admitted_at: when it joined the batch; None while it waits.
        first_token_at: when its first token was chosen.
        streams: whether somebody wants tokens before the end.
        cancelled: why it shall leave before the next step; None if it shall not.
        has_ended: whether its result has been written.
    """

    request: GenerationRequest
    reply: Reply
    max_new_tokens: int
    submitted_at: float
    rows: list[int] = field(default_factory=list)
    admitted_at: float | None = None
    first_token_at: float | None = None
    streams: bool = False
    cancelled: DragomanError | None = None
    has_ended: bool = False

    @property
    def num_rows(self) -> int:
        """Rows it needs, one a hypothesis."""
        return self.request.options.beam_size

    @property
    def deadline(self) -> float:
        """When its answer becomes worthless."""
        return float("inf") if self.request.deadline is None else self.request.deadline

    @property
    def queue_seconds(self) -> float:
        """How long it waited; for a job that has joined the batch."""
        assert self.admitted_at is not None
        return self.admitted_at - self.submitted_at

    @property
    def first_token_seconds(self) -> float:
        """From its submission to its first token; for a job that has one."""
        assert self.first_token_at is not None
        return self.first_token_at - self.submitted_at


class WaitingQueue:
    """Jobs that wait for a row, first come first served. Who is next is decided here alone."""

    def __init__(self) -> None:
        # Ordered and keyed, so that one who gives up leaves in constant time.
        self._jobs: OrderedDict[Job, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._jobs)

    def push(self, job: Job) -> None:
        """Add a job at its place in the order."""
        self._jobs[job] = None

    def peek(self) -> Job | None:
        """The job to admit next."""
        return next(iter(self._jobs), None)

    def discard(self, job: Job) -> bool:
        """Take `job` out; whether it was there."""
        if job not in self._jobs:
            return False
        del self._jobs[job]
        return True

    def jobs(self) -> Iterable[Job]:
        """All of them, in order."""
        return self._jobs.keys()
