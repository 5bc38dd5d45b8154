"""The content of paragraphs of Word: runs of text with formats, and the elements around them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

from service.documents.document import DocumentCounts, DocumentLimits
from service.documents.xml_parts import Element, add_copy, drop, local_name

# Elements around runs, which are part of a sentence.
CONTAINERS = {"hyperlink", "ins", "smartTag", "moveTo", "dir", "bdo"}
# Marks of spell checkers and of the last layout, which are not valid for another text.
NOISE = {"proofErr", "lastRenderedPageBreak", "noProof", "lang"}
_HYPHENS = {"noBreakHyphen": "\u2011", "softHyphen": ""}
# Elements of a run that end a segment.
_BREAKS = {"tab", "br", "cr", "ptab", "fldChar", "instrText", "delInstrText"}
# Elements of a paragraph that end a segment; `_FIELDS` contain paragraph content themselves.
_FIELDS = {"fldSimple", "sdt", "sdtContent"}
_ENDS = {*_FIELDS, "pPr", "sdtPr", "sdtEndPr", "p", "tbl"}


class SharedRun:
    """A run with several contents, which is split into one run for each content if one changes."""

    __slots__ = ("_contents", "_element", "_parts")

    def __init__(self, element: Element, contents: Sequence[Element]) -> None:
        self._element = element
        self._contents = contents
        self._parts: Sequence[Element] = ()

    def part(self, index: int, copies: DocumentCounts) -> Element:
        """The run of one content. The first call splits the run."""
        if not self._parts:
            self._parts = self._cut(copies)
        return self._parts[index]

    def keep_whole(self) -> None:
        """Do not split the run: its contents are about to be removed together."""
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
            run.append(content)  # moved within the tree, where its namespaces are declared
            parts.append(run)
        return parts


@dataclass(slots=True)
class RunNode:
    """A child of a paragraph or of a container; a run has a node for each of its contents.

    Attributes:
        kind: local name of the child.
        text: text of a run's content; None for other content.
        look: number of a run's look, equal for runs of a paragraph that look the same; None if the
            child is not a run.
        is_end: whether it ends a segment.
        form: format of a run; None without one.
        children: children of a container, or of an element with paragraph content.
        has_break: whether a child of a container ends a segment.
        shared: the run, if it has several contents.
        index: number of the content in the shared run.
    """

    element: Element
    kind: str
    text: str | None = None
    look: int | None = None
    is_end: bool = False
    form: Element | None = None
    children: Sequence[RunNode] = ()
    has_break: bool = False
    shared: SharedRun | None = None
    index: int = 0

    @property
    def is_container(self) -> bool:
        """Whether its children are part of the sentence around it."""
        return self.kind in CONTAINERS

    def own_element(self, copies: DocumentCounts) -> Element:
        """The element with only this content; see `SharedRun.part`."""
        return self.element if self.shared is None else self.shared.part(self.index, copies)

    def drop_texts(self, copies: DocumentCounts) -> None:
        """Remove texts, also in containers; other content of containers stays until it is moved."""
        if self.is_container:
            self.element.text = self.element.tail = None
            for child in self.children:
                child.drop_texts(copies)
        elif self.text is not None or self.kind in NOISE:
            element = self.own_element(copies)
            if element.getparent() is not None:  # several texts may belong to one run
                drop(element)
        else:
            self.own_element(copies)


def format_of(run: Element) -> Element | None:
    """The format of a run (`w:rPr`); None without one."""
    return next((child for child in run if local_name(child) == "rPr"), None)


def is_raised(form: Element | None) -> bool:
    """Whether runs with a format stand above or below the line."""
    return form is not None and any(
        local_name(child) == "vertAlign" and not str(child.values()[:1]).count("baseline")
        for child in form
    )


def nodes_of(paragraph: Element, name: str, limits: DocumentLimits) -> list[RunNode]:
    """The content of a paragraph, without text boxes in it.

    Args:
        name: namespace prefix of the document's tags.

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
        form = format_of(element)  # once: a run may have thousands of contents
        look = self._look_of(form)
        shared = SharedRun(element, contents) if len(contents) > 1 else None
        if not contents:
            return [RunNode(element, "r", "", look, form=form)]
        return [
            RunNode(
                element,
                "r",
                _text_of(content),
                look,
                is_end=local_name(content) in _BREAKS,
                form=form,
                shared=shared,
                index=index,
            )
            for index, content in enumerate(contents)
        ]

    def _look_of(self, form: Element | None) -> int:
        """Number of a format's look; formats with the same look have the same number."""
        if form is None:
            return self._looks.setdefault("", len(self._looks))
        shown: list[str] = []
        count = 0
        for each in sorted(form, key=local_name):
            count += _add_look(each, [] if local_name(each) in NOISE else shown)
        self._limits.check("format_nodes", count)
        return self._looks.setdefault("".join(shown), len(self._looks))


def _add_look(element: Element, pieces: list[str]) -> int:
    """Add a description of a format element, separated by characters that XML can't contain.

    Its XML is not suitable, because it repeats the declarations of all namespaces around it.

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
    """Whether a container with this child has to be split between segments."""
    if child.look is not None:
        return child.is_end
    return child.has_break or child.kind in ("fldSimple", "sdt")


def _text_of(content: Element) -> str | None:
    """The text of a content of a run; None if the content is not text."""
    if len(content):  # its children would be lost
        return None
    kind = local_name(content)
    if kind == "t":
        return content.text or ""
    return "" if kind in NOISE else _HYPHENS.get(kind)
