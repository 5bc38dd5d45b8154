"""Requests to the engine and their results: token ids in, token ids out."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from model.bundle.search_limits import (
    EarlyStopping,
    LengthPenaltyKind,
    SearchLimitError,
    check_search,
    check_search_fits,
)
from service.domain.attention import AttentionSelection
from service.domain.plan import Float32, Int32, RunnerLimits
from service.domain.sampling import Sampling
from service.errors import DragomanError, InvalidArgumentError


class FinishReason(enum.Enum):
    """The reason why a generation ended."""

    EOS = "eos"
    """The model ended the text."""
    LENGTH = "length"
    """The limit on new tokens was reached."""
    CANCELLED = "cancelled"
    """The client cancelled the request, or the engine was stopped."""
    DEADLINE = "deadline"
    """The request's deadline passed."""
    ERROR = "error"
    """The model runner failed."""


AlignmentKind = Literal["hard", "soft"]


@dataclass(frozen=True)
class SearchOptions:
    """Options of the search for a translation. The default is greedy: the best token at each step.

    Attributes:
        max_new_tokens: most tokens to generate, EOS included; None for the default, which follows
            the length of the source (`model.bundle.limits.default_max_new_tokens`).
        beam_size: number of hypotheses that grow side by side; 1 for greedy search.
        num_hypotheses: number of hypotheses to return, best first; at most `beam_size`.
        length_penalty: alpha; 0 compares totals without a penalty, larger values favour longer
            translations.
        length_penalty_kind: "power" divides a total log-probability by length^alpha, "gnmt" by
            ((5 + length) / 6)^alpha (Wu et al., 2016, equation 14). EOS counts.
        early_stopping: when a beam that has `beam_size` finished hypotheses stops. "first": at
            once. "heuristic": when the best running one, at its present length, scores no better
            than the worst finished one. "never": the same, at the length that would give it the
            best score. (Hugging Face calls them True, False and "never"; CTranslate2 does "first".)
        min_new_tokens: fewest tokens before EOS.
        suppressed_ids: ids of tokens that are never generated; at most 256.
        repetition_penalty: factor of at least 1 for the log-probability of a token that occurred
            before, in scores (Keskar et al., 2019; as in Hugging Face's beam search).
        no_repeat_ngram_size: length of token sequences that may not occur twice; 0 for no rule.
        prefix_ids: ids of the tokens to begin with. They count as tokens, with log-probability 0.
        forced_eos: whether EOS is forced at `max_new_tokens`, if that is 2 or more, at no cost
            (Hugging Face's `forced_eos_token_id`). It counts in the length of a hypothesis, which
            otherwise counts as cut: EOS is not among its tokens, and `ended` is False.
        sampling: options of random sampling; None for the best tokens. Only without a beam.
        exact: whether to search the whole vocabulary, where the model has a shortlist.
        listed_ids: tokens that are in its shortlist in any case, besides those of the prefix.

    Raises:
        InvalidArgumentError: a value is out of range; names the field and the limit.
    """

    max_new_tokens: int | None = None
    beam_size: int = 1
    num_hypotheses: int = 1
    length_penalty: float = 1.0
    length_penalty_kind: LengthPenaltyKind = "power"
    early_stopping: EarlyStopping = "heuristic"
    min_new_tokens: int = 0
    suppressed_ids: tuple[int, ...] = ()
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    prefix_ids: tuple[int, ...] = ()
    forced_eos: bool = False
    sampling: Sampling | None = None
    exact: bool = False
    listed_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        try:
            check_search(
                max_new_tokens=self.max_new_tokens,
                beam_size=self.beam_size,
                length_penalty=self.length_penalty,
                length_penalty_kind=self.length_penalty_kind,
                early_stopping=self.early_stopping,
                min_new_tokens=self.min_new_tokens,
                suppressed_ids=self.suppressed_ids,
                repetition_penalty=self.repetition_penalty,
                no_repeat_ngram_size=self.no_repeat_ngram_size,
            )
        except SearchLimitError as exc:
            raise InvalidArgumentError(exc.field, exc.description) from exc
        if not 1 <= self.num_hypotheses <= self.beam_size:
            raise InvalidArgumentError(
                "num_hypotheses",
                f"must be between 1 and beam_size, {self.beam_size}, not {self.num_hypotheses}",
            )
        if self.sampling is not None and self.beam_size > 1:
            raise InvalidArgumentError("sampling", "is for a beam_size of 1 only")

    @property
    def has_constraints(self) -> bool:
        """Whether some tokens are forbidden, forced or made less likely."""
        return bool(self.prefix_ids) or self._weighs_tokens

    @property
    def is_exact(self) -> bool:
        """Whether its rows choose from the whole vocabulary; random sampling always does."""
        return self.exact or self.sampling is not None

    @property
    def has_only_prefix(self) -> bool:
        """Whether a forced prefix is the only constraint."""
        return bool(self.prefix_ids) and not self._weighs_tokens

    @property
    def has_only_fixed_constraints(self) -> bool:
        """Whether the only constraints are forbidden tokens, the same whatever was generated."""
        return self.has_constraints and not (self.prefix_ids or self._avoids_repetition)

    @property
    def _weighs_tokens(self) -> bool:
        return bool(self.min_new_tokens or self.suppressed_ids) or self._avoids_repetition

    @property
    def _avoids_repetition(self) -> bool:
        return self.repetition_penalty > 1.0 or self.no_repeat_ngram_size > 0

    def most_generated(self, max_new_tokens: int) -> int:
        """Most tokens that the model may choose if `max_new_tokens` is the limit."""
        return max(1, max_new_tokens - 1) if self.forced_eos else max_new_tokens

    def check_fits(self, limits: RunnerLimits) -> None:
        """Check the options against a runner's limits.

        Raises:
            InvalidArgumentError: an option exceeds a limit; names the field and the limit.
        """
        most = limits.max_target_positions
        try:
            check_search_fits(
                max_new_tokens=self.max_new_tokens,
                min_new_tokens=self.min_new_tokens,
                no_repeat_ngram_size=self.no_repeat_ngram_size,
                beam_size=self.beam_size,
                max_target_positions=most,
                max_rows=limits.max_rows,
                vocab_size=limits.vocab_size,
            )
        except SearchLimitError as exc:
            raise InvalidArgumentError(exc.field, exc.description) from exc
        # The model chooses at least one token.
        forced, longest = len(self.prefix_ids), self.max_new_tokens or most
        if forced >= longest:
            raise InvalidArgumentError(
                "prefix_ids",
                f"has {forced} tokens; at most {longest - 1}, of {longest} altogether",
            )

    def score(self, log_probability: float, length: int) -> float:
        """A hypothesis's total log-probability divided by the penalty for its `length`."""
        if self.beam_size == 1:
            return log_probability
        if self.length_penalty_kind == "gnmt":
            return log_probability / math.pow((5 + length) / 6, self.length_penalty)
        return log_probability / math.pow(length, self.length_penalty)


class Priority(enum.Enum):
    """A request's share of the model under load."""

    LOW = "low"
    """An eighth of the share of NORMAL."""
    NORMAL = "normal"
    HIGH = "high"
    """Eight times the share of NORMAL."""


@dataclass(frozen=True)
class GenerationRequest:
    """One source sequence to translate.

    Attributes:
        source_ids: token ids of the source, its EOS included.
        deadline: `time.monotonic()` seconds after which the answer is useless; None for never.
        request_id: id of the request in logs; several generations may have the same.
        client: name of the client, for fairness between clients.
        client_id: id that the client names for one of its own clients, for fairness within its
            share; "" without one.
        priority: share of the model under load.
    """

    source_ids: tuple[int, ...]
    options: SearchOptions = field(default_factory=SearchOptions)
    deadline: float | None = None
    request_id: str = ""
    client: str = ""
    client_id: str = ""
    priority: Priority = Priority.NORMAL

    @property
    def num_rows(self) -> int:
        """Number of rows that it needs, one for each hypothesis."""
        return self.options.beam_size

    @property
    def num_encoded_tokens(self) -> int:
        """Number of tokens that it takes of an iteration's encode token budget."""
        return len(self.source_ids)

    @property
    def least_steps(self) -> int:
        """Fewest steps that its options allow; 0 without a minimum."""
        return max(self.options.min_new_tokens, len(self.options.prefix_ids))

    @property
    def work(self) -> int:
        """Rough cost, relative to other requests: source tokens for each of its rows."""
        return self.num_rows * len(self.source_ids)


# Number of attention weights that cost as much as a source token: with the included model, a
# million weights took 50 ms from the request to the answer, and 512 tokens took 20 ms.
_WEIGHTS_PER_TOKEN = 512


@dataclass(frozen=True)
class ScoringRequest(GenerationRequest):
    """A source and a target to score, without a search and without rows.

    Its result is one hypothesis, the target itself, with its log-probabilities.

    Attributes:
        target_ids: token ids of the target, its EOS included; at least one.
        num_hidden_source: number of language tokens at the beginning of the source, which are not
            aligned.
        num_hidden_target: number of language tokens at the beginning of the target, which are not
            part of the result.
        alignment: kind of alignment in the result; None for none. Only a soft alignment keeps the
            attention, which has source times target elements.
        selection: attention weights in the result, in place of an alignment; None for none.
        num_weights: number of weights computed for the selection.
    """

    target_ids: tuple[int, ...] = ()
    num_hidden_source: int = 0
    num_hidden_target: int = 0
    alignment: AlignmentKind | None = None
    selection: AttentionSelection | None = None
    num_weights: int = 0

    @property
    def num_rows(self) -> int:
        """Zero: a score takes one iteration and no row."""
        return 0

    @property
    def num_encoded_tokens(self) -> int:
        """Number of source tokens that take at least as long to encode.

        A target token goes through the decoder and over the whole vocabulary. That costs 1.2 times
        the encoding of a source token in the included model (six and two layers, measured), and
        twice as much in Transformer base (counted multiplications). Weights count too, since they
        are converted and sent.
        """
        weights = self.num_weights // _WEIGHTS_PER_TOKEN
        return len(self.source_ids) + 2 * len(self.target_ids) + weights

    @property
    def work(self) -> int:
        """The cost of a greedy search of the same length, which is an upper bound."""
        return max(len(self.source_ids), len(self.target_ids))


@dataclass(frozen=True)
class Hypothesis:
    """One translation that a search found.

    Attributes:
        token_ids: ids of its tokens, without EOS.
        token_log_probabilities: natural logarithm of each token's probability; the last is that of
            EOS if it was generated.
        log_probability: sum of these, added up in order.
        score: score for ranking: the log-probability divided by the length penalty, or without one
            for greedy search.
        ended: whether it ended with EOS; False if it was cut.
        linked: [len(token_ids)] index of the source token with the most attention for each token;
            None unless a scoring request asked for an alignment.
        attention: [T, S] attention weights, with the EOS of both sides; None unless a scoring
            request asked for a soft alignment.
        weights: attention weights that a scoring request selected.
    """

    token_ids: list[int]
    token_log_probabilities: list[float]
    log_probability: float
    score: float
    ended: bool
    linked: Int32 | None = field(default=None, compare=False, repr=False)
    attention: Float32 | None = field(default=None, compare=False, repr=False)
    weights: Sequence[Float32] = field(default=(), compare=False, repr=False)

    def without(self, num_hidden: int) -> Hypothesis:
        """The hypothesis without its first tokens, which were forced and have log-probability 0."""
        if not num_hidden:
            return self
        return replace(
            self,
            token_ids=self.token_ids[num_hidden:],
            token_log_probabilities=self.token_log_probabilities[num_hidden:],
        )


@dataclass(frozen=True)
class GenerationResult:
    """The result of one generation. Times are in seconds.

    Attributes:
        token_ids: generated tokens of the best hypothesis, without EOS. Incomplete unless the
            reason is EOS or LENGTH.
        finish_reason: reason why it ended.
        log_probability: natural logarithm of the probability of the tokens, EOS included if it was
            generated.
        hypotheses: requested number of hypotheses, best first; fewer only if the vocabulary is too
            small for that number, or if the generation ended early.
        was_admitted: whether it joined the batch or was scored.
        queue_seconds: time from submission to joining the batch, or to the end without joining.
        compute_seconds: time from joining the batch to the end.
        first_token_seconds: time from submission to the first token; None without tokens.
        encoded_seconds: time from submission until the source was encoded, which may be before it
            joined the batch; None if unknown, as for scores.
        encode_seconds: duration of that encode, for all of its sources together.
        num_steps: number of decoder steps that its rows took.
        error: error for the client if the reason is CANCELLED, DEADLINE or ERROR, else None.
    """

    token_ids: list[int]
    finish_reason: FinishReason
    log_probability: float = 0.0
    hypotheses: list[Hypothesis] = field(default_factory=list)
    was_admitted: bool = True
    queue_seconds: float = 0.0
    compute_seconds: float = 0.0
    first_token_seconds: float | None = None
    encoded_seconds: float | None = None
    encode_seconds: float = 0.0
    num_steps: int = 0
    error: DragomanError | None = None

    def without(self, num_hidden: int) -> GenerationResult:
        """The result without the first tokens of every hypothesis (`Hypothesis.without`)."""
        if not num_hidden:
            return self
        return replace(
            self,
            token_ids=self.token_ids[num_hidden:],
            hypotheses=[hypothesis.without(num_hidden) for hypothesis in self.hypotheses],
        )
