"""Links beside each other, as in a menu of a page: each is a text by itself."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from service.text.markup.document import (
    Block,
    Chars,
    EndTag,
    Item,
    StartTag,
    TextRun,
    Verbatim,
)

_LINKS = ("a", "[")  # of HTML and Markdown
# Signs between the links of a menu or a path. A comma is none: "dogs, cats" are a list in a text.
_SIGNS = frozenset("|¦·•∙‣›»>/\\–—-→~")


def menu_parts(items: Sequence[Item]) -> list[Block | TextRun] | None:
    """The links of a run as runs of their own, and what is between them as blocks.

    None if the run is no menu: if there is text outside of its links, or if the links read like
    parts of a sentence ("[German] [physicist]").
    """
    links = list(_links(items))
    if len(links) < 2 or not all(map(_has_words, (items[start:end] for start, end in links))):
        return None
    between = [(0, links[0][0])]
    between += [(end, start) for (_, end), (start, _) in itertools.pairwise(links)]
    between.append((links[-1][1], len(items)))
    texts = [_text(items[start:end]) for start, end in between]
    if any(set("".join(text.split())) - _SIGNS for text in texts):
        return None
    if any(isinstance(item, Verbatim) for start, end in between for item in items[start:end]):
        return None
    is_spaced = any(text.isspace() for text in texts[1:-1])
    names = (_text(items[start:end]).lstrip() for start, end in links[1:])
    if is_spaced and any(name[:1].islower() for name in names):
        return None
    parts: list[Block | TextRun] = []
    for index, (start, end) in enumerate(between):
        if raw := "".join(item.raw for item in items[start:end]):
            parts.append(Block(raw))
        if index < len(links):
            parts.append(TextRun(items[slice(*links[index])]))
    return parts


def _links(items: Sequence[Item]) -> Iterator[tuple[int, int]]:
    """The first item of each link, and the one after its end."""
    begin = -1
    for index, item in enumerate(items):
        if isinstance(item, StartTag) and item.name in _LINKS and begin < 0:
            begin = index
        elif isinstance(item, EndTag) and item.name in _LINKS and begin >= 0:
            yield begin, index + 1
            begin = -1


def _text(items: Sequence[Item]) -> str:
    return "".join(item.text for item in items if isinstance(item, Chars))


def _has_words(items: Sequence[Item]) -> bool:
    return any(map(str.isalpha, _text(items)))
