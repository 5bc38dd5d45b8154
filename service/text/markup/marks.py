"""Elements that are glued to a word and stay so, with their content: footnote marks, indices, ruby.

The model would take a mark for a word, and lose it or put words in it. So a mark is an atom, which
is not part of the text, behind the word before it. A word with a mark in it is a formula (`H2O`),
which is copied. Links whose text is a hashtag, a mention or a URL are copied too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from service.text.markup.document import (
    Atom,
    Chars,
    Item,
    StartTag,
    TextRun,
    Verbatim,
)
from service.text.markup.tree import matching_ends

_SCRIPTS = {"sup", "sub"}
_READINGS = {"rt", "rp", "rtc"}
# Items and characters of an element that can be a mark.
_MAX_ITEMS, _MAX_CHARACTERS, _MAX_WORDS = 16, 32, 3
_MAX_URL = 2000
_NUMBERS = r"\d{1,4}[a-z]?(?:\s?[,;.–-]\s?\d{1,4}[a-z]?){0,4}"
# The reference to a note, in any element.
_REFERENCE = re.compile(
    rf"""
    {_NUMBERS} | [*†‡§¶#]{{1,3}}
    | \[(?:{_NUMBERS}|[A-Za-z]{{1,2}}|[ivx]{{1,5}}|[*†‡§¶#]|(?:note|n\.|fn\.?)\s?\d{{1,3}})\]
    | \((?:{_NUMBERS}|[A-Za-z]|[*†‡§¶#])\)
    """,
    re.VERBOSE,
)
_COPIED = re.compile(r"[#@]\w[\w.-]*+(?:@[\w-]++(?:\.[\w-]++)*+)?|https?://[^\s<>]++")
_OPENING = "([{<“„«‹‘‚\"'/@#$€£¥&-–—"
_WORD_END = re.compile(r"[^\W_]+\Z")
_WORD_START = re.compile(r"[^\W_]++")


@dataclass(frozen=True, slots=True)
class _Mark:
    """A mark, before it is known whether it stands within a word."""

    raw: str


def with_marks(run: TextRun) -> TextRun:
    """A run with marks and formulas as items; neighbours that are copied become one."""
    if all(isinstance(item, Chars) for item in run.items):
        return run
    return TextRun(list(_merged(_formulas(list(_Marks(run.items).found())))))


class _Marks:
    def __init__(self, items: Sequence[Item]) -> None:
        self._items = items
        self._ends = matching_ends(items)

    def found(self) -> Iterator[Item | _Mark]:
        """The items, with a mark in place of the items of each."""
        before, index = "", 0  # the text before an item, as much as counts
        while index < len(self._items):
            item, end = self._items[index], self._ends.get(index)
            made = None if end is None else self._replaced(index, end, before)
            if made is not None and end is not None:
                yield made
                if isinstance(made, Verbatim):
                    before = "x"
                index = end + 1
                continue
            yield item
            if isinstance(item, Chars):
                before = (before + item.text)[-2:]
            elif isinstance(item, Verbatim):
                before = "x"
            index += 1

    def _replaced(self, start: int, end: int, before: str) -> _Mark | Verbatim | None:
        """The item that replaces an element; None if it is an ordinary one."""
        inside = self._items[start + 1 : min(end, start + _MAX_ITEMS)]
        if len(inside) < end - start - 1 or any(isinstance(item, Verbatim) for item in inside):
            return None
        text = "".join(item.text for item in inside if isinstance(item, Chars))
        if not text.strip() or len(text) > _MAX_URL:
            return None
        raw = "".join(item.raw for item in self._items[start : end + 1])
        if _COPIED.fullmatch(text):
            return Verbatim(raw)
        names = {item.name for item in self._items[start : end + 1] if isinstance(item, StartTag)}
        opening = self._items[start]
        assert isinstance(opening, StartTag), "it has an end"
        if opening.name in _READINGS or (
            len(text) <= _MAX_CHARACTERS
            and self._is_mark(text, before, self._text_after(end), is_script=bool(names & _SCRIPTS))
        ):
            return _Mark(raw)
        return None

    @staticmethod
    def _is_mark(text: str, before: str, after: str, *, is_script: bool) -> bool:
        is_reference = _REFERENCE.fullmatch(text.strip()) is not None
        is_glued = before[-1:].strip() != "" and before[-1:] not in _OPENING
        if is_script:
            return is_reference or (is_glued and len(text.split()) <= _MAX_WORDS)
        if not is_reference or not is_glued or text != text.strip():
            return False
        if not text[0].isalnum():
            return True
        is_number = before[-1:].isdigit() or (before[-1] in ".,:" and before[-2:-1].isdigit())
        return not is_number and not after[:1].isdigit()

    def _text_after(self, index: int) -> str:
        item = self._items[index + 1] if index + 1 < len(self._items) else None
        return item.text if isinstance(item, Chars) else ""


def _formulas(items: Sequence[Item | _Mark]) -> Iterator[Item]:
    """The items, with a word that has a mark within it as one that is copied."""
    index = 0
    rest: Chars | None = None  # of the item before, which is text
    while index < len(items) or rest is not None:
        if rest is not None:
            item: Item | _Mark = rest
            rest = None
        else:
            item = items[index]
            index += 1
        if isinstance(item, _Mark):
            yield Atom(item.raw, is_mark=True)
            continue
        word = _last_word(item) if isinstance(item, Chars) else None
        if word is None or not isinstance(item, Chars):
            yield item
            continue
        pieces, end, rest = _formula(items, index)
        if not pieces:
            yield item
            continue
        if word.start():
            yield Chars(item.text[: word.start()], item.raw[: word.start()])
        yield Verbatim("".join([item.raw[word.start() :], *pieces]))
        index = end


def _formula(items: Sequence[Item | _Mark], start: int) -> tuple[list[str], int, Chars | None]:
    """The rest of a formula after its first word, its end, and the text after it.

    A formula has a mark with a word behind it; marks at its end belong to it.
    """
    pieces: list[str] = []
    index, is_formula = start, False
    while index < len(items) and isinstance(mark := items[index], _Mark):
        pieces.append(mark.raw)
        index += 1
        following = items[index] if index < len(items) else None
        if not isinstance(following, Chars):
            continue
        word = _WORD_START.match(following.text)
        if word is None or not _can_be_cut(following):
            break
        is_formula = True
        pieces.append(following.raw[: word.end()])
        index += 1
        if word.end() < len(following.text):
            rest = Chars(following.text[word.end() :], following.raw[word.end() :])
            return pieces, index, rest
    return (pieces, index, None) if is_formula else ([], start, None)


def _last_word(chars: Chars) -> re.Match[str] | None:
    if not _can_be_cut(chars) or not chars.text[-1:].isalnum():
        return None
    return _WORD_END.search(chars.text, max(0, len(chars.text) - _MAX_CHARACTERS))


def _can_be_cut(chars: Chars) -> bool:
    return len(chars.text) == len(chars.raw)


def _merged(items: Iterator[Item]) -> Iterator[Item]:
    """The items, with one placeholder for neighbours that are copied: the model keeps it better."""
    copied: list[str] = []
    for item in items:
        if isinstance(item, Verbatim):
            copied.append(item.raw)
            continue
        if copied:
            yield Verbatim("".join(copied))
            copied = []
        yield item
    if copied:
        yield Verbatim("".join(copied))
