"""From a text to the sequences that the engine translates."""

from __future__ import annotations

import functools
import itertools
import unicodedata
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass

from model.tokenizer import Tokenizer
from service.translation.fair_executor import FairExecutor
from service.translation.segmentation import Segment, split_long, split_text, whole_text
from service.translation.verbatim import is_translatable

# Segmenting and tokenizing take about a millisecond for so many ASCII characters. Less is done at
# once on the event loop, where a hop to a thread would cost more than it saves; more goes to a
# thread, where clients take turns, in portions of this size: so a call of megabytes neither holds
# up the loop nor the calls that come after it, and its first sentences are in the engine before its
# last ones are cut.
_PORTION_CHARACTERS = 4000
# The same for texts with other characters, each of which can be several tokens, counted after
# normalisation, by which one can become 18 (U+FDFA).
_SMALL_CHARACTERS = 1000


class TextError(ValueError):
    """A text that cannot be translated; the message says why."""


def normalised_length(text: str) -> int:
    """Characters of a text after NFKC, which the tokenizer applies: the work that it makes.

    Each character by itself, since to normalise a whole text can take quadratic time (a long run of
    combining marks has to be sorted). Composition can only make it shorter.
    """
    if text.isascii():
        return len(text)
    return sum(
        len(unicodedata.normalize("NFKC", character)) * count
        for character, count in Counter(text).items()
    )


@dataclass(frozen=True, slots=True)
class Piece:
    """What becomes one part of the answer.

    Attributes:
        separator: white space and line markers to put before it.
        text: as the client wrote it; may hold white space and line breaks if it is kept.
        source_ids: for the engine, EOS included. None if the text is kept as it is: white space,
            and sentences that are copied (`service.translation.verbatim`).
    """

    separator: str
    text: str
    source_ids: tuple[int, ...] | None


@dataclass(frozen=True)
class PreparedText:
    """A text in pieces.

    Attributes:
        pieces: in order.
        was_split: whether a sentence was longer than the model takes and had to be cut.
    """

    pieces: Sequence[Piece]
    was_split: bool

    @property
    def opening(self) -> Piece | None:
        """The first piece that is translated."""
        return next((piece for piece in self.pieces if piece.source_ids), None)

    @property
    def num_source_tokens(self) -> int:
        """Tokens for the engine, EOS not counted."""
        return sum(len(piece.source_ids) - 1 for piece in self.pieces if piece.source_ids)


class TextPreparer:
    """Segments and tokenizes.

    Args:
        tokenizer: the model's.
        language: BCP-47 code of the texts.
        max_source_positions: longest sequence of the model, EOS included.
    """

    def __init__(self, tokenizer: Tokenizer, language: str, max_source_positions: int) -> None:
        self._tokenizer = tokenizer
        self._language = language
        self._max_tokens = max_source_positions - 1
        self._thread = FairExecutor("prepare")

    async def lengths(self, texts: Sequence[str], *, client: str = "") -> list[int]:
        """The `normalised_length` of each text."""

        def measure() -> list[int]:
            return [normalised_length(text) for text in texts]

        return measure() if _are_small(texts) else await self._thread.run(measure, client)

    async def prepare_all(
        self, texts: Sequence[str], *, split_sentences: bool, client: str = ""
    ) -> AsyncIterator[PreparedText | TextError]:
        """Each text in pieces, in order, or what is wrong with it."""
        on_loop = _are_small(texts)
        for portion in _portions(texts):
            for prepared in await self._prepare_portion(portion, split_sentences, on_loop, client):
                yield prepared

    async def prepare_one(
        self, text: str, *, split_sentences: bool, client: str = ""
    ) -> PreparedText:
        """One text in pieces.

        Raises:
            TextError: the text cannot be translated.
        """
        on_loop = _are_small([text])
        [prepared] = await self._prepare_portion([text], split_sentences, on_loop, client)
        if isinstance(prepared, TextError):
            raise prepared
        return prepared

    def prepare(self, text: str, *, split_sentences: bool) -> PreparedText:
        """The text in pieces.

        Raises:
            TextError: the text cannot be translated.
        """
        _check_characters(text)
        pieces: list[Piece] = []
        was_split = False
        cut = split_text if split_sentences else whole_text
        for segment in cut(text, self._language):
            ids = self._ids(segment.text)
            if len(ids) <= self._max_tokens:
                pieces.append(self._piece(segment, ids))
            else:
                pieces += self._split(segment)
                was_split = True
        return PreparedText(list(_merged(pieces)), was_split)

    async def encode_pairs(
        self, texts: Sequence[str], *, client: str = ""
    ) -> AsyncIterator[list[int] | TextError]:
        """Each text's token ids, in one piece and without EOS, or what is wrong with it.

        Texts in the source language and in the target language alternate.
        """
        sides = itertools.cycle((self._tokenizer, self._tokenizer.target))

        def encode(portion: Sequence[str]) -> list[list[int] | TextError]:
            return [_ids_or_error(text, side) for text, side in zip(portion, sides, strict=False)]

        on_loop = _are_small(texts)
        for portion in _portions(texts):
            work = functools.partial(encode, portion)
            for ids in work() if on_loop else await self._thread.run(work, client):
                yield ids

    async def _prepare_portion(
        self, texts: Sequence[str], split_sentences: bool, on_loop: bool, client: str
    ) -> list[PreparedText | TextError]:
        def prepare_each() -> list[PreparedText | TextError]:
            return [self._prepared_or_error(text, split_sentences) for text in texts]

        if on_loop:
            return prepare_each()
        return await self._thread.run(prepare_each, client)

    def _prepared_or_error(self, text: str, split_sentences: bool) -> PreparedText | TextError:
        try:
            return self.prepare(text, split_sentences=split_sentences)
        except TextError as exc:
            return exc

    def _split(self, segment: Segment) -> Iterator[Piece]:
        separator = segment.separator
        for part in split_long(segment.text, self._language, self._count_tokens, self._max_tokens):
            ids = self._ids(part.text)
            # One character can be more tokens than a very small model takes.
            yield self._piece(
                Segment(separator + part.separator, part.text),
                ids if len(ids) <= self._max_tokens else [],
            )
            separator = ""

    def _ids(self, text: str) -> list[int]:
        """The tokens of a sentence; none if it is copied."""
        return self._tokenizer.encode(text) if is_translatable(text, self._language) else []

    def _count_tokens(self, text: str) -> int:
        return len(self._tokenizer.encode(text))

    def _piece(self, segment: Segment, ids: list[int]) -> Piece:
        source_ids = (*ids, self._tokenizer.eos_id) if ids else None
        return Piece(segment.separator, segment.text, source_ids)


def _ids_or_error(text: str, tokenizer: Tokenizer) -> list[int] | TextError:
    try:
        _check_characters(text)
    except TextError as exc:
        return exc
    return tokenizer.encode(text)


def _check_characters(text: str) -> None:
    if "\0" in text:
        raise TextError(f"the character NUL at position {text.index(chr(0))} is not allowed")
    try:
        text.encode()
    except UnicodeEncodeError as exc:  # a lone surrogate
        raise TextError(f"the character at position {exc.start} is not Unicode") from exc


def _are_small(texts: Sequence[str]) -> bool:
    """Whether they make so little work that it can be done on the event loop."""
    size = sum(map(len, texts))
    if size <= _PORTION_CHARACTERS and all(map(str.isascii, texts)):
        return True
    return size <= _SMALL_CHARACTERS and (sum(map(normalised_length, texts)) <= _SMALL_CHARACTERS)


def _merged(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """The pieces, neighbours that are kept as they are made one: pages of dashes are no work."""
    for is_kept, group in itertools.groupby(pieces, lambda piece: piece.source_ids is None):
        if not is_kept:
            yield from group
            continue
        first, *others = group
        rest = [part for piece in others for part in (piece.separator, piece.text)]
        yield Piece(first.separator, "".join([first.text, *rest]), None) if rest else first


def _portions(texts: Sequence[str]) -> Iterator[list[str]]:
    portion: list[str] = []
    size = 0
    for text in texts:
        portion.append(text)
        size += len(text)
        if size >= _PORTION_CHARACTERS:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion
