"""Segments and tokenizes texts for the engine."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from model.bundle.tokenizer import Tokenizer
from service.common.fairness import in_thread, in_turn
from service.common.portions import portions
from service.translation.options import NORMALISED, TranslatorLimits, normalised_length
from service.translation.segmentation import SourceSentence, split_long, split_text, whole_text
from service.translation.verbatim import is_translatable

# Segmenting and tokenizing this many ASCII characters takes a millisecond, or five if each is a
# token. Texts are prepared in portions of this size on the event loop, and longer texts one by one
# in a thread. So a call of megabytes delays neither the event loop nor later calls, and its first
# sentences are in the engine before its last ones are segmented.
_PORTION_CHARACTERS = 2000
# The same for texts with other characters, each of which can be several tokens; counted after
# normalisation, which can turn one character into 18 (U+FDFA).
_SMALL_CHARACTERS = 1000
FEW_CHARACTERS = 500
"""Most characters of a request that does not wait for its turn: a sentence or two, as in most."""
FEW_TEXTS = 64
"""Most texts of such a request, and of a portion of any: empty texts take time too."""

_LETTER = re.compile(r"[^\W\d_]")
_LOOKED_AT = 500

T = TypeVar("T")


class TextError(ValueError):
    """The text can't be translated; the message says why."""


@dataclass(frozen=True)
class PreparedText:
    """A text in sentences.

    Attributes:
        sentences: its sentences, and copied text, in order.
        was_split: whether a sentence was too long for the model and had to be split.
        num_hidden: number of language tokens at the beginning of each sentence, which don't count.
    """

    sentences: Sequence[SourceSentence]
    was_split: bool
    num_hidden: int = 0

    @property
    def opening(self) -> SourceSentence | None:
        """The first sentence that is translated; None if all are copied."""
        return next((sentence for sentence in self.sentences if sentence.source_ids), None)

    @property
    def num_source_tokens(self) -> int:
        """Number of tokens of the text, without EOS."""
        num_other = self.num_hidden + 1
        return sum(len(each.source_ids) - num_other for each in self.sentences if each.source_ids)


class TextPreparer:
    """Segments and tokenizes texts.

    Args:
        tokenizer: the model's tokenizer.
        language: BCP-47 code of the texts.
        max_source_positions: longest source of the model in tokens, EOS included.
    """

    def __init__(self, tokenizer: Tokenizer, language: str, max_source_positions: int) -> None:
        self._tokenizer = tokenizer
        self._language = language
        self._max_tokens = max_source_positions - 1

    async def check_lengths(
        self,
        limits: TranslatorLimits,
        field: str,
        names: Sequence[str],
        texts: Sequence[str],
    ) -> None:
        """Check the lengths of all texts of a request, before and after normalisation.

        Args:
            limits: limits of requests.
            field: name of the field with all texts.
            names: name of each text's field.
            texts: texts of the request.

        Raises:
            InvalidArgumentError: a limit is exceeded; names the field and the limit.
        """
        limits.check_lengths(field, names, [len(text) for text in texts])
        limits.check_lengths(field, names, await normalised_lengths(texts), NORMALISED)

    def prepare_all(
        self, texts: Sequence[str], *, split_sentences: bool
    ) -> AsyncIterator[PreparedText | TextError]:
        """Yield each text in sentences, in order, or its error."""
        prepare = functools.partial(self.prepare, split_sentences=split_sentences)
        return self._in_portions(prepare, texts)

    async def prepare_one(self, text: str, *, split_sentences: bool) -> PreparedText:
        """Divide one text into sentences, on the event loop or in a thread.

        Raises:
            TextError: the text can't be translated.
        """
        texts = self.prepare_all([text], split_sentences=split_sentences)
        [prepared] = [prepared async for prepared in texts]
        if isinstance(prepared, TextError):
            raise prepared
        return prepared

    def prepare(self, text: str, *, split_sentences: bool) -> PreparedText:
        """Divide a text into sentences.

        Raises:
            TextError: the text can't be translated.
        """
        _check_characters(text)
        sentences: list[SourceSentence] = []
        was_split = False
        cut = split_text if split_sentences else whole_text
        for sentence in cut(text, self._language):
            ids = self._ids(sentence.text)
            if len(ids) <= self._max_tokens:
                sentences.append(self._sentence(sentence.separator, sentence.text, ids))
            else:
                sentences += self._split(sentence.separator, sentence.text)
                was_split = True
        return PreparedText(list(_merged(sentences)), was_split, len(self._tokenizer.prefix_ids))

    def prepare_sentence(self, separator: str, text: str) -> PreparedText:
        """Prepare one sentence, in several parts if it is too long for the model.

        Args:
            separator: white space and line markers before it.
            text: sentence without NUL.
        """
        ids = self._ids(text)
        if len(ids) <= self._max_tokens:
            return PreparedText([self._sentence(separator, text, ids)], False)
        return PreparedText(list(self._split(separator, text)), True)

    def encode_pairs(self, texts: Sequence[str]) -> AsyncIterator[list[int] | TextError]:
        """Yield each text's token ids, as one sequence without EOS, or its error.

        Texts in the source language and in the target language alternate.
        """
        sides = itertools.cycle((self._tokenizer, self._tokenizer.target))

        def encode(text: str) -> list[int]:
            tokenizer = next(sides)
            _check_characters(text)
            return tokenizer.encode(text)

        return self._in_portions(encode, texts)

    async def _in_portions(
        self, work: Callable[[str], T], texts: Sequence[str]
    ) -> AsyncIterator[T | TextError]:
        """Yield the result or error of `work` for each text, in portions of some milliseconds."""

        def run(portion: Sequence[str]) -> list[T | TextError]:
            results: list[T | TextError] = []
            for text in portion:
                try:
                    results.append(work(text))
                except TextError as exc:
                    results.append(exc)
            return results

        is_short = are_few(texts) and _are_small(texts)
        for portion in portions(texts, _PORTION_CHARACTERS, count=FEW_TEXTS):
            run_portion = functools.partial(run, portion)
            if is_short:
                results = run_portion()
            else:
                results = await in_turn(run_portion, is_short=_are_small(portion))
            for result in results:
                yield result

    def _split(self, separator: str, text: str) -> Iterator[SourceSentence]:
        for part in split_long(text, self._language, self._count_tokens, self._max_tokens):
            ids = self._ids(part.text)
            # A single character can have more tokens than a very small model accepts.
            yield self._sentence(
                separator + part.separator,
                part.text,
                ids if len(ids) <= self._max_tokens else [],
            )
            separator = ""

    def _ids(self, text: str) -> list[int]:
        """The token ids of a sentence; empty if it is copied."""
        return self._tokenizer.encode(text) if is_translatable(text, self._language) else []

    def _count_tokens(self, text: str) -> int:
        return len(self._tokenizer.encode(text))

    def _sentence(self, separator: str, text: str, ids: list[int]) -> SourceSentence:
        source_ids = (*ids, self._tokenizer.eos_id) if ids else None
        return SourceSentence(separator, text, source_ids)


async def normalised_lengths(texts: Sequence[str]) -> list[int]:
    """The `normalised_length` of each text."""

    def measure() -> list[int]:
        return [normalised_length(text) for text in texts]

    is_quick = all(map(str.isascii, texts)) or _are_small(texts)
    return measure() if is_quick else await in_thread(measure)


def are_few(texts: Sequence[str]) -> bool:
    """Whether a request does not wait for its turn."""
    return len(texts) <= FEW_TEXTS and sum(map(len, texts)) <= FEW_CHARACTERS


def are_long(texts: Sequence[str]) -> bool:
    """Whether texts take so long to prepare that the engine is asked for room first.

    Never true of texts without letters, which are copied even if the engine is full.
    """
    if sum(map(len, texts)) <= FEW_CHARACTERS:
        return False
    return any(_LETTER.search(text, 0, _LOOKED_AT) for text in texts)


def _check_characters(text: str) -> None:
    if "\0" in text:
        raise TextError(f"the character NUL at position {text.index(chr(0))} is not allowed")
    try:
        text.encode()
    except UnicodeEncodeError as exc:  # a lone surrogate
        raise TextError(f"the character at position {exc.start} is not Unicode") from exc


def _are_small(texts: Sequence[str]) -> bool:
    """Whether the texts are short enough to be prepared on the event loop."""
    size = sum(map(len, texts))
    if size <= _PORTION_CHARACTERS and all(map(str.isascii, texts)):
        return True
    return size <= _SMALL_CHARACTERS and (sum(map(normalised_length, texts)) <= _SMALL_CHARACTERS)


def _merged(sentences: Iterable[SourceSentence]) -> Iterator[SourceSentence]:
    """Merge neighbouring copied sentences, so that pages of dashes cost nothing."""
    for is_copied, group in itertools.groupby(sentences, lambda each: each.source_ids is None):
        if not is_copied:
            yield from group
            continue
        first, *others = group
        rest = [part for sentence in others for part in (sentence.separator, sentence.text)]
        yield SourceSentence(first.separator, "".join([first.text, *rest]), None) if rest else first
