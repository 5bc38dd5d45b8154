"""From a text to the sequences that the engine translates."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from model.tokenizer import Tokenizer
from service.segmentation import Segment, split_long, split_text, whole_text

# Segmenting and tokenizing take about a millisecond for so many characters. Less is done at once
# on the event loop, where a hop to a thread would cost more than it saves; more goes to a thread
# in portions of this size, so that a call of megabytes neither holds up the loop nor the calls
# that come after it, and its first sentences are in the engine before its last ones are cut.
_PORTION_CHARACTERS = 4000


class TextError(ValueError):
    """A text that cannot be translated; the message says why."""


@dataclass(frozen=True)
class Piece:
    """What becomes one part of the answer.

    Attributes:
        separator: white space to put before it.
        text: as the client wrote it.
        source_ids: for the engine, EOS included. None if the text is kept as it is: white space,
            and what has neither letters nor digits, of which a model can only make something up.
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
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="prepare")

    async def prepare_all(
        self, texts: Sequence[str], *, split_sentences: bool
    ) -> AsyncIterator[PreparedText | TextError]:
        """Each text in pieces, in order, or what is wrong with it."""
        on_loop = sum(map(len, texts)) <= _PORTION_CHARACTERS
        for portion in _portions(texts):
            for prepared in await self._prepare_portion(portion, split_sentences, on_loop):
                yield prepared

    async def prepare_one(self, text: str, *, split_sentences: bool) -> PreparedText:
        """One text in pieces.

        Raises:
            TextError: the text cannot be translated.
        """
        on_loop = len(text) <= _PORTION_CHARACTERS
        [prepared] = await self._prepare_portion([text], split_sentences, on_loop)
        if isinstance(prepared, TextError):
            raise prepared
        return prepared

    def prepare(self, text: str, *, split_sentences: bool) -> PreparedText:
        """The text in pieces.

        Raises:
            TextError: the text cannot be translated.
        """
        if "\0" in text:
            raise TextError(f"the character NUL at position {text.index(chr(0))} is not allowed")
        pieces: list[Piece] = []
        was_split = False
        try:
            segments = split_text(text, self._language) if split_sentences else whole_text(text)
            for segment in segments:
                ids = self._tokenizer.encode(segment.text) if _has_words(segment.text) else []
                if len(ids) <= self._max_tokens:
                    pieces.append(self._piece(segment, ids))
                else:
                    pieces += self._split(segment)
                    was_split = True
        except UnicodeEncodeError as exc:  # a lone surrogate
            raise TextError(f"the character at position {exc.start} is not Unicode") from exc
        return PreparedText(pieces, was_split)

    async def _prepare_portion(
        self, texts: Sequence[str], split_sentences: bool, on_loop: bool
    ) -> list[PreparedText | TextError]:
        def prepare_each() -> list[PreparedText | TextError]:
            return [self._prepared_or_error(text, split_sentences) for text in texts]

        if on_loop:
            return prepare_each()
        return await asyncio.get_running_loop().run_in_executor(self._executor, prepare_each)

    def _prepared_or_error(self, text: str, split_sentences: bool) -> PreparedText | TextError:
        try:
            return self.prepare(text, split_sentences=split_sentences)
        except TextError as exc:
            return exc

    def _split(self, segment: Segment) -> Iterator[Piece]:
        separator = segment.separator
        for part in split_long(segment.text, self._language, self._count_tokens, self._max_tokens):
            ids = self._tokenizer.encode(part.text)
            # One character can be more tokens than a very small model takes.
            yield self._piece(
                Segment(separator + part.separator, part.text),
                ids if len(ids) <= self._max_tokens else [],
            )
            separator = ""

    def _count_tokens(self, text: str) -> int:
        return len(self._tokenizer.encode(text))

    def _piece(self, segment: Segment, ids: list[int]) -> Piece:
        source_ids = (*ids, self._tokenizer.eos_id) if ids else None
        return Piece(segment.separator, segment.text, source_ids)


def _has_words(text: str) -> bool:
    return any(character.isalnum() for character in text)


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
