"""Finds the word that each token of a text belongs to."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from model.bundle.spans import Span

# Scripts that are written without spaces between words, as the names of their characters begin.
_UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")


def word_indices(text: str, spans: Sequence[Span]) -> list[int]:
    """The number of each token's word, counted from 0; the tokens of a word are neighbours.

    White space separates words. Punctuation at the ends of a word is a word of its own; within a
    word (don't, 3.5) it is part of it. In a script without spaces, each token is a word. A token
    without characters (a space, a byte of a character) belongs to the next token's word.

    Args:
        text: the tokenized text.
        spans: spans of its tokens, in order, without end-of-sentence.
    """
    words: list[int] = []
    number = -1
    for first, last in _runs(text, spans):
        for begins in _begins(text, spans[first:last]):
            number += begins
            words.append(number)
    return words


def _runs(text: str, spans: Sequence[Span]) -> list[tuple[int, int]]:
    """The runs of tokens between white space, as first index and one past the last."""
    if not spans:
        return []
    starts, end = [0], spans[0].end
    empty_since: int | None = None
    for index, span in enumerate(spans[1:], 1):
        if span.start == span.end:
            empty_since = index if empty_since is None else empty_since
            continue
        if any(map(str.isspace, text[end : span.start])) and end > 0:
            starts.append(index if empty_since is None else empty_since)
        end, empty_since = span.end, None
    return list(zip(starts, [*starts[1:], len(spans)], strict=True))


def _begins(text: str, spans: Sequence[Span]) -> list[bool]:
    """Whether each token of a run begins a word."""
    pieces = [text[span.start : span.end] for span in spans]
    is_mark = [bool(piece) and all(map(_is_punctuation, piece)) for piece in pieces]
    is_other = [bool(piece) and not mark for piece, mark in zip(pieces, is_mark, strict=True)]
    if not any(is_other):  # nothing but punctuation
        return [index == 0 for index in range(len(spans))]
    first = is_other.index(True)
    last = len(spans) - 1 - is_other[::-1].index(True)
    begins = [False] * len(spans)
    begins[0] = True
    begins[first] = True
    if any(pieces[last + 1 :]):
        begins[last + 1] = True
    for index in range(first + 1, last + 1):
        begins[index] = bool(pieces[index]) and _is_unspaced(pieces[index], pieces[index - 1])
    # A token without characters belongs to the next token's word.
    for index in range(len(spans) - 1, 0, -1):
        if begins[index] and not pieces[index - 1]:
            begins[index - 1], begins[index] = True, False
    return begins


def _is_punctuation(character: str) -> bool:
    return unicodedata.category(character)[0] in "PS"


def _is_unspaced(piece: str, before: str) -> bool:
    """Whether a token begins a word because its script, or the previous one, has no spaces."""
    return _has_no_spaces(piece[0]) or (bool(before) and _has_no_spaces(before[-1]))


def _has_no_spaces(character: str) -> bool:
    return unicodedata.name(character, "").startswith(_UNSPACED)
