"""Quotation marks beside elements: they stay outside or inside, as they were."""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence

from model.bundle.spans import Span
from service.text.markup.tree import Node, RunTree
from service.text.markup.units import QUOTES, Unit
from service.things.quotes import quoted_pairs, quotes_of

# Not an apostrophe within a word.
_QUOTE = re.compile(rf"(?<!\w)[{QUOTES}]|[{QUOTES}](?!\w)")


def place_quotes(tree: RunTree, target: str, units: Sequence[Unit]) -> None:
    """Put quotation marks where they were, and keep elements between them, whatever links say.

    Args:
        tree: the tree of a run.
        target: the translation of the run's text.
        units: the words of the translation, whose nodes may change.
    """
    marks = [unit for unit in units if target[slice(*unit.span)] in QUOTES]
    places = [match.start() for match in _QUOTE.finditer(tree.text)] if marks else []
    nodes = [tree.owner(place, place + 1) for place in places]
    if nodes and (len(marks) == len(nodes) or all(node is nodes[0] for node in nodes)):
        for unit, node in zip(
            marks, itertools.chain(nodes, itertools.repeat(nodes[0])), strict=False
        ):
            unit.node, unit.is_barrier = node, True
    _keep_between(tree, target, units)


def _keep_between(tree: RunTree, target: str, units: Sequence[Unit]) -> None:
    spans, places = _quoted(tree.text), _quoted(target)
    if not spans or len(spans) != len(places):
        return
    best = _matched(spans, places, units)
    by_place = {unit.span.end: unit for unit in units}
    for there, index in zip(places, best, strict=True):
        for mark, other in (
            (by_place.get(there.start), spans[index].start - 1),
            (by_place.get(there.end + 1), spans[index].end),
        ):
            if mark is not None:
                mark.node, mark.is_barrier = tree.owner(other, other + 1), True
    insides = [_around(tree, span) for span in spans]
    for unit in units:
        place = _index(places, unit.span)
        own = None if place is None else best[place]
        node = unit.node
        while node is not None and node.parent is not None:
            if _index(spans, Span(node.start, node.end)) in (own, None):
                break
            node = node.parent
        if own is not None:
            inside = insides[own]
            if node is None or not inside.contains(node):
                node = inside if inside.parent is not None else node
        unit.node = node


def _matched(spans: Sequence[Span], places: Sequence[Span], units: Sequence[Unit]) -> list[int]:
    """The index of the quotation that each one of the translation comes from."""
    votes = [Counter[int]() for _ in places]
    for unit in units:
        place = _index(places, unit.span)
        found = {_index(spans, source) for source in unit.sources} - {None}
        if place is not None and len(found) == 1:
            votes[place].update(index for index in found if index is not None)
    best = [vote.most_common(1)[0][0] if vote else -1 for vote in votes]
    order = list(range(len(spans)))
    return best if sorted(best) == order else order


def _around(tree: RunTree, span: Span) -> Node:
    """The deepest node around a quotation."""
    node = tree.owner(*span).enclosing
    while node.parent is not None and (node.start > span.start or node.end < span.end):
        node = node.parent
    return node


def _quoted(text: str) -> list[Span]:
    pairs = quoted_pairs(quotes_of(text))
    return [Span(opening.span.end, closing.span.start) for opening, closing in pairs]


def _index(spans: Sequence[Span], part: Span) -> int | None:
    """The index of the one of some spans that contains a part."""
    index = bisect_right(spans, part.start, key=lambda span: span.start) - 1
    return index if index >= 0 and part.end <= spans[index].end else None
