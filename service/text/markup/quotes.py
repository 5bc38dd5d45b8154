"""Quotation marks beside elements: they stay outside or inside, as they were."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from model.bundle.spans import Span
from service.text.markup.tree import Node, RunTree

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
