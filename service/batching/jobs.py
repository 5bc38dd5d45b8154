"""A request on its way through the engine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from service.decoding.requests import GenerationRequest, GenerationResult
from service.errors import DragomanError
from service.runtime.plan import EncodedSource


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
        encoded: its source, if it has been encoded before it joined.
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
    encoded: EncodedSource | None = None
    first_token_at: float | None = None
    streams: bool = False
    cancelled: DragomanError | None = None
    has_ended: bool = False

    @property
    def num_rows(self) -> int:
        """Rows it needs, one a hypothesis."""
        return self.request.num_rows

    @property
    def work(self) -> int:
        """What it will cost, roughly and relative to others: source tokens for each of its rows.

        Or the tokens that it asks for, if those are more: a word is no little work if it must be
        translated by 500.
        """
        least = min(self.request.least_steps, self.max_new_tokens)
        return max(self.request.work, self.num_rows * least)

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


def request_ids(jobs: Iterable[Job]) -> list[str]:
    """The requests that some jobs are parts of, for the log."""
    return sorted({job.request.request_id for job in jobs})
