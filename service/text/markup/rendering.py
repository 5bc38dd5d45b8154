"""Writes a run again: its translation with its markup."""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence

from service.glossaries.placeholders import PLACEHOLDER
from service.text.markup.placement import Placed, place
from service.text.markup.tree import Node, RunTree
from service.translation.links import Link

# Remains of a placeholder that the model has not copied exactly.
_IN_BRACES = re.compile(r"\{[^{}\s]+\}")
_SPOILT = re.compile(r"\{+\s?\d{0,3}\s?\}*|\}+")


def render(tree: RunTree, target: str, links: Sequence[Link], encode: Callable[[str], str]) -> str:
    """A run of the translated document.

    Args:
        tree: the tree of the run.
        target: the translation of the run's text.
        links: links between text and translation.
        encode: writes plain text in the document's format.
    """
    if target == tree.text:
        return tree.run.raw
    return "".join(_Renderer(tree, target, links, encode).write(place(tree, target, links)))


def _side_by_side(root: Node) -> tuple[set[int], set[int]]:
    """The orders of atoms directly before another atom, and of atoms directly behind one."""
    earlier: set[int] = set()
    later: set[int] = set()
    nodes = [root]
    for node in nodes:
        nodes += node.children
        for one, other in itertools.pairwise(node.children):
            if one.start == one.end == other.start == other.end:
                earlier.add(one.order)
                later.add(other.order)
    return earlier, later


class _Renderer:
    def __init__(
        self, tree: RunTree, target: str, links: Sequence[Link], encode: Callable[[str], str]
    ) -> None:
        self._tree = tree
        self._target = target
        self._encode = encode
        self._used = {node.placeholder for node in tree.verbatim}
        # Of the text itself, or of terms of a glossary.
        self._has_braces = any(
            not part.owner.placeholder and not {*part.text}.isdisjoint("{}") for part in tree.parts
        ) or any(name not in self._used for name in _IN_BRACES.findall(target))
        # Copied parts are written as in the source, with their entities and white space.
        self._copies = [
            link for link in links if tree.text[slice(*link.source)] == target[slice(*link.target)]
        ]
        self._ends = [link.target.end for link in self._copies]

        self._earlier, self._later = _side_by_side(tree.root)

    def write(self, placed: Placed) -> Iterator[str]:
        """A node with its tags."""
        node = placed.node
        if node.content:
            yield self._spaced(node, placed.start) if placed.start == placed.end else node.content
            return
        yield node.opening
        position = placed.start
        for child in placed.children:
            yield from self._text(position, child.start)
            yield from self.write(child)
            position = child.end
            if child.node.is_glued and self._target[position : position + 1] == " ":
                position += 1
        yield from self._text(position, placed.end)
        yield node.closing

    def _text(self, start: int, end: int) -> Iterator[str]:
        for index in range(bisect_right(self._ends, start), len(self._copies)):
            source, target, _ = self._copies[index]
            if target.start >= end:
                break
            if target.start < start:  # the rest of a part
                shift = source.start - target.start
                source, target = (
                    type(source)(start + shift, source.end),
                    type(target)(start, target.end),
                )
            yield self._plain(start, target.start)
            start = min(end, target.end)
            yield self._tree.raw(source.start, source.start + start - target.start)
        yield self._plain(start, end)

    def _plain(self, start: int, end: int) -> str:
        text = self._target[start:end]
        if self._used:  # what the model wrote twice
            text = PLACEHOLDER.sub(lambda match: "" if match[0] in self._used else match[0], text)
            if not self._has_braces:
                text = _SPOILT.sub("", text)
        return self._encode(text)

    def _spaced(self, node: Node, position: int) -> str:
        """A node without text, with the white space beside it that the translation lacks."""
        text, target = self._tree.text, self._target
        # Of atoms side by side, just the outer ones stand beside the space.
        is_first, is_last = node.order not in self._later, node.order not in self._earlier
        before = is_first and node.start > 0 and text[node.start - 1].isspace()
        after = is_last and text[node.end : node.end + 1].isspace()
        if node.is_mark and not (before and after):
            return node.content
        lacks_before = before and position > 0 and not target[position - 1].isspace()
        # A sign such as a comma stands beside its word.
        lacks_after = after and position < len(target) and target[position].isalnum()
        return " " * lacks_before + node.content + " " * lacks_after
