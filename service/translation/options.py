"""Options and limits of requests."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from model.bundle.search_limits import MAX_SUPPRESSED
from model.bundle.tokenizer import Tokenizer
from service.domain.plan import RunnerLimits
from service.domain.requests import AlignmentKind, Priority, SearchOptions
from service.errors import InvalidArgumentError

NORMALISED = " after normalisation (NFKC)"


def normalised_length(text: str) -> int:
    """The number of characters after NFKC, which the tokenizer applies: a measure of its work.

    It is an upper bound: each character is normalised by itself, because normalising a whole text
    can take quadratic time (a long run of combining marks has to be sorted), and composition only
    makes the text shorter.
    """
    if text.isascii():
        return len(text)
    return sum(
        len(unicodedata.normalize("NFKC", character)) * count
        for character, count in Counter(text).items()
    )


@dataclass(frozen=True)
class TranslatorLimits:
    """The largest accepted request.

    Attributes:
        max_texts: most texts, or pairs of a text and its translation, in one request.
        max_characters: most characters (code points) in one text, before and after normalisation
            (NFKC), which can turn one character into 18.
        max_request_characters: most characters in all texts of one request, before and after
            normalisation.
    """

    max_texts: int = 1024
    max_characters: int = 100_000
    max_request_characters: int = 1_000_000

    def check_count(self, field: str, count: int, unit: str) -> None:
        """Check the number of texts.

        Raises:
            InvalidArgumentError: the limit is exceeded; names the field and the limit. The other
                methods raise the same error.
        """
        if count > self.max_texts:
            raise InvalidArgumentError(field, f"{count:,} {unit}, the limit is {self.max_texts:,}")

    def check_lengths(
        self, field: str, names: Sequence[str], lengths: Sequence[int], note: str = ""
    ) -> None:
        """Check the lengths of all texts of a request.

        Args:
            field: name of the field with all texts.
            names: name of each text's field.
            lengths: number of characters of each text.
            note: note for the message about the way of counting.
        """
        for name, length in zip(names, lengths, strict=True):
            self.check_length(name, length, note)
        self.check_total(field, sum(lengths), note)

    def check_total(self, field: str, total: int, note: str = "") -> None:
        """Check the length of all texts of a request together."""
        if total > self.max_request_characters:
            raise InvalidArgumentError(
                field,
                f"{total:,} characters{note} in all texts, the limit is "
                f"{self.max_request_characters:,}",
            )

    def check_length(self, field: str, length: int, note: str = "") -> None:
        """Check the length of one text."""
        if length > self.max_characters:
            raise InvalidArgumentError(
                field, f"{length:,} characters{note}, the limit is {self.max_characters:,}"
            )


# A prefix is tokenized on the event loop, so it has to be short; no model has as many positions.
_PREFIX_LIMITS = TranslatorLimits(max_characters=10_000)
# As long as a prefix would block the event loop for too many sentences.
_MAX_LISTED = 2_000
_NAMES = {"suppressed_ids": "suppressed_tokens", "prefix_ids": "target_prefix"}


@dataclass(frozen=True)
class TranslateOptions:
    """Options of a translation, and of its results.

    Attributes:
        split_sentences: whether to translate sentence by sentence. Otherwise a text is one
            sequence, its line breaks are ordinary white space, and it is split only if it is too
            long for the model.
        max_new_tokens: token limit of each sentence, EOS included; None for the limit of `search`
            or, without one, for a limit that follows the length of the source.
        search: search options; the number of hypotheses and the prefix are ignored.
        suppressed_tokens: pieces that are never generated, in addition to those of `search`.
        target_prefix: beginning of each text's translation.
        priority: share of the model under load.
        num_hypotheses: number of translations of each sentence to return, best first; None for only
            the text.
        return_tokens: whether to return the tokens of each hypothesis.
        return_alignments: kind of alignments to return, with the tokens of both sides; None for
            none.
        links: whether to return `TextResult.links`, for `service.text`; not an option of clients.
            Ignored by a stream.
        listed_text: words that the model may use even if its shortlist lacks them; not an option of
            clients. Characters beyond the first `_MAX_LISTED` are ignored.
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
    links: bool = False
    listed_text: str = ""

    @property
    def shows_tokens(self) -> bool:
        """Whether to return the tokens of each hypothesis, which alignments refer to."""
        return self.return_tokens or self.return_alignments is not None

    @property
    def returns_sentences(self) -> bool:
        """Whether to return more than the text."""
        return self.num_hypotheses is not None or self.shows_tokens

    def into_pivot(self, language: str) -> TranslateOptions:
        """These options for the first model, which translates into a pivot language.

        Options of the search that the contract lists (`allow_pivot`) stay; options of the returned
        translation are left out.

        Args:
            language: code of the pivot language.

        Raises:
            InvalidArgumentError: an option is not supported with a pivot; names the field.
        """
        if self.return_alignments:
            raise InvalidArgumentError(
                "options.return_alignments",
                f"no model translates directly, and through {language!r} there is no alignment",
            )
        return TranslateOptions(
            split_sentences=self.split_sentences,
            search=replace(self.search, min_new_tokens=0, sampling=None),
            priority=self.priority,
        )

    def search_options(self, limits: RunnerLimits, tokenizer: Tokenizer) -> SearchOptions:
        """The engine's options for the first sentence of a text.

        For later sentences, `prefix_ids` are only the tokenizer's `start_ids`.

        Raises:
            InvalidArgumentError: a value is out of range; names the client's field and the limit.
        """
        # Language tokens belong to the model and count towards no limit.
        start_ids = tokenizer.start_ids
        most_new = limits.max_target_positions - len(start_ids)
        limits, wanted = replace(limits, max_target_positions=most_new), self.max_new_tokens
        if wanted is not None and not 1 <= wanted <= most_new:
            raise InvalidArgumentError(
                "options.max_new_tokens", f"must be between 1 and {most_new:,}, not {wanted:,}"
            )
        most = self.search.beam_size
        count = 1 if self.num_hypotheses is None else self.num_hypotheses
        if not 1 <= count <= most:
            raise InvalidArgumentError(
                "options.num_hypotheses",
                f"must be between 1 and options.search.beam_size, {most}, not {count}",
            )
        try:
            prefix_ids = self._prefix_ids(tokenizer)
            longest = self._longest(len(prefix_ids), most_new) if wanted is None else wanted
            search = replace(
                self.search,
                max_new_tokens=longest,
                num_hypotheses=count,
                suppressed_ids=self._all_suppressed_ids(tokenizer),
                prefix_ids=prefix_ids,
                listed_ids=tuple(tokenizer.encode(self.listed_text[:_MAX_LISTED])),
            )
            search.check_fits(limits)
        except InvalidArgumentError as exc:
            named = InvalidArgumentError(_NAMES.get(exc.field, exc.field), exc.description)
            raise named.within("options.search") from exc
        return after(start_ids, search)

    def _longest(self, num_forced: int, most: int) -> int | None:
        """The limit of the model's default search, raised if the request needs more tokens.

        Forced tokens are added to it, and with a minimum, there must be room for EOS after it.

        Args:
            num_forced: number of tokens of the prefix.
            most: most new tokens that the model can generate.
        """
        usual, least = self.search.max_new_tokens, self.search.min_new_tokens
        if usual is None:
            return None
        if num_forced >= usual:
            usual += num_forced
        return min(most, usual if least <= usual else least + 1)

    def _all_suppressed_ids(self, tokenizer: Tokenizer) -> tuple[int, ...]:
        """The suppressed tokens of the request and of the model, which share one limit."""
        own = self.search.suppressed_ids
        suppressed = tuple(dict.fromkeys((*own, *self._suppressed_ids(tokenizer))))
        if own and len(suppressed) > MAX_SUPPRESSED:
            raise InvalidArgumentError(
                "suppressed_tokens",
                f"{len(suppressed)} is more than {MAX_SUPPRESSED}, the limit, of which the model's "
                f"own search takes {len(own)}",
            )
        return suppressed

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
        return tuple(tokenizer.encode(self.target_prefix))

    def check_streamable(self) -> None:
        """Check that the translation can be streamed.

        Raises:
            InvalidArgumentError: an option does not allow streaming; names the field.
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


def after(start_ids: tuple[int, ...], search: SearchOptions) -> SearchOptions:
    """The same search for translations that begin with `start_ids`."""
    if not start_ids:
        return search
    count, most = len(start_ids), search.max_new_tokens
    return replace(
        search,
        prefix_ids=(*start_ids, *search.prefix_ids),
        max_new_tokens=None if most is None else most + count,
        min_new_tokens=search.min_new_tokens and search.min_new_tokens + count,
    )
