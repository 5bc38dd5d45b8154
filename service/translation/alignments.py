"""Alignments of the tokens of a translation with source tokens, by attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from model.bundle.spans import Span
from model.bundle.tokenizer import Tokenizer
from service.domain.plan import Float32
from service.domain.requests import Hypothesis
from service.errors import FailedPreconditionError, InvalidArgumentError

# Limit of the soft alignments of one call: at four bytes each, 16 MB.
MAX_SOFT_WEIGHTS = 4_000_000


@dataclass(frozen=True)
class Alignment:
    """The decoder's attention for each token of a translation.

    Attributes:
        links: (source token, target token) for each target token except EOS, in order.
        rows: [T, S], weight of each source token for each target token, EOS included in both; a
            row sums to one. None if only links were requested.
    """

    links: Sequence[tuple[int, int]]
    rows: Float32 | None = field(default=None, compare=False)


@dataclass(frozen=True)
class TargetToken:
    """A token of a translation: its piece of the vocabulary, and its position in the text."""

    piece: str
    log_probability: float
    span: Span


@dataclass(frozen=True)
class SourceToken:
    """A token of a source."""

    piece: str
    span: Span


class SoftWeights:
    """Limits the soft alignments of one call."""

    def __init__(self) -> None:
        self._count = 0

    def add(self, num_source: int, num_target: int) -> None:
        """Add an alignment.

        Raises:
            InvalidArgumentError: all alignments together have too many weights; names the field and
                the limit.
        """
        self._count += num_source * num_target
        if self._count > MAX_SOFT_WEIGHTS:
            raise InvalidArgumentError(
                "options.return_alignments",
                f"soft alignments of more than {MAX_SOFT_WEIGHTS:,} weights (tokens of a source "
                f"times tokens of its translation, added up), the limit of one call",
            )


def check_can_align(can_align: bool) -> None:
    """Refuse alignments if the model has none.

    Raises:
        FailedPreconditionError: `can_align` is false.
    """
    if not can_align:
        raise FailedPreconditionError(
            "options.return_alignments: this model's decoder looks at weighted sums of source "
            'tokens (cross_attention = "linformer"), so that it has no alignments'
        )


def alignment_of(scored: Hypothesis) -> Alignment:
    """The alignment of a scored target."""
    assert scored.linked is not None, "scored without an alignment"
    links = [(source, target) for target, source in enumerate(scored.linked.tolist())]
    return Alignment(links, scored.attention)


def source_tokens(text: str, tokenizer: Tokenizer) -> list[SourceToken]:
    """The tokens of a source, with EOS and without language tokens."""
    hidden = len(tokenizer.prefix_ids)
    spans = tokenizer.encoded_spans(text)[hidden:]
    pieces = map(tokenizer.id_to_piece, tokenizer.encode(text)[hidden:])
    tokens = [SourceToken(piece, span) for piece, span in zip(pieces, spans, strict=True)]
    return [*tokens, SourceToken(tokenizer.id_to_piece(tokenizer.eos_id), _end_of(text))]


def generated_tokens(hypothesis: Hypothesis, tokenizer: Tokenizer) -> list[TargetToken]:
    """The tokens of a hypothesis, with EOS, and their positions in its text."""
    ids = [*hypothesis.token_ids, *([tokenizer.eos_id] if hypothesis.ended else [])]
    return _target_tokens(hypothesis, ids, tokenizer.decoded_spans(ids), tokenizer)


def given_tokens(text: str, scored: Hypothesis, tokenizer: Tokenizer) -> list[TargetToken]:
    """The tokens of a given and scored translation, with EOS, and their positions in it."""
    ids = [*scored.token_ids, tokenizer.eos_id]
    spans = [*tokenizer.encoded_spans(text), _end_of(text)]
    return _target_tokens(scored, ids, spans, tokenizer)


def _target_tokens(
    hypothesis: Hypothesis, ids: Sequence[int], spans: Sequence[Span], tokenizer: Tokenizer
) -> list[TargetToken]:
    pieces = map(tokenizer.id_to_piece, ids)
    columns = zip(pieces, hypothesis.token_log_probabilities, spans, strict=True)
    return [TargetToken(*column) for column in columns]


def _end_of(text: str) -> Span:
    return Span(len(text), len(text))
