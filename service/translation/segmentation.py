"""Splits texts into sentences, and white space and line markers, which are copied.

The library sentencex (Wikimedia, MIT) finds sentences: it knows the abbreviations of about 300
languages, never changes the text, needs no data or models, and has wheels for every supported
Python.
"""

from __future__ import annotations

import logging
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import sentencex

from model.bundle.languages import primary_subtag
from service.translation.line_markers import opening_length
from service.translation.verbatim import is_translatable

logger = logging.getLogger(__name__)

# Lines are split in windows of this many characters: for a line with an unclosed quotation mark,
# sentencex 1.0 takes quadratic time in its length.
_WINDOW = 4096
# Replaces each space by one character, so that positions stay the same: sentencex 1.0.32 panics at
# a space of several bytes between a capital letter and a full stop.
_PLAIN_SPACES = {ord(c): " " for c in map(chr, range(0x3001)) if c.isspace()}
_ORDINAL = re.compile(r"\b\d{1,2}\.\s+\Z")
_GERMAN_MONTH = re.compile(r"(?:Jan|Feb|Mär|Apr|Mai|Jun|Jul|Aug|Sep|Okt|Nov|Dez)[a-zäö]*[,.;:!?)]")

# No pattern begins with a repetition: they take linear time on any input.
# A tab divides cells as a line break does lines.
_LINE_BREAK = re.compile(r"([\t\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+)")
_CLAUSE_END = re.compile(r"[,;:،؛…]\s|[、，；：]|\s[–—-]\s")
_WORD_END = re.compile(r"\s+")

_JOINER = "\u200d"
_EMOJI_MODIFIERS = range(0x1F3FB, 0x1F400)


@dataclass(frozen=True, slots=True)
class SourceSentence:
    """A sentence of a text, part of a long sentence, or text that is copied.

    Attributes:
        separator: text copied before it: white space, and the markers of its line.
        text: text to translate, without white space around it. Text that is copied may contain
            white space and line breaks. Empty in the last sentence of a text that ends in white
            space or a marker, which are that sentence's separator.
        source_ids: token ids for the engine, EOS included. None before it is tokenized, and for
            text that is copied: white space, and sentences with nothing to translate
            (`service.translation.verbatim`).
    """

    separator: str
    text: str
    source_ids: tuple[int, ...] | None = None


def split_text(text: str, language: str) -> list[SourceSentence]:
    """All sentences of a text, as a list."""
    return list(sentences(text, language))


def sentences(text: str, language: str) -> Iterator[SourceSentence]:
    """Yield the sentences of a text. Separators and texts, joined, are exactly the text.

    A line break always ends a sentence: lists, addresses and poems have no full stops. So does a
    tab, between the cells of a table. The separator includes the markers of the line
    (`service.translation.line_markers`).

    Args:
        text: any text.
        language: BCP-47 code. Only its language subtag counts; languages unknown to sentencex are
            split like English.
    """
    separator = ""
    for line, line_break in _lines(text):
        start = opening_length(line, language)
        rest = separator + line[:start]
        for part in _sentences_of_line(line[start:], language):
            found, rest = _trimmed([part], rest)
            yield from found
        separator = rest + line_break
    yield from _ended([], separator)


def whole_text(text: str, language: str) -> list[SourceSentence]:
    """The text as one sentence."""
    start = opening_length(text, language)
    return _ended(*_trimmed([text[start:]], text[:start]))


def split_long(
    text: str, language: str, count_tokens: Callable[[str], int], max_tokens: int
) -> list[SourceSentence]:
    """Split a text into parts of at most `max_tokens`, at the best positions.

    Ends of sentences are best, then ends of clauses, then white space, then the middle of a word.
    Separators and texts, joined, are exactly the text.

    Args:
        text: any text, even if it fits.
        language: BCP-47 code of the text.
        count_tokens: counts the tokens of a text.
        max_tokens: most tokens of a part. A single character with more tokens is not split.
    """

    def divided(part: str) -> list[str]:
        return list(_sentences(part, language))

    cutters = [divided, _clauses, _words]
    return _ended(*_trimmed(_cut(text, cutters, count_tokens, max_tokens)))


def _trimmed(parts: Iterable[str], separator: str = "") -> tuple[list[SourceSentence], str]:
    """Move white space around parts into separators.

    Args:
        parts: parts of a text.
        separator: separator before the first part.

    Returns:
        The sentences, and the remaining separator after the last one.
    """
    found = []
    for part in parts:
        body = part.strip()
        if not body:
            separator += part
            continue
        start = len(part) - len(part.lstrip())
        found.append(SourceSentence(separator + part[:start], body))
        separator = part[start + len(body) :]
    return found, separator


def _ended(sentences: list[SourceSentence], separator: str) -> list[SourceSentence]:
    return [*sentences, SourceSentence(separator, "")] if separator else sentences


# --- sentences -----------------------------------------------------------------------------------


def _lines(text: str) -> Iterable[tuple[str, str]]:
    """The lines and cells of a text, each with the breaks after it; "" after the last one."""
    parts = [*_LINE_BREAK.split(text), ""]
    return zip(parts[::2], parts[1::2], strict=True)


def _sentences(text: str, language: str) -> Iterator[str]:
    for line, line_break in _lines(text):
        yield from _sentences_of_line(line, language)
        yield line_break


def _sentences_of_line(line: str, language: str) -> Iterator[str]:
    """Split a line in windows. The last sentence of a window is split again in the next one."""
    if not is_translatable(line, language):
        yield line  # nothing to translate
        return
    plain = line.translate(_PLAIN_SPACES)
    subtag = primary_subtag(language)
    start = 0  # start of the current sentence
    window_start = 0
    while window_start < len(line):
        window_stop = window_start + _WINDOW
        end = window_start
        for length in _sentence_lengths(plain[window_start:window_stop], subtag):
            end += length
            if subtag == "de" and _is_within_date(plain, end):
                continue
            if end < window_stop and end < len(line):
                yield line[start:end]
                start = end
        # Advance by at least half a window, for linear time.
        window_start = max(start, window_start + _WINDOW // 2)
        if window_stop >= len(line):
            break
    if start < len(line):
        yield line[start:]


def _is_within_date(text: str, end: int) -> bool:
    """Whether a German date is cut, as sentencex does before a comma: am 30. Mai, ..."""
    is_ordinal = _ORDINAL.search(text, max(0, end - 8), end) is not None
    return is_ordinal and _GERMAN_MONTH.match(text, end) is not None


def _sentence_lengths(text: str, language: str) -> list[int]:
    try:
        return [len(sentence) for sentence in sentencex.segment(language, text)]
    except BaseException as exc:
        # A panic of the Rust library is a BaseException without a public name.
        if type(exc).__name__ != "PanicException":
            raise
        logger.warning("sentencex cannot cut a line of %d characters: %s", len(text), exc)
        return [len(text)]


# --- parts of long sentences ---------------------------------------------------------------------


def _clauses(text: str) -> list[str]:
    return _cut_after(_CLAUSE_END, text)


def _words(text: str) -> list[str]:
    return _cut_after(_WORD_END, text)


def _cut_after(pattern: re.Pattern[str], text: str) -> list[str]:
    ends = [match.end() for match in pattern.finditer(text)]
    return [text[i:j] for i, j in zip([0, *ends], [*ends, len(text)], strict=True) if i < j]


def _cut(
    text: str,
    cutters: list[Callable[[str], list[str]]],
    count_tokens: Callable[[str], int],
    max_tokens: int,
) -> Iterator[str]:
    """Yield parts of `text` that fit, cut by the first cutter that is fine enough.

    Small parts are joined again into portions of about equal size, as far as they fit, because a
    short portion has little context for its translation.
    """
    num_tokens = count_tokens(text)
    if num_tokens <= max_tokens:
        yield text
        return
    if not cutters:
        yield from _cut_characters(text, count_tokens, max_tokens)
        return
    goal = num_tokens / math.ceil(num_tokens / max_tokens)
    portion, size = "", 0
    for part in cutters[0](text):
        part_size = count_tokens(part)
        if portion and (size >= goal or size + part_size > max_tokens):
            yield from _cut(portion, cutters[1:], count_tokens, max_tokens)
            portion, size = "", 0
        portion += part
        size += part_size
    yield from _cut(portion, cutters[1:], count_tokens, max_tokens)


def _cut_characters(
    text: str, count_tokens: Callable[[str], int], max_tokens: int
) -> Iterator[str]:
    start = 0
    while start < len(text):
        # A character usually has at most one token; bytes have one each.
        stop = min(len(text), start + max_tokens)
        while stop > start + 1 and count_tokens(text[start:stop]) > max_tokens:
            stop = start + (stop - start) // 2
        stop = _before_mark(text, start, stop)
        yield text[start:stop]
        start = stop


def _before_mark(text: str, start: int, stop: int) -> int:
    """The last position up to `stop` that does not separate a character from its marks."""
    for position in range(stop, max(start, stop - 16), -1):
        if position == len(text) or not _belongs_to_previous(text, position):
            return position
    return stop


def _belongs_to_previous(text: str, position: int) -> bool:
    character = text[position]
    return (
        unicodedata.category(character).startswith("M")  # accents, vowel signs, emoji variants
        or character == _JOINER
        or text[position - 1] == _JOINER
        or ord(character) in _EMOJI_MODIFIERS
    )
