"""What is asked of the engine, and what it answers: token ids in, token ids out."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from service.errors import DragomanError, InvalidArgumentError


class FinishReason(enum.Enum):
    """Why a generation ended."""

    EOS = "eos"
    """The model ended the text."""
    LENGTH = "length"
    """The limit on new tokens was reached."""
    CANCELLED = "cancelled"
    """Nobody wants the answer any more, or the engine was stopped."""
    DEADLINE = "deadline"
    """The request's deadline passed."""
    ERROR = "error"
    """The model runner failed."""


@dataclass(frozen=True)
class SearchOptions:
    """How to search for a translation. Greedy: the best token at each step.

    Attributes:
        max_new_tokens: most tokens to generate, EOS included; None for the default, which follows
            the length of the source (`model.limits.default_max_new_tokens`).

    Raises:
        InvalidArgumentError: a value is out of range.
    """

    max_new_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.max_new_tokens is not None and self.max_new_tokens < 1:
            raise InvalidArgumentError(
                "max_new_tokens", f"must be at least 1, not {self.max_new_tokens}"
            )


@dataclass(frozen=True)
class GenerationRequest:
    """One source sequence to translate.

    Attributes:
        source_ids: token ids of the source, its EOS included.
        options: how to search.
        deadline: `time.monotonic()` seconds after which the answer is worthless; None for never.
        request_id: names the request in logs; several generations may share one.
        client: who asks, for fairness between clients.
    """

    source_ids: tuple[int, ...]
    options: SearchOptions = field(default_factory=SearchOptions)
    deadline: float | None = None
    request_id: str = ""
    client: str = ""


@dataclass(frozen=True)
class GenerationResult:
    """How one generation ended.

    Attributes:
        token_ids: the tokens generated, without EOS. Incomplete unless the reason is EOS or LENGTH.
        finish_reason: why it ended.
        log_probability: natural logarithm of the probability of the tokens, EOS included if it was
            generated.
        queue_seconds: from submission until it joined the batch (or ended without joining).
        compute_seconds: from joining the batch until it ended.
        first_token_seconds: from submission until its first token; None if there was none.
        error: what to tell the client when the reason is CANCELLED, DEADLINE or ERROR, else None.
    """

    token_ids: list[int]
    finish_reason: FinishReason
    log_probability: float = 0.0
    queue_seconds: float = 0.0
    compute_seconds: float = 0.0
    first_token_seconds: float | None = None
    error: DragomanError | None = None
