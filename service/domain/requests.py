"""Requests to the engine and their results: token ids in, token ids out."""

from __future__ import annotations

import enum
import hashlib
import math
import secrets
import struct
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
from service.errors import DragomanError, InvalidArgumentError


class FinishReason(enum.Enum):
    """Why a generation ended."""

    EOS = "eos"
    """The model ended the text."""
    LENGTH = "length"
    """The limit on new tokens was reached."""
    CANCELLED = "cancelled"
    """The client cancelled it, or the engine was stopped."""
    DEADLINE = "deadline"
    """The request's deadline passed."""
    ERROR = "error"
    """The model runner failed."""


AlignmentKind = Literal["hard", "soft"]

# Each costs every row of the batch one more candidate, as `MAX_SUPPRESSED` do.
MAX_SAMPLED = 256
# All rows of a step return as many candidates as one of them asks for. In CPU time on one thread, a
# step of 64 rows with 64 candidates takes 1.1 (Transformer base) to 1.35 times (the shipped model)
# as long as with one, with 256 candidates 1.25 to 2.2 times; most of that is
# the heap of TopK itself. Of the shipped model's probability, the best 64 tokens hold 88 % and the
# best 256 hold 92 %: label smoothing spreads the rest over the whole vocabulary.
DEFAULT_SAMPLED = 64


@dataclass(frozen=True)
class Sampling:
    """How to draw tokens at random.

    Attributes:
        temperature: log-probabilities are divided by it: below 1 the likely become likelier.
        top_k: only the best so many are drawn from; at most 256.
        top_p: of these, only the fewest that make up this much of their probability.
        seed: 0 to 2^64 - 1. The same seed draws the same tokens of the same candidates, whatever
            else is in the batch. None: at random, for each sentence anew (`for_sentence`).

    Raises:
        InvalidArgumentError: a value is out of range; names the field and the limit.
    """

    temperature: float = 1.0
    top_k: int = DEFAULT_SAMPLED
    top_p: float = 1.0
    seed: int | None = 0

    def __post_init__(self) -> None:
        _check_between("temperature", self.temperature, 0.01, 100.0)
        _check_between("top_k", self.top_k, 1, MAX_SAMPLED)
        if not 0.0 < self.top_p <= 1.0:
            raise InvalidArgumentError("top_p", f"must be over 0 and at most 1, not {self.top_p}")
        if self.seed is not None:
            _check_between("seed", self.seed, 0, 2**64 - 1)

    def for_sentence(self, source_ids: tuple[int, ...]) -> Sampling:
        """The same options with a seed for one sentence of the request.

        With one seed for all, each would draw its n-th token at the same quantile: samples of
        different sentences would not be independent.
        """
        if self.seed is None:
            return replace(self, seed=secrets.randbits(64))
        key = self.seed.to_bytes(8, "little")
        source = struct.pack(f"<{len(source_ids)}q", *source_ids)
        digest = hashlib.blake2b(source, digest_size=8, key=key).digest()
        return replace(self, seed=int.from_bytes(digest, "little"))


@dataclass(frozen=True)
class SearchOptions:
    """How to search for a translation. By default greedily: the best token at each step.

    Attributes:
        max_new_tokens: most tokens to generate, EOS included; None for the default, which follows
            the length of the source (`model.bundle.limits.default_max_new_tokens`).
        beam_size: hypotheses that grow side by side; 1 is greedy.
        num_hypotheses: how many to return, best first; at most `beam_size`.
        length_penalty: alpha; 0 compares bare totals, larger favours longer translations.
        length_penalty_kind: "power" divides a total log-probability by length^alpha, "gnmt" by
            ((5 + length) / 6)^alpha (Wu et al., 2016, equation 14). EOS counts.
        early_stopping: when a beam that has `beam_size` finished hypotheses stops. "first": at
            once. "heuristic": when the best running one, at its present length, scores no better
            than the worst finished one. "never": the same, at the length that would give it the
            best score. (Hugging Face calls them True, False and "never"; CTranslate2 does "first".)
        min_new_tokens: no EOS before so many tokens.
        suppressed_ids: tokens that are never generated; at most 256.
        repetition_penalty: at least 1. The log-probability of a token that occurred before is
            multiplied by it, in scores (Keskar et al., 2019; as in Hugging Face's beam search).
        no_repeat_ngram_size: no sequence of so many tokens occurs twice; 0 for no such rule.
        prefix_ids: the tokens to begin with. They count as tokens, with log-probability 0.
        forced_eos: at `max_new_tokens`, if that is 2 or more, nothing but EOS is chosen, at no cost
            (Hugging Face's `forced_eos_token_id`). It counts in the length of a hypothesis; for the
            rest that is one that was cut: EOS is not among its tokens, and `ended` is False.
        sampling: draw tokens at random; None for the best. Only without a beam.

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
    def has_only_prefix(self) -> bool:
        """Whether tokens are constrained only where they are forced."""
        return bool(self.prefix_ids) and not self._weighs_tokens

    @property
    def _weighs_tokens(self) -> bool:
        return bool(
            self.min_new_tokens
            or self.suppressed_ids
            or self.repetition_penalty > 1.0
            or self.no_repeat_ngram_size
        )

    def most_generated(self, max_new_tokens: int) -> int:
        """Tokens that the model may choose when so many are the limit."""
        return max(1, max_new_tokens - 1) if self.forced_eos else max_new_tokens

    def check_fits(self, limits: RunnerLimits) -> None:
        """Compare with what a runner can hold.

        Raises:
            InvalidArgumentError: it can never do this; names the field and the limit.
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
        """A hypothesis's total log-probability over the penalty for its `length` tokens."""
        if self.beam_size == 1:
            return log_probability
        if self.length_penalty_kind == "gnmt":
            return log_probability / math.pow((5 + length) / 6, self.length_penalty)
        return log_probability / math.pow(length, self.length_penalty)


def _check_between(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:  # nor is NaN
        raise InvalidArgumentError(name, f"must be between {least:g} and {most:g}, not {value}")


class Priority(enum.Enum):
    """A request's share of the model under load."""

    LOW = "low"
    """An eighth of what NORMAL gets."""
    NORMAL = "normal"
    HIGH = "high"
    """Eight times what NORMAL gets."""


@dataclass(frozen=True)
class GenerationRequest:
    """One source sequence to translate.

    Attributes:
        source_ids: token ids of the source, its EOS included.
        options: how to search.
        deadline: `time.monotonic()` seconds after which the answer is worthless; None for never.
        request_id: names the request in logs; several generations may share one.
        client: its client, for fairness between clients.
        client_id: whom of its own clients it is for, for fairness within its share; "" if that is
            not divided.
        priority: its share under load.
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
        """Rows of the batch that it needs, one a hypothesis."""
        return self.options.beam_size

    @property
    def num_encoded_tokens(self) -> int:
        """Its part of the encode token budget of the iteration that admits it."""
        return len(self.source_ids)

    @property
    def least_steps(self) -> int:
        """Steps that its options demand; 0 if they demand none."""
        return max(self.options.min_new_tokens, len(self.options.prefix_ids))

    @property
    def work(self) -> int:
        """Its cost, roughly and relative to others: source tokens for each of its rows."""
        return self.num_rows * len(self.source_ids)


# Attention weights that cost as much as a source token: a million took 50 ms with the model that
# ships, from the request to the answer, and 512 tokens 20 ms.
_WEIGHTS_PER_TOKEN = 512


@dataclass(frozen=True)
class ScoringRequest(GenerationRequest):
    """A source and a target to score: nothing is searched, and no row is needed.

    Its result is one hypothesis, the target itself, with its log-probabilities.

    Attributes:
        target_ids: token ids of the target, its EOS included; at least one.
        num_hidden_source: tokens at the beginning of the source, of languages, that nothing is
            aligned with.
        num_hidden_target: tokens at the beginning of the target, of its language, that are given:
            they are no part of the result.
        alignment: what its result holds of the attention; None for nothing. Attention is as large
            as both sides multiplied, and results live until the last one of their call.
        selection: the attention weights that its result holds in place of an alignment; None for
            none.
        num_weights: that are computed for the selection.
    """

    target_ids: tuple[int, ...] = ()
    num_hidden_source: int = 0
    num_hidden_target: int = 0
    alignment: AlignmentKind | None = None
    selection: AttentionSelection | None = None
    num_weights: int = 0

    @property
    def num_rows(self) -> int:
        """None: it takes one iteration."""
        return 0

    @property
    def num_encoded_tokens(self) -> int:
        """As many source tokens as cost no less to encode.

        A target's token goes through the decoder and over the whole vocabulary: that is 1.2 times
        the encoding of a source's token in the model that ships (six layers and two, measured),
        and twice as much in Transformer base (multiplications, counted). Weights count as well,
        since they are sent and converted.
        """
        weights = self.num_weights // _WEIGHTS_PER_TOKEN
        return len(self.source_ids) + 2 * len(self.target_ids) + weights

    @property
    def work(self) -> int:
        """As a greedy search of the same length: rather too much than too little."""
        return max(len(self.source_ids), len(self.target_ids))


@dataclass(frozen=True)
class Hypothesis:
    """One translation that a search found.

    Attributes:
        token_ids: without EOS.
        token_log_probabilities: natural logarithm of each token's probability; the last is EOS's
            if it was generated.
        log_probability: their sum, added up in order.
        score: by which a search ranks: the log-probability over the length penalty (greedy: bare).
        ended: by EOS; False if it was cut.
        linked: [len(token_ids)] the source token with the most attention for each; None unless a
            scoring request asked for an alignment.
        attention: [T, S] the weights behind it, of both sides' EOS too; None unless a scoring
            request asked for a soft one.
        weights: the attention weights that a scoring request selected.
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
        """The same without its first tokens, which were given and have log-probability 0."""
        if not num_hidden:
            return self
        return replace(
            self,
            token_ids=self.token_ids[num_hidden:],
            token_log_probabilities=self.token_log_probabilities[num_hidden:],
        )


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
        was_admitted: whether it joined the batch, or was scored.
        queue_seconds: from submission until it was admitted (or ended without).
        compute_seconds: from joining the batch until it ended.
        first_token_seconds: from submission until its first token; None if there was none.
        encoded_seconds: from submission until its source was encoded, which may be before it joined
            the batch; None if that is not known, as for scores.
        encode_seconds: duration of that encode, of all sources in it together.
        num_steps: decoder steps that its rows took.
        error: for the client if the reason is CANCELLED, DEADLINE or ERROR, else None.
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
        """The same without the first tokens of every hypothesis: `Hypothesis.without`."""
        if not num_hidden:
            return self
        return replace(
            self,
            token_ids=self.token_ids[num_hidden:],
            hypotheses=[hypothesis.without(num_hidden) for hypothesis in self.hypotheses],
        )
