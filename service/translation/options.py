"""What a client may ask for, and what the engine is asked in its place."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from model.tokenizer import Tokenizer
from service.decoding.requests import AlignmentKind, Priority, SearchOptions
from service.errors import InvalidArgumentError
from service.runtime.plan import RunnerLimits
from service.translation.limits import NORMALISED, TranslatorLimits
from service.translation.preparation import normalised_length

# A longer one could not be tokenized in passing; no model has as many positions.
_PREFIX_LIMITS = TranslatorLimits(max_characters=10_000)
_NAMES = {"suppressed_ids": "suppressed_tokens", "prefix_ids": "target_prefix"}


@dataclass(frozen=True)
class TranslateOptions:
    """How to translate, and what to return.

    Attributes:
        split_sentences: translate sentence by sentence. Otherwise a text is one sequence, its
            inner line breaks are white space like any other, and it is cut only where it is longer
            than the model takes.
        max_new_tokens: most tokens for each sentence, EOS included; None follows its length.
        search: how; what it shares with the fields here is not used.
        suppressed_tokens: pieces of the vocabulary that are never said.
        target_prefix: what the translation of each text begins with.
        priority: its share of the model where clients have to share.
        num_hypotheses: translations of each sentence to return, best first; None for the text only.
        return_tokens: whether to return the tokens of each hypothesis.
        return_alignments: what to return of their alignments; with it, the tokens of both sides.
    """

    split_sentences: bool = True
    max_new_tokens: int | None = None
    search: SearchOptions = field(default_factory=SearchOptions)
    suppressed_tokens: tuple[str, ...] = ()
    target_prefix: str = ""
    priority: Priority = Priority.NORMAL
    num_hypotheses: int | None = None
    return_tokens: bool = False
    return_alignments: AlignmentKind | None = None

    @property
    def shows_tokens(self) -> bool:
        """Whether to return the tokens of each hypothesis: an alignment speaks of them."""
        return self.return_tokens or self.return_alignments is not None

    @property
    def returns_sentences(self) -> bool:
        """Whether more than the text is asked for."""
        return self.num_hypotheses is not None or self.shows_tokens

    def search_options(self, limits: RunnerLimits, tokenizer: Tokenizer) -> SearchOptions:
        """What to ask of the engine for the first sentence of a text.

        Later ones have the tokenizer's `start_ids` alone as `prefix_ids`.

        Raises:
            InvalidArgumentError: a value is out of range; names the client's field and the limit.
        """
        most, wanted = limits.max_target_positions, self.max_new_tokens
        if wanted is not None and not 1 <= wanted <= most:
            raise InvalidArgumentError(
                "options.max_new_tokens", f"must be between 1 and {most:,}, not {wanted:,}"
            )
        most = self.search.beam_size
        count = 1 if self.num_hypotheses is None else self.num_hypotheses
        if not 1 <= count <= most:
            raise InvalidArgumentError(
                "options.num_hypotheses",
                f"must be between 1 and options.search.beam_size, {most}, not {count}",
            )
        try:
            search = replace(
                self.search,
                max_new_tokens=wanted,
                num_hypotheses=count,
                suppressed_ids=self._suppressed_ids(tokenizer),
                prefix_ids=self._prefix_ids(tokenizer),
            )
            search.check_fits(limits)
        except InvalidArgumentError as exc:
            named = InvalidArgumentError(_NAMES.get(exc.field, exc.field), exc.description)
            raise named.within("options.search") from exc
        return search

    def _suppressed_ids(self, tokenizer: Tokenizer) -> tuple[int, ...]:
        ids = tuple(map(tokenizer.piece_to_id, self.suppressed_tokens))
        for piece, token_id in zip(self.suppressed_tokens, ids, strict=True):
            if tokenizer.id_to_piece(token_id) != piece:
                raise InvalidArgumentError(
                    "suppressed_tokens", f"the model's vocabulary has no {piece[:64]!r}"
                )
        return ids

    def _prefix_ids(self, tokenizer: Tokenizer) -> tuple[int, ...]:
        if "\0" in self.target_prefix:
            raise InvalidArgumentError("target_prefix", "contains a NUL character")
        _PREFIX_LIMITS.check_length("target_prefix", len(self.target_prefix))
        length = normalised_length(self.target_prefix)
        _PREFIX_LIMITS.check_length("target_prefix", length, NORMALISED)
        return (*tokenizer.start_ids, *tokenizer.encode(self.target_prefix))

    def check_streamable(self) -> None:
        """Whether a translation can be given out while it grows.

        Raises:
            InvalidArgumentError: it can't; names the field.
        """
        if self.search.beam_size > 1:
            raise InvalidArgumentError(
                "options.search.beam_size",
                f"must be 1 in a stream, not {self.search.beam_size}: the beginning of a "
                f"translation can change while a beam is searched",
            )
        for name in ("num_hypotheses", "return_tokens", "return_alignments"):
            if getattr(self, name):
                raise InvalidArgumentError(f"options.{name}", "a stream returns only the text")
