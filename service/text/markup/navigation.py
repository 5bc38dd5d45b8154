"""Controls of a page and the links of a menu: each is a text by itself.

Read as one sentence, neighbours would change places: the button "Save" would say "Cancel".
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from service.text.markup.document import (
    Atom,
    Block,
    Chars,
    EndTag,
    Item,
    StartTag,
    TextRun,
    Verbatim,
)

_LINKS = ("a", "[")  # of HTML and Markdown
_BUTTONS = ("button", "label")
_CONTROLS = frozenset((*_LINKS, *_BUTTONS))
# Signs between the links of a menu or a path. A comma is none: "dogs, cats" are a list in a text.
_SIGNS = frozenset("|¦·•∙‣›»>/\\–—-→~")
_HYPHENS = frozenset("–—-")
_INPUT = re.compile(r"<input\b", re.IGNORECASE)
_CHOICE = re.compile(r"<input\b[^>]*\btype\s*=\s*[\"']?(?:radio|checkbox)\b", re.IGNORECASE)

Parts = list[Block | TextRun]
Place = tuple[int, int]


def parts_of(items: Sequence[Item]) -> Parts:
    """A run in parts: the run as it is, or its controls and links, with blocks between them."""
    places = list(_controls(items))
    if not _is_menu(items, places):
        places = _neighbours(items, places)
    parts: Parts = []
    start = 0
    for begin, end in (*places, (len(items), len(items))):
        for some in (items[start:begin], items[begin:end]):
            parts += map(_part, _between_inputs(some))
        start = end
    return parts


def _part(items: Sequence[Item]) -> Block | TextRun:
    run = TextRun(items)
    return Block(run.raw) if _is_separator(items) else run


def _between_inputs(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Some items, cut at their inputs if these are choices, or several; no part is empty."""
    places = [index for index, item in enumerate(items) if _is_input(item)]
    if len(places) < 2 and not any(_CHOICE.match(items[index].raw) for index in places):
        places = []
    start = 0
    for index in (*places, len(items)):
        if start < index:
            yield items[start:index]
        if index < len(items):
            yield items[index : index + 1]
        start = index + 1


def _is_input(item: Item) -> bool:
    return isinstance(item, Atom) and _INPUT.match(item.raw) is not None


def _controls(items: Sequence[Item]) -> Iterator[Place]:
    """The first item of each control and link with words, and the one after its end."""
    depth = begin = 0
    for index, item in enumerate(items):
        if isinstance(item, StartTag) and item.name in _CONTROLS:
            if not depth:
                begin = index
            depth += 1
        elif isinstance(item, EndTag) and item.name in _CONTROLS and depth:
            depth -= 1
            if not depth and any(map(str.isalpha, _text(items[begin : index + 1]))):
                yield begin, index + 1


def _is_menu(items: Sequence[Item], places: Sequence[Place]) -> bool:
    """Whether a run has nothing but controls and links, which don't read like one sentence."""
    if len(places) < 2:
        return False
    between = [items[end:begin] for (_, end), (begin, _) in itertools.pairwise(places)]
    outside = [items[: places[0][0]], *between, items[places[-1][1] :]]
    if not all(map(_is_separator, outside)):
        return False
    names = [_text(items[begin:end]).strip() for begin, end in places]
    if all(_is_button(items, place) for place in places):
        return True
    for separator, name in zip(map(_text, between), names[1:], strict=True):
        # "Baden-Württemberg"
        if separator and set(separator) <= _HYPHENS:
            return False
        # "[German] [physicist]"; where letters have no case, words need no space between them.
        if separator.isspace() and name[:1].islower():
            return False
        if not separator and name[:1].lower() == name[:1].upper():
            return False
    return True


def _neighbours(items: Sequence[Item], places: Sequence[Place]) -> list[Place]:
    """The buttons and labels beside others of them: "Sure? [Delete] [Keep]"."""
    buttons = [place for place in places if _is_button(items, place)]
    found: dict[Place, None] = {}
    for one, other in itertools.pairwise(buttons):
        if _is_separator(items[one[1] : other[0]]):
            found |= {one: None, other: None}
    return list(found)


def _is_button(items: Sequence[Item], place: Place) -> bool:
    opening = items[place[0]]
    return isinstance(opening, StartTag) and opening.name in _BUTTONS


def _is_separator(items: Sequence[Item]) -> bool:
    """Whether items have no text but space and signs."""
    is_copied = any(isinstance(item, Verbatim) for item in items)
    return not is_copied and not set("".join(_text(items).split())) - _SIGNS


def _text(items: Sequence[Item]) -> str:
    return "".join(item.text for item in items if isinstance(item, Chars))
