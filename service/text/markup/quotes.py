"""Quotation marks beside elements: they stay outside or inside, as they were."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from model.bundle.spans import Span
from service.text.markup.tree import Node, RunTree
from service.text.things.quotes import quoted_pairs, quotes_of

if TYPE_CHECKING:
    from service.text.markup.units import Unit

QUOTES = "\"“”„«»‹›'‘’‚"
# Not an apostrophe within a word.
_QUOTE = re.compile(rf"(?<!\w)[{QUOTES}]|[{QUOTES}](?!\w)")
# Between a quotation mark and the word that it belongs to.
_BETWEEN = 3


class Quotes:
    """The quotation marks of a run's text."""

    def __init__(self, tree: RunTree) -> None:
        self._tree = tree
        self._places = [match.start() for match in _QUOTE.finditer(tree.text)]

    def owners(
        self, marks: Sequence[int], target: str, source_of: Callable[[int], Span | None]
    ) -> list[Node | None]:
        """The node that each quotation mark of the translation belongs to; None if unknown.

        Args:
            marks: their places in the translation.
            target: the translation.
            source_of: where the word at a place of the translation comes from.
        """
        if not self._places:
            return [None] * len(marks)
        nodes = [self._tree.owner(place, place + 1) for place in self._places]
        of_place = dict(zip(self._places, nodes, strict=True))
        is_one = all(node is nodes[0] for node in nodes)
        found: list[Node | None] = []
        for number, mark in enumerate(marks):
            node = nodes[0] if is_one else None
            if node is None:
                node = of_place.get(self._place_of(mark, target, source_of))
            if node is None and len(marks) == len(nodes):
                node = nodes[number]
            found.append(node)
        return found

    def _place_of(self, mark: int, target: str, source_of: Callable[[int], Span | None]) -> int:
        """The mark of the source beside the same word; -1 if there is none."""
        opens = (not mark or not target[mark - 1].isalnum()) and target[
            mark + 1 : mark + 2
        ].isalnum()
        source = source_of(mark + 1 if opens else mark - 1)
        if source is None:
            return -1
        text = self._tree.text
        places = range(source.start - 1, max(-1, source.start - 1 - _BETWEEN), -1)
        if not opens:
            places = range(source.end, min(len(text), source.end + _BETWEEN))
        for place in places:
            if text[place].isalnum():
                break
            if text[place] in QUOTES:
                return place
        return -1


def keep_between(tree: RunTree, target: str, units: Sequence[Unit]) -> None:
    """Keep elements between the quotation marks that they stand between, whatever the links say.

    Args:
        tree: the tree of a run.
        target: the translation of the run's text.
        units: the words of the translation, whose nodes may change.
    """
    spans, places = _quoted(tree.text), _quoted(target)
    if not spans or len(spans) != len(places):
        return
    votes = [Counter[int]() for _ in places]
    for unit in units:
        place = _index(places, unit.span)
        found = {_index(spans, source) for source in unit.sources} - {None}
        if place is not None and len(found) == 1:
            votes[place].update(index for index in found if index is not None)
    best = [vote.most_common(1)[0][0] if vote else -1 for vote in votes]
    if sorted(best) != list(range(len(spans))):
        best = list(range(len(spans)))
    for unit in units:
        place = _index(places, unit.span)
        own = None if place is None else best[place]
        node = unit.node
        while node is not None and node.parent is not None:
            if _index(spans, Span(node.start, node.end)) in (own, None):
                break
            node = node.parent
        if own is not None:
            inside = tree.owner(*spans[own]).enclosing
            while inside.start > spans[own].start or inside.end < spans[own].end:
                assert inside.parent is not None, "a run contains all of its text"
                inside = inside.parent
            if node is None or not inside.contains(node):
                node = inside if inside.parent is not None else node
        unit.node = node


def _quoted(text: str) -> list[Span]:
    pairs = quoted_pairs(quotes_of(text))
    return [Span(opening.span.end, closing.span.start) for opening, closing in pairs]


def _index(spans: Sequence[Span], part: Span) -> int | None:
    """The index of the one of some spans that contains a part."""
    index = bisect_right(spans, part.start, key=lambda span: span.start) - 1
    return index if index >= 0 and part.end <= spans[index].end else None
