"""What is asked of the engine, and what it answers: token ids in, token ids out."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field
from typing import Literal, get_args

from service.errors import DragomanError, InvalidArgumentError
from service.plan import RunnerLimits


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


LengthPenaltyKind = Literal["power", "gnmt"]
EarlyStopping = Literal["heuristic", "first", "never"]

# Larger ones are of no use to anybody, and would overflow.
_MAX_LENGTH_PENALTY = 100.0


@dataclass(frozen=True)
class SearchOptions:
    """How to search for a translation. By default greedily: the best token at each step.

    Attributes:
        max_new_tokens: most tokens to generate, EOS included; None for the default, which follows
            the length of the source (`model.limits.default_max_new_tokens`).
        beam_size: hypotheses that grow side by side; 1 is greedy.
        num_hypotheses: how many to return, best first; at most `beam_size`.
        length_penalty: alpha; 0 compares bare totals, larger favours longer translations.
        length_penalty_kind: "power" divides a total log-probability by length^alpha, "gnmt" by
            ((5 + length) / 6)^alpha (Wu et al., 2016, equation 14). EOS counts.
        early_stopping: when a beam that has `beam_size` finished hypotheses stops. "first": at
            once. "heuristic": when the best running one, at its present length, scores no better
            than the worst finished one. "never": the same, at the length that would flatter it
            most. (Hugging Face calls them True, False and "never"; CTranslate2 does "first".)

    Raises:
        InvalidArgumentError: a value is out of range; names the field and the limit.
    """

    max_new_tokens: int | None = None
    beam_size: int = 1
    num_hypotheses: int = 1
    length_penalty: float = 1.0
    length_penalty_kind: LengthPenaltyKind = "power"
    early_stopping: EarlyStopping = "heuristic"

    def __post_init__(self) -> None:
        if self.max_new_tokens is not None:
            _check_at_least("max_new_tokens", self.max_new_tokens, 1)
        _check_at_least("beam_size", self.beam_size, 1)
        if not 1 <= self.num_hypotheses <= self.beam_size:
            raise InvalidArgumentError(
                "num_hypotheses",
                f"must be between 1 and beam_size, {self.beam_size}, not {self.num_hypotheses}",
            )
        if not abs(self.length_penalty) <= _MAX_LENGTH_PENALTY:  # nor is NaN
            raise InvalidArgumentError(
                "length_penalty",
                f"must be between {-_MAX_LENGTH_PENALTY:g} and {_MAX_LENGTH_PENALTY:g}, "
                f"not {self.length_penalty}",
            )
        _check_one_of("length_penalty_kind", self.length_penalty_kind, get_args(LengthPenaltyKind))
        _check_one_of("early_stopping", self.early_stopping, get_args(EarlyStopping))

    def check_fits(self, limits: RunnerLimits) -> None:
        """Compare with what a runner can hold.

        Raises:
            InvalidArgumentError: it can never do this; names the field and the limit.
        """
        _check_at_most("max_new_tokens", self.max_new_tokens or 1, limits.max_target_positions)
        # A step draws twice as many candidates as there are hypotheses.
        widest = min(limits.max_rows, limits.vocab_size // 2)
        _check_at_most("beam_size", self.beam_size, widest)

    def score(self, log_probability: float, length: int) -> float:
        """A hypothesis's total log-probability over the penalty for its `length` tokens."""
        if self.beam_size == 1:
            return log_probability
        if self.length_penalty_kind == "gnmt":
            return log_probability / math.pow((5 + length) / 6, self.length_penalty)
        return log_probability / math.pow(length, self.length_penalty)


def _check_at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise InvalidArgumentError(name, f"must be at least {least}, not {value}")


def _check_at_most(name: str, value: int, most: int) -> None:
    if value > most:
        raise InvalidArgumentError(name, f"{value} is more than {most}, the limit")


def _check_one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidArgumentError(name, f"must be one of {', '.join(allowed)}, not {value!r}")


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
class Hypothesis:
    """One of the translations that a search came to.

    Attributes:
        token_ids: without EOS.
        token_log_probabilities: natural logarithm of each token's probability; the last is EOS's
            if it was generated.
        log_probability: their sum, added up in order.
        score: by which a search ranks: the log-probability over the length penalty (greedy: bare).
        ended: by EOS; False if it was cut.
    """

    token_ids: list[int]
    token_log_probabilities: list[float]
    log_probability: float
    score: float
    ended: bool


@dataclass(frozen=True)
class GenerationResult:
    """How one generation ended.

    Attributes:
        token_ids: the tokens generated, without EOS: those of the best hypothesis. Incomplete
            unless the reason is EOS or LENGTH.
        finish_reason: why it ended.
        log_probability: natural logarithm of the probability of the tokens, EOS included if it was
            generated.
        hypotheses: as many as were asked for, best first; fewer only where the vocabulary is too
            small for as many to exist, or if it ended early.
        queue_seconds: from submission until it joined the batch (or ended without joining).
        compute_seconds: from joining the batch until it ended.
        first_token_seconds: from submission until its first token; None if there was none.
        error: what to tell the client when the reason is CANCELLED, DEADLINE or ERROR, else None.
    """

    token_ids: list[int]
    finish_reason: FinishReason
    log_probability: float = 0.0
    hypotheses: list[Hypothesis] = field(default_factory=list)
    queue_seconds: float = 0.0
    compute_seconds: float = 0.0
    first_token_seconds: float | None = None
    error: DragomanError | None = None
