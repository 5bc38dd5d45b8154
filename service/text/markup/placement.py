"""Places the elements of a run in its translation, by links between their words.

The rules are like those of Bergamot (https://browser.mt): a word of the translation is in the
elements of the word that it comes from; of several, the one with more markup counts. Each element
stays in one piece: the part of the translation where the most of its words stand together. An
element without words, or whose words have no counterpart, stays next to its neighbours; within
copied white space, it stays at the same character.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from model.bundle.spans import Span
from service.text.markup.quotes import place_quotes
from service.text.markup.tree import Node, RunTree
from service.text.markup.units import Unit, is_word, units_of
from service.translation.links import Link

_SIGNS = (",", ".", ";", ":", "!", "?")


@dataclass(slots=True)
class Placed:
    """A node in the translation.

    Attributes:
        node: the node.
        start, end: the characters of the translation that it covers; equal for an atom.
        children: nodes in the order of the translation.
    """

    node: Node
    start: int
    end: int
    children: list[Placed] = field(default_factory=list)


def place(tree: RunTree, target: str, links: Sequence[Link]) -> Placed:
    """The tree in a translation: every node once, children within their parents.

    Args:
        tree: the tree of a run.
        target: the translation of the run's text.
        links: links between text and translation, in the order of the translation.
    """
    return _Placement(tree, target, links).place()


class _Placement:
    def __init__(self, tree: RunTree, target: str, links: Sequence[Link]) -> None:
        self._tree = tree
        self._target = target
        self._units = units_of(tree, target, links)
        for unit in self._units:
            owners = [tree.owner(*source) for source in unit.sources]
            if not unit.is_placeholder:
                owners = [node.enclosing for node in owners]
            unit.node = self._with_sign(unit, max(owners, key=lambda n: n.depth, default=None))
        place_quotes(tree, target, self._units)
        _fill(self._units, tree)
        # Links of copied parts that contain white space, in the order of the source.
        self._copies = sorted(
            link
            for link in links
            if (part := target[slice(*link.target)]) == tree.text[slice(*link.source)]
            and any(map(str.isspace, part))
        )
        self._copy_starts = [link.source.start for link in self._copies]
        # Where the words of the source went, in the order of the source.
        self._sources = sorted(
            (source.start, source.end, index)
            for index, unit in enumerate(self._units)
            for source in unit.sources
        )

    def _with_sign(self, unit: Unit, node: Node | None) -> Node | None:
        """The node of a unit; for a sign, the first node around it that has the sign too."""
        sign = self._target[slice(*unit.span)]
        while (
            sign[0] in _SIGNS
            and node is not None
            and node.parent is not None
            and sign not in self._tree.text[node.start : node.end]
        ):
            node = node.parent
        return node

    def place(self) -> Placed:
        root, units = self._tree.root, self._units
        placed = Placed(root, 0, len(self._target))
        dividers = [child.start for child in root.children if child.divides]
        counts = [0] * (len(dividers) + 1)
        bounds = Span(0, len(self._target))
        segment = 0
        for unit in units:
            if unit.sources:
                segment = bisect_right(dividers, unit.sources[0].start)
            counts[segment] += 1
        low, children = 0, iter(root.children)
        for count in counts:
            group, divider = [], None
            for child in children:
                if child.divides:
                    divider = child
                    break
                group.append(child)
            placed.children += self._place_children(group, low, low + count, bounds)
            low += count
            if divider is not None:
                position = self._character(divider, low, 0, bounds)
                placed.children.append(Placed(divider, position, position))
        _keep_order(placed.children)
        return placed

    def _place_children(
        self, children: Sequence[Node], low: int, high: int, bounds: Span
    ) -> list[Placed]:
        """Place some children of a node.

        Args:
            children: the children.
            low: the first of the units that they may cover.
            high: one past the last of these.
            bounds: the characters that they may cover: also white space around the units.
        """
        if not children:
            return []
        ranges = self._ranges(children, low, high)
        taken: list[int | None] = [None] * (high - low)
        for index, (start, end) in ranges.items():
            taken[start - low : end - low] = [index] * (end - start)
        for index, child in enumerate(children):
            if child.opening and index not in ranges:
                found = self._free_unit(child, taken, low, high)
                if found is not None:
                    taken[found - low] = index
                    ranges[index] = (found, found + 1)
        by_index: dict[int, Placed] = {}
        reached = bounds.start
        for index, (start, end) in sorted(ranges.items(), key=lambda item: item[1]):
            around = Span(
                max(reached, self._between(start).start), min(bounds.end, self._between(end).end)
            )
            by_index[index] = self._element(children[index], start, end, around)
            reached = by_index[index].end
        for index, child in enumerate(children):
            if index not in ranges:
                gap = self._neighbour(child, low, high)
                other = taken[gap - low] if low < gap < high else None
                if other is not None and other == taken[gap - low - 1]:
                    gap = ranges[other][index > other]  # not within it: before or behind it
                position = self._character(child, gap, low, bounds)
                by_index[index] = _collapsed(child, position)
        # Equal positions: what covers no text comes in the order of the source.
        placed = [by_index[index] for index in range(len(children))]
        placed.sort(key=lambda each: (each.start, each.end))
        _keep_order(placed)
        return placed

    def _element(self, node: Node, low: int, high: int, bounds: Span) -> Placed:
        """A node on these units, and on the white space that its outermost children stand in."""
        start, end = self._units[low].span.start, self._units[high - 1].span.end
        children = self._place_children(node.children, low, high, bounds)
        if children:
            start, end = min(start, children[0].start), max(end, children[-1].end)
        return Placed(node, start, end, children)

    def _between(self, gap: int) -> Span:
        """The characters between the unit before a gap and the unit after it."""
        units = self._units
        return Span(
            units[gap - 1].span.end if gap else 0,
            units[gap].span.start if gap < len(units) else len(self._target),
        )

    def _ranges(self, children: Sequence[Node], low: int, high: int) -> dict[int, tuple[int, int]]:
        """The best range of units for each child that has any: no two overlap."""
        orders = [child.order for child in children]
        best: dict[int, tuple[float, int, int]] = {}
        running, score, start, gap = -1, 0.0, low, 0.0
        for position in range(low, high):
            unit = self._units[position]
            assert unit.node is not None
            index = bisect_right(orders, unit.node.order) - 1
            if index < 0 or not children[index].contains(unit.node):
                gap += math.inf if unit.is_barrier else unit.weight
                continue
            if index == running and score > gap:
                score += unit.weight - gap
            else:
                running, score, start = index, unit.weight, position
            gap = 0.0
            if index not in best or score > best[index][0]:
                best[index] = (score, start, position + 1)
        return {index: (start, end) for index, (_, start, end) in best.items()}

    def _free_unit(
        self, child: Node, taken: Sequence[int | None], low: int, high: int
    ) -> int | None:
        """A free word next to its neighbours for an element that lost its words, if any."""
        if low == high:
            return None
        gap = self._neighbour(child, low, high)
        free = [
            position
            for position in (gap, gap - 1)
            if low <= position < high
            and taken[position - low] is None
            and is_word(self._target[slice(*self._units[position].span)])
        ]
        return min(free, key=lambda position: bool(self._units[position].sources), default=None)

    def _neighbour(self, node: Node, low: int, high: int) -> int:
        """The unit before which a node without words belongs, by the words next to it."""
        parent = node.parent
        if node.is_mark and parent and parent.opening and parent.start < node.start == parent.end:
            return high  # behind all words of the element: ruby
        if node.is_mark and not self._touches_next(node):
            return min(max(self._behind_word(node), low), high)
        before, after = self._linked_before(node.start), self._linked_after(node.end)
        if after is not None and (before is None or self._touches_next(node)):
            gap = after
        else:
            gap = 0 if before is None else before + 1
        return min(max(gap, low), high)

    def _behind_word(self, mark: Node) -> int:
        """The unit after the word that a mark is glued to."""
        index = bisect_left(self._sources, (mark.start, 0, 0)) - 1
        if index < 0:
            return 0
        start, end, unit = self._sources[index]
        word = self._tree.text[start:end]
        # Of several words of the translation, the same one if it is there.
        while index >= 0 and self._sources[index][:2] == (start, end):
            if self._text_of(self._sources[index][2]) == word:
                unit = self._sources[index][2]
                break
            index -= 1
        sign = self._tree.text[mark.start - 1]
        is_next = unit + 1 < len(self._units) and self._text_of(unit + 1) == sign
        # Punctuation may have no counterpart of its own.
        return unit + 1 + (end < mark.start and is_next)

    def _text_of(self, unit: int) -> str:
        return self._target[slice(*self._units[unit].span)]

    def _linked_before(self, position: int) -> int | None:
        index = bisect_left(self._sources, (position, 0, 0)) - 1
        return self._sources[index][2] if index >= 0 else None

    def _linked_after(self, position: int) -> int | None:
        index = bisect_left(self._sources, (position, 0, 0))
        return self._sources[index][2] if index < len(self._sources) else None

    def _touches_next(self, node: Node) -> bool:
        following = self._tree.text[node.end : node.end + 1]
        before = self._tree.text[node.start - 1 : node.start] if node.start else ""
        return bool(following) and not following.isspace() and (not before or before.isspace())

    def _character(self, node: Node, gap: int, low: int, bounds: Span) -> int:
        """The position of a node without words: where it stood in copied white space.

        An element that lost its words may also have ended there. Otherwise at the end of the unit
        before, or at the next.
        """
        between = self._between(gap)
        between = Span(max(between.start, bounds.start), min(between.end, bounds.end))
        for position in itertools.chain(self._copied(node.start), self._copied(node.end)):
            if node.is_mark and self._touches_next(node) and position <= bounds.end:
                return max(position, bounds.start)
            if between.start <= position <= between.end:
                return position
        if gap > low and not self._touches_next(node):
            return between.start
        return between.end

    def _copied(self, position: int) -> Iterator[int]:
        """Yield the places in the translation for a place in or beside copied white space."""
        index = bisect_right(self._copy_starts, position) - 1
        for source, target, _ in reversed(self._copies[max(0, index - 1) : index + 1]):
            if position <= source.end:
                yield position - source.start + target.start


def _keep_order(placed: Sequence[Placed]) -> None:
    """Move elements without text behind the elements before them."""
    end = 0
    for each in placed:
        if each.start == each.end < end:
            _move(each, end)
        end = each.end


def _move(placed: Placed, position: int) -> None:
    placed.start = placed.end = position
    for child in placed.children:
        _move(child, position)


def _collapsed(node: Node, position: int) -> Placed:
    children = [_collapsed(child, position) for child in node.children]
    return Placed(node, position, position, children)


def _fill(units: Sequence[Unit], tree: RunTree) -> None:
    """Put words without a source into the deepest node that both of their neighbours are in."""
    edges = [tree.parts[0].owner, tree.parts[-1].owner] if tree.parts else [tree.root] * 2
    following = edges[1]
    after: list[Node] = []
    for unit in reversed(units):
        following = unit.node or following
        after.append(following)
    before = edges[0]
    for unit, following in zip(units, reversed(after), strict=True):
        # Not into a placeholder, whose own text is all that is written of it.
        unit.node = unit.node or before.common(following).enclosing
        before = unit.node
