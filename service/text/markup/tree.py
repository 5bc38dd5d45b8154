"""The tree of a run's inline elements, over its text.

An element is a start tag and an end tag that belong together, with text between them. Other tags,
of broken markup and of elements that cross a block, divide the run: no tag crosses them, so their
order stays. They stand in no element, since one around them is broken as well.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from service.text.markup.document import (
    Atom,
    Chars,
    EndTag,
    Item,
    MarkupError,
    StartTag,
    TextRun,
    Verbatim,
)

_ENDS = tuple(".:;!?…")
MAX_DEPTH = 100
"""Inline elements in each other, in one run."""


@dataclass(eq=False, slots=True)
class Node:
    """An element, an atom, verbatim text, or a whole run.

    Attributes:
        parent: the node around it; None for a run.
        start, end: the characters of the run's text that it covers; equal for an atom.
        depth: the number of its ancestors.
        order: its number in the tree, parents first.
        last: the greatest number among its descendants.
        opening, closing: the tags of an element.
        content: string to write for an atom or for verbatim text.
        placeholder: sign for verbatim text in the run's text; "" for others.
        divides: whether nothing may cross it.
        is_mark: whether it stays at the word that it touches.
        is_glued: whether an element ends with a sign that a word touches; the text has a space.
        children: nodes in it, in order.
    """

    parent: Node | None
    start: int
    end: int
    depth: int
    order: int
    last: int = 0
    opening: str = ""
    closing: str = ""
    content: str = ""
    placeholder: str = ""
    divides: bool = False
    is_mark: bool = False
    is_glued: bool = False
    children: list[Node] = field(default_factory=list)

    @property
    def enclosing(self) -> Node:
        """The node whose tags it is between, or this one if it has tags of its own."""
        return self.parent if self.placeholder and self.parent is not None else self

    def contains(self, other: Node) -> bool:
        """Whether a node is this one or among its descendants."""
        return self.order <= other.order <= self.last

    def common(self, other: Node) -> Node:
        """The deepest node that contains both."""
        node = self
        while not node.contains(other):
            assert node.parent is not None, "of one tree"
            node = node.parent
        return node


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a run's text.

    Attributes:
        text: text for the model.
        raw: text as in the document; "" for a placeholder.
        owner: the deepest node that it is in.
    """

    text: str
    raw: str
    owner: Node


@dataclass(frozen=True)
class RunTree:
    """A run as text with a tree of elements.

    Attributes:
        run: the run.
        text: the text for the model, with placeholders for verbatim text.
        root: the tree.
        parts: the parts of the text, in order.
        starts: the position in the text at which each part starts.
        verbatim: the nodes with placeholders.
    """

    run: TextRun
    text: str
    root: Node
    parts: Sequence[Part]
    starts: Sequence[int]
    verbatim: Sequence[Node]

    def free(self) -> None:
        """Separate the nodes from each other: the garbage collector takes long for large trees."""
        nodes = [self.root]
        for node in nodes:
            nodes += node.children
            node.children = []

    def owner(self, start: int, end: int) -> Node:
        """The deepest node of the parts of some text."""
        owners = [part.owner for _, part in self._parts(start, end)]
        return max(owners, key=lambda node: node.depth, default=self.root)

    def raw(self, start: int, end: int) -> str:
        """A part of the text as it is in the document, without tags."""
        found = []
        for begin, part in self._parts(start, end):
            whole = start <= begin and begin + len(part.text) <= end
            cut = part.raw[max(0, start - begin) : end - begin]
            found.append(part.raw if whole else cut)
        return "".join(found)

    def _parts(self, start: int, end: int) -> Sequence[tuple[int, Part]]:
        first = max(0, bisect_right(self.starts, start) - 1)
        found = []
        for index in range(first, len(self.starts)):
            if self.starts[index] >= end:
                break
            found.append((self.starts[index], self.parts[index]))
        return found


def build_tree(run: TextRun, placeholders: Sequence[str]) -> RunTree:
    """The tree of a run.

    Args:
        run: its items.
        placeholders: signs for its verbatim items, in order.

    Raises:
        MarkupError: its elements are nested too deeply.
    """
    return _Builder(run, placeholders).build()


class _Builder:
    def __init__(self, run: TextRun, placeholders: Sequence[str]) -> None:
        self._run = run
        self._placeholders = iter(placeholders)
        self._ends = matching_ends(run.items)
        self._text_before = [0]  # items with text before each item
        for item in run.items:
            self._text_before.append(self._text_before[-1] + _has_text(item))
        self._parts: list[Part] = []
        self._starts: list[int] = []
        self._length = 0
        self._count = 0
        self._path: list[Node] = []
        self._path.append(self._node())
        self._verbatim: list[Node] = []

    def build(self) -> RunTree:
        items, index = self._run.items, 0
        closing = set(self._ends.values())
        while index < len(items):
            item = items[index]
            if isinstance(item, Chars):
                self._add_text(item.text, item.raw, self._path[-1])
            elif isinstance(item, Verbatim):
                self._add_verbatim(item)
            elif index in self._ends:
                index = self._begin(index)
            elif index in closing:
                self._end(item.raw, items[index + 1] if index + 1 < len(items) else None)
            else:
                child = self._child(content=item.raw, divides=not isinstance(item, Atom))
                child.is_mark = isinstance(item, Atom) and item.is_mark
            index += 1
        root = self._path[0]
        root.end, root.last = self._length, self._count
        text = "".join(part.text for part in self._parts)
        return RunTree(self._run, text, root, self._parts, self._starts, self._verbatim)

    def _begin(self, index: int) -> int:
        """Begin an element, or add it as an atom without text; returns its last index."""
        items, end = self._run.items, self._ends[index]
        if self._text_before[index] < self._text_before[end]:
            if len(self._path) > MAX_DEPTH:
                raise MarkupError(f"inline tags nested deeper than {MAX_DEPTH}, the limit")
            self._path.append(self._child(opening=items[index].raw))
            return index
        inside = items[index : end + 1]
        if any(isinstance(item, Chars) for item in inside):
            self._add_text(" ", "", self._path[-1])
        self._child(content="".join(item.raw for item in inside))
        return end

    def _end(self, raw: str, following: Item | None) -> None:
        node = self._path.pop()
        node.closing, node.end, node.last = raw, self._length, self._count
        last = self._parts[-1].text[-1:] if self._parts else ""
        if last in _ENDS and isinstance(following, Chars) and following.text[:1].isalpha():
            node.is_glued = True
            self._add_text(" ", "", self._path[-1])

    def _add_verbatim(self, item: Verbatim) -> None:
        node = self._child(content=item.raw, placeholder=next(self._placeholders))
        self._add_text(node.placeholder, "", node)
        node.end = self._length
        self._verbatim.append(node)

    def _add_text(self, text: str, raw: str, owner: Node) -> None:
        self._starts.append(self._length)
        self._parts.append(Part(text, raw, owner))
        self._length += len(text)

    def _child(
        self, opening: str = "", content: str = "", placeholder: str = "", divides: bool = False
    ) -> Node:
        node = self._node(opening, content, placeholder, divides)
        self._path[-1].children.append(node)
        return node

    def _node(
        self, opening: str = "", content: str = "", placeholder: str = "", divides: bool = False
    ) -> Node:
        self._count += 1
        return Node(
            parent=self._path[-1] if self._path else None,
            start=self._length,
            end=self._length,
            depth=len(self._path),
            order=self._count,
            last=self._count,
            opening=opening,
            content=content,
            placeholder=placeholder,
            divides=divides,
        )


def _has_text(item: Item) -> bool:
    return isinstance(item, Verbatim) or (isinstance(item, Chars) and not item.text.isspace())


def matching_ends(items: Sequence[Item]) -> dict[int, int]:
    """The index of the end tag of each start tag that has one, with only such tags between."""
    pairs: dict[int, int] = {}
    path: list[int] = []
    num_open: dict[str, int] = {}
    for index, item in enumerate(items):
        if isinstance(item, StartTag):
            path.append(index)
            num_open[item.name] = num_open.get(item.name, 0) + 1
        elif isinstance(item, EndTag) and num_open.get(item.name):
            while True:
                start = path.pop()
                opened = items[start]
                assert isinstance(opened, StartTag)
                num_open[opened.name] -= 1
                if opened.name == item.name:
                    pairs[start] = index
                    break
    paired = {*pairs, *pairs.values()}
    broken = [  # unpaired tags before each item
        0,
        *itertools.accumulate(
            isinstance(item, StartTag | EndTag) and index not in paired
            for index, item in enumerate(items)
        ),
    ]
    return {start: end for start, end in pairs.items() if broken[start] == broken[end]}
