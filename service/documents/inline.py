"""Tags inside of a sentence: converted to an HTML fragment, and back from its translation.

An element of a document with text in it becomes `<span id="3">` (`<sup id="3">` if it is raised or
lowered, as the marks of footnotes are), one without text `<img id="4">`, one that ends a line
`<br id="5">`, and one that stands for a word `<code id="6"></code>`, so that the translation of
markup knows each. The number says which element it was.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, cast

_TAG = re.compile(
    r'<(span|sup) id="([0-9]{1,9})">|<(img|br|code) id="([0-9]{1,9})"\s?/?>(?:</code>)?'
    r"|(</span>|</sup>)"
)

AtomKind = Literal["img", "br", "code"]
"""The element of HTML that stands for an element without text: br ends a line, and for code the
model reads a placeholder."""


@dataclass(frozen=True, slots=True)
class InlineText:
    """Some text."""

    text: str


@dataclass(frozen=True, slots=True)
class InlineStart:
    """The beginning of element `number`, which may stand above or below the line."""

    number: int
    is_script: bool = False


@dataclass(frozen=True, slots=True)
class InlineEnd:
    """The end of the last opened element."""


@dataclass(frozen=True, slots=True)
class InlineAtom:
    """Element `number`, which has no text to translate."""

    number: int
    kind: AtomKind = "img"


InlineItem = InlineText | InlineStart | InlineEnd | InlineAtom


def to_html(items: Iterable[InlineItem]) -> str:
    """A fragment of HTML for balanced items."""
    pieces: list[str] = []
    names: list[str] = []  # of open elements
    for item in items:
        match item:
            case InlineText(text):
                pieces.append(html.escape(text, quote=False))
            case InlineStart(number, is_script):
                names.append("sup" if is_script else "span")
                pieces.append(f'<{names[-1]} id="{number}">')
            case InlineAtom(number, kind):
                pieces.append(f'<{kind} id="{number}">{"</code>" if kind == "code" else ""}')
            case InlineEnd():
                pieces.append(f"</{names.pop()}>")
    return "".join(pieces)


def from_html(text: str, source: Sequence[InlineItem]) -> list[InlineItem]:
    """The items of a translated fragment: balanced, with each element of the source exactly once.

    A correct translation has these properties already. Missing elements are added at the end.

    Args:
        source: the items of the fragment before its translation.
    """
    before = to_html(source)  # white space that the translation adds around it is not kept
    space = before[: len(before) - len(before.lstrip())], before[len(before.rstrip()) :]
    text = text.strip().join(space)
    missing = {item.number: item for item in source if isinstance(item, InlineStart | InlineAtom)}
    items: list[InlineItem] = []
    depth = end = 0
    opened: list[bool] = []  # whether each open tag counts
    for tag in _TAG.finditer(text):
        if tag.start() > end:
            items.append(InlineText(html.unescape(text[end : tag.start()])))
        end = tag.end()
        if tag[5]:
            if opened and opened.pop():
                items.append(InlineEnd())
                depth -= 1
            continue
        item = (
            InlineStart(int(tag[2]), tag[1] == "sup")
            if tag[1]
            else InlineAtom(int(tag[4]), cast(AtomKind, tag[3]))
        )
        counts = missing.get(item.number) == item
        if counts:
            del missing[item.number]
            items.append(item)
        if tag[1]:
            opened.append(counts)
            depth += counts
    if end < len(text):
        items.append(InlineText(html.unescape(text[end:])))
    items += [InlineEnd()] * depth
    for item in missing.values():
        items += [item, InlineEnd()] if isinstance(item, InlineStart) else [item]
    return merged(items)


def merged(items: Iterable[InlineItem]) -> list[InlineItem]:
    """Merge neighbouring texts."""
    found: list[InlineItem] = []
    texts: list[str] = []
    for item in items:
        if isinstance(item, InlineText):
            texts.append(item.text)
            continue
        if texts:
            found.append(InlineText("".join(texts)))
            texts = []
        found.append(item)
    return [*found, InlineText("".join(texts))] if texts else found
