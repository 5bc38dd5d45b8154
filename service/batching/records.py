"""A request as it is submitted, and the scheduler's record of it."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from service.domain.plan import EncodedSource, EncodeItem
from service.domain.requests import (
    FinishReason,
    GenerationRequest,
    GenerationResult,
    Hypothesis,
)
from service.errors import DragomanError

_NO_HYPOTHESIS = Hypothesis([], [], log_probability=0.0, score=0.0, ended=False)


@dataclass(frozen=True, eq=False)
class EngineRequest:
    """A request as it is submitted to a scheduler, in this process or another.

    Attributes:
        id: id of the request in commands and events; unique in its engine.
        request: source tokens and options.
        max_new_tokens: most new tokens: the request's own bound or the default, within the model's.
        submitted_at: time of submission, in seconds of the engine's clock.
    """

    id: int
    request: GenerationRequest
    max_new_tokens: int
    submitted_at: float


class Finished(NamedTuple):
    """The id of a request that has finished, and its result."""

    id: int
    result: GenerationResult


class RequestState(enum.Enum):
    """The state of a request."""

    WAITING = "waiting"
    """In a queue, encoded or not."""
    RUNNING = "running"
    """In the batch, or being scored."""
    FINISHED = "finished"
    """Finished, with a result."""


class RequestEntry:
    """The scheduler's record of a request. Times are seconds of the engine's clock.

    Attributes:
        id, request, max_new_tokens, submitted_at: as in `EngineRequest`.
        num_rows: number of rows that it needs, one for each hypothesis; 0 for a score.
        num_encoded_tokens: number of tokens that it takes of the encode token budget.
        work: rough cost, relative to other requests: source tokens for each of its rows, or the
            tokens that it asks for if those are more (a word that must be translated by 500 tokens
            is much work).
        deadline: time after which its answer is useless; infinity for never.
        state: its state.
        lane: number of the lane that its rows are in; None without rows.
        rows: its rows in that lane.
        num_steps: number of steps that its rows took; known at its end.
        admitted_at: time at which it joined the batch; None while it waits.
        encoded: its encoded source, if that was encoded ahead.
        encoded_at: time at which its source had been encoded.
        encode_seconds: duration of the encode.
        first_token_at: time at which its first token was chosen.
        streams: whether its tokens are reported at every step.
        is_background: whether it is beyond its sender's share of the rows (`RowShares`).
    """

    def __init__(self, submitted: EngineRequest) -> None:
        request = submitted.request
        self.id = submitted.id
        self.request = request
        self.max_new_tokens = submitted.max_new_tokens
        self.submitted_at = submitted.submitted_at
        self.num_rows = request.num_rows
        self.num_encoded_tokens = request.num_encoded_tokens
        least_steps = min(request.least_steps, submitted.max_new_tokens)
        self.work = max(request.work, request.num_rows * least_steps)
        self.deadline = float("inf") if request.deadline is None else request.deadline
        self.state = RequestState.WAITING
        self.lane: int | None = None
        self.rows: list[int] = []
        self.num_steps = 0
        self.admitted_at: float | None = None
        self.encoded: EncodedSource | None = None
        self.encoded_at: float | None = None
        self.encode_seconds = 0.0
        self.first_token_at: float | None = None
        self.streams = False
        self.is_background = False

    def admit(self, now: float) -> None:
        """Record that the request joins the batch or is scored."""
        self.state = RequestState.RUNNING
        self.admitted_at = now

    def encode_item(self) -> EncodeItem:
        """The source for its rows."""
        request, options = self.request, self.request.options
        return EncodeItem(
            tuple(self.rows),
            request.source_ids,
            self.encoded,
            exact=options.is_exact,
            added_ids=(*options.prefix_ids, *options.listed_ids),
        )

    def was_encoded(self, ended_at: float, seconds: float) -> None:
        """Record that the source was encoded; only the first call counts."""
        if self.encoded_at is None:
            self.encoded_at, self.encode_seconds = ended_at, seconds

    def finish(
        self,
        now: float,
        hypotheses: Sequence[Hypothesis] = (),
        reason: FinishReason | None = None,
        error: DragomanError | None = None,
    ) -> Finished:
        """Finish the request and make its result; no `reason` if the search ended by itself."""
        assert self.state is not RequestState.FINISHED, "a request finishes once"
        self.state = RequestState.FINISHED
        self.encoded = None
        best = hypotheses[0] if hypotheses else _NO_HYPOTHESIS
        if reason is None:
            reason = FinishReason.EOS if best.ended else FinishReason.LENGTH
        admitted_at = now if self.admitted_at is None else self.admitted_at
        result = GenerationResult(
            token_ids=best.token_ids,
            finish_reason=reason,
            log_probability=best.log_probability,
            hypotheses=list(hypotheses),
            was_admitted=self.admitted_at is not None,
            queue_seconds=admitted_at - self.submitted_at,
            compute_seconds=now - admitted_at,
            first_token_seconds=self._seconds_until(self.first_token_at),
            encoded_seconds=self._seconds_until(self.encoded_at),
            encode_seconds=self.encode_seconds,
            num_steps=self.num_steps,
            error=error,
        )
        return Finished(self.id, result)

    def _seconds_until(self, time: float | None) -> float | None:
        """Seconds from submission to `time`; None if that is None."""
        return None if time is None else time - self.submitted_at


def request_ids(entries: Iterable[RequestEntry]) -> list[str]:
    """The ids of the client requests that some entries are parts of, for the log."""
    return sorted({entry.request.request_id for entry in entries})
