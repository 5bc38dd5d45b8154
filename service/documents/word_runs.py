"""The content of paragraphs of Word: runs of text with formats, and the elements around them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

from service.documents.document import DocumentCounts, DocumentLimits
from service.documents.xml_parts import Element, add_copy, drop, local_name

# Elements around runs, which are part of a sentence.
CONTAINERS = {"hyperlink", "ins", "smartTag", "moveTo", "dir", "bdo"}
# Marks of checkers and of the last layout, which say nothing about another text.
NOISE = {"proofErr", "lastRenderedPageBreak", "noProof", "lang"}
_HYPHENS = {"noBreakHyphen": "\u2011", "softHyphen": ""}
# What ends a segment where it stands in a run.
_BREAKS = {"tab", "br", "cr", "ptab", "fldChar", "instrText", "delInstrText"}
# What ends a segment where it stands in a paragraph; the first have the content of one in them.
_FIELDS = {"fldSimple", "sdt", "sdtContent"}
_ENDS = {*_FIELDS, "pPr", "sdtPr", "sdtEndPr", "p", "tbl"}


class SharedRun:
    """A run with several contents, which is cut into a run for each of them if one changes."""

    __slots__ = ("_contents", "_element", "_parts")

    def __init__(self, element: Element, contents: Sequence[Element]) -> None:
        self._element = element
        self._contents = contents
        self._parts: Sequence[Element] = ()

    def part(self, index: int, copies: DocumentCounts) -> Element:
        """The run of one content. All are made when one is first asked for.

        Args:
            index: number of the content.
            copies: counts the formats that are copied.
        """
        if not self._parts:
            self._parts = self._cut(copies)
        return self._parts[index]

    def keep_whole(self) -> None:
        """Let the run be that of all its contents: they are about to be removed together."""
        self._parts = self._parts or (self._element,) * len(self._contents)

    @property
    def num_contents(self) -> int:
        """The number of contents."""
        return len(self._contents)

    def _cut(self, copies: DocumentCounts) -> Sequence[Element]:
        form = format_of(self._element)
        parts = [self._element]
        for content in self._contents[1:]:
            run = self._element.makeelement(self._element.tag, dict(self._element.attrib))
            if form is not None:
                run.append(copy.deepcopy(form))
            add_copy(copies, run)
            parts[-1].addnext(run)
            run.append(content)  # within the tree, where its namespaces are declared
            parts.append(run)
        return parts


@dataclass(slots=True)
class RunNode:
    """A child of a paragraph or of a container; a run has a node for each of its contents.

    Attributes:
        element: the child.
        kind: its local name.
        text: the text of a run's content; None if it is something else.
        look: of a run, a number that is the same for those of a paragraph that look the same.
        is_end: whether it ends a segment.
        children: of a container, and of what has the content of a paragraph in it.
        has_break: whether a child of a container ends a segment.
        shared: the run, if it has several contents.
        index: the number of the content in that.
    """

    element: Element
    kind: str
    text: str | None = None
    look: int | None = None
    is_end: bool = False
    children: Sequence[RunNode] = ()
    has_break: bool = False
    shared: SharedRun | None = None
    index: int = 0

    @property
    def is_container(self) -> bool:
        """Whether its children are part of the sentence around it."""
        return self.kind in CONTAINERS

    def own_element(self, copies: DocumentCounts) -> Element:
        """An element that has nothing else in it; see `SharedRun.part`."""
        return self.element if self.shared is None else self.shared.part(self.index, copies)

    def drop_texts(self, copies: DocumentCounts) -> None:
        """Remove text, also that in containers; what else is in them stays until it is moved."""
        if self.is_container:
            self.element.text = self.element.tail = None
            for child in self.children:
                child.drop_texts(copies)
        elif self.text is not None or self.kind in NOISE:
            element = self.own_element(copies)
            if element.getparent() is not None:  # several texts may be those of one run
                drop(element)
        else:
            self.own_element(copies)


def format_of(run: Element) -> Element | None:
    """The format of a run (`w:rPr`); None without one."""
    return next((child for child in run if local_name(child) == "rPr"), None)


def is_raised(run: Element) -> bool:
    """Whether a run stands above or below the line."""
    form = format_of(run)
    return form is not None and any(
        local_name(child) == "vertAlign" and not str(child.values()[:1]).count("baseline")
        for child in form
    )


def nodes_of(paragraph: Element, name: str, limits: DocumentLimits) -> list[RunNode]:
    """The content of a paragraph; not that of text boxes in it.

    Args:
        paragraph: the element.
        name: the prefix of tags of the document.
        limits: bounds of a format.

    Raises:
        InvalidArgumentError: a format exceeds the limits.
    """
    return _Reader(f"{name}r", limits).nodes(paragraph)


class _Reader:
    """Reads one paragraph."""

    def __init__(self, run_tag: str, limits: DocumentLimits) -> None:
        self._run_tag = run_tag
        self._limits = limits
        self._looks: dict[str, int] = {}

    def nodes(self, parent: Element) -> list[RunNode]:
        """The content of the paragraph, or of an element in it."""
        nodes: list[RunNode] = []
        for child in parent:
            if child.tag == self._run_tag:
                nodes += self._nodes_of_run(child)
                continue
            node = RunNode(child, local_name(child))
            node.is_end = node.kind in _ENDS
            if node.is_container or node.kind in _FIELDS:
                node.children = self.nodes(child)
            if node.is_container:
                node.is_end = node.has_break = any(map(_breaks, node.children))
            nodes.append(node)
        return nodes

    def _nodes_of_run(self, element: Element) -> list[RunNode]:
        contents = [child for child in element if local_name(child) != "rPr"]
        look = self._look_of(format_of(element))
        shared = SharedRun(element, contents) if len(contents) > 1 else None
        if not contents:
            return [RunNode(element, "r", "", look)]
        return [
            RunNode(
                element,
                "r",
                _text_of(content),
                look,
                is_end=local_name(content) in _BREAKS,
                shared=shared,
                index=index,
            )
            for index, content in enumerate(contents)
        ]

    def _look_of(self, form: Element | None) -> int:
        """The same number for formats that look the same."""
        if form is None:
            return self._looks.setdefault("", len(self._looks))
        shown: list[str] = []
        count = 0
        for each in sorted(form, key=local_name):
            count += _add_look(each, [] if local_name(each) in NOISE else shown)
        self._limits.check("format_nodes", count)
        return self._looks.setdefault("".join(shown), len(self._looks))


def _add_look(element: Element, pieces: list[str]) -> int:
    """Add what an element looks like, between characters that XML can't hold.

    Not its XML, which repeats the declarations of all namespaces around it.

    Returns:
        The number of elements and attributes.
    """
    items = element.items()
    pieces.append(f"\0{element.tag}")
    pieces += [f"\1{name}\2{value}" for name, value in items]
    pieces.append(f"\3{element.text or ''}")
    count = 1 + len(items)
    for child in element:
        count += _add_look(child, pieces)
        pieces.append(child.tail or "")
    pieces.append("\4")
    return count


def _breaks(child: RunNode) -> bool:
    """Whether a container with this child is no part of one segment."""
    if child.look is not None:
        return child.is_end
    return child.has_break or child.kind in ("fldSimple", "sdt")


def _text_of(content: Element) -> str | None:
    """The text of a content of a run; None if it is something else."""
    if len(content):  # which would be lost
        return None
    kind = local_name(content)
    if kind == "t":
        return content.text or ""
    return "" if kind in NOISE else _HYPHENS.get(kind)
