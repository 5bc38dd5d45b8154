"""Word documents (.docx): paragraphs of the text, heads, feet, notes, comments and text boxes.

A paragraph is cut at tabs, line breaks and fields, which keep their places; each part with words is
a segment. Neighbouring runs with the same formatting are merged. The most common formatting of a
segment needs no tag, so that only differences from it travel through the translation.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from lxml import etree

from service.documents.archive import Archive
from service.documents.document import (
    DocumentCounts,
    DocumentLimits,
    DocumentSegment,
    bad_document,
)
from service.documents.inline import (
    InlineAtom,
    InlineEnd,
    InlineItem,
    InlineStart,
    InlineText,
    from_html,
    merged,
    to_html,
)
from service.documents.languages import Script, script_of, with_region
from service.documents.word_runs import NOISE, RunNode, format_of, is_raised, nodes_of
from service.documents.xml_parts import (
    Element,
    add_copy,
    namespace,
    parse_xml,
    printable,
    write_xml,
)
from service.errors import InvalidArgumentError
from service.text.options import MimeType

_PART = re.compile(
    r"word/(?:document|header\d{0,4}|footer\d{0,4}|footnotes|endnotes|comments)\.xml"
)
_LANGUAGES = {Script.WESTERN: "val", Script.ASIAN: "eastAsia", Script.COMPLEX: "bidi"}
_MAIN, _STYLES = "word/document.xml", "word/styles.xml"
_NAMESPACES = (
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
    "http://purl.oclc.org/ooxml/wordprocessingml/main",  # strict
)
_SPACE = "{http://www.w3.org/XML/1998/namespace}space"


@dataclass
class _Group:
    """Neighbouring children of one parent: a segment.

    Attributes:
        name: namespace prefix of the document's tags.
        children: children in order.
        items: text of the children and the elements in it.
        nodes: elements by their number: runs (for their format), containers, and others.
        base: format of text outside of any tag.
    """

    parent: Element
    name: str
    children: list[RunNode] = field(default_factory=list)
    items: list[InlineItem] = field(default_factory=list)
    nodes: list[RunNode] = field(default_factory=list)
    base: Element | None = None

    def read(self) -> bool:
        """Make the items; returns whether they contain words."""
        texts: list[RunNode] = []
        _add_texts(self.children, texts)
        if not any(any(map(str.isalpha, node.text or "")) for node in texts):
            return False
        weights: Counter[int | None] = Counter()
        for node in texts:
            weights[node.look] += len(node.text or "")
        [(base, _)] = weights.most_common(1)
        self.base = next(node.form for node in texts if node.look == base)
        self._add(self.children, base)
        self.items = merged(self.items)
        return True

    def _add(self, children: Sequence[RunNode], base: int | None) -> None:
        before: int | None = None  # the format of the last item, if that is a run
        for child in children:
            if child.kind in NOISE:
                continue
            if child.is_container:
                self.items.append(InlineStart(self._number(child)))
                self._add(child.children, base)
                self.items.append(InlineEnd())
                before = None
            elif child.text is not None:
                if not child.text:
                    continue
                if child.look == base:
                    self.items.append(InlineText(child.text))
                    before = None
                elif before == child.look:
                    self.items[-1:] = [InlineText(child.text), InlineEnd()]
                else:
                    number = self._number(child)
                    start = InlineStart(number, is_raised(child.form))
                    self.items += [start, InlineText(child.text), InlineEnd()]
                    before = child.look
            else:
                self.items.append(InlineAtom(self._number(child)))
                before = None

    def _number(self, node: RunNode) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    @functools.cached_property
    def segment(self) -> DocumentSegment:
        """The segment to translate."""
        if all(isinstance(item, InlineText) for item in self.items):
            return DocumentSegment(
                "".join(item.text for item in self.items if isinstance(item, InlineText))
            )
        return DocumentSegment(to_html(self.items), MimeType.HTML)

    def write(self, translation: str, copies: DocumentCounts) -> None:
        """Put the translation in place of the children."""
        items: Sequence[InlineItem] = [InlineText(translation)]
        if self.segment.is_html:
            items = from_html(translation, self.items)
        texts: list[RunNode] = []
        _add_texts(self.children, texts)
        shared = Counter(node.shared for node in texts if node.shared)
        for run, count in shared.items():
            if count == run.num_contents:
                run.keep_whole()
        forms = {  # taken before the runs with these formats are removed
            number: format_of(node.own_element(copies))
            for number, node in enumerate(self.nodes)
            if node.text is not None
        }
        # A marker, for linear time: to find the index of a child takes time for all children.
        mark = self.parent.makeelement("mark")
        self.children[0].own_element(copies).addprevious(mark)
        for child in self.children:
            child.drop_texts(copies)
        # Other elements are moved within the tree, where their namespaces are declared: taking them
        # out would declare all namespaces on each of them, in quadratic time.
        path: list[Element] = []
        formats = [self.base]
        opened: list[bool] = []  # whether each open element is a container

        def put(element: Element) -> None:
            if path:
                path[-1].append(element)
            else:
                mark.addprevious(element)

        for item in items:
            if isinstance(item, InlineEnd):
                if opened.pop():
                    path.pop()
                else:
                    formats.pop()
            elif isinstance(item, InlineText):
                put(self._run(item.text, formats[-1], copies))
            elif isinstance(item, InlineAtom):
                put(self.nodes[item.number].own_element(copies))
            else:
                node = self.nodes[item.number]
                opened.append(node.is_container)
                if node.is_container:
                    put(node.element)
                    path.append(node.element)
                else:
                    formats.append(forms[item.number])
        self.parent.remove(mark)

    def _run(self, text: str, form: Element | None, copies: DocumentCounts) -> Element:
        run = self.parent.makeelement(f"{self.name}r")
        if form is not None:
            add_copy(copies, form)
            run.append(copy.deepcopy(form))
        content = etree.SubElement(run, f"{self.name}t")
        content.text = printable(text)
        content.set(_SPACE, "preserve")
        return run


class WordDocument:
    """A document of Word and compatible programs.

    Raises:
        InvalidArgumentError: the file is not a Word document, or exceeds a limit.
    """

    def __init__(self, data: bytes, limits: DocumentLimits) -> None:
        self._limits = limits
        self._archive = Archive(data, limits)
        self._language = self._language_name = ""
        if _MAIN not in self._archive.names:
            raise bad_document(f"has no part {_MAIN}: it is no Word document")
        self._parts: list[tuple[str, bytes, Element, list[_Group]]] = []
        segments: list[DocumentSegment] = []
        counts = DocumentCounts(limits)
        for name in filter(_PART.fullmatch, self._archive.names):
            source = self._archive.read(name)
            root = parse_xml(source, counts, name)
            if namespace(root) not in _NAMESPACES:
                raise bad_document(f"{name} is no part of a Word document")
            groups: list[_Group] = []
            for group in _groups_of(root, limits):
                if group.read():
                    groups.append(group)
                    segments.append(group.segment)
                    limits.check_segments(len(segments))
            self._parts.append((name, source, root, groups))
        self.segments: Sequence[DocumentSegment] = segments

    def set_language(self, language: str) -> None:
        """Set the language of the text, which Word checks its spelling for, for `write`."""
        self._language = "-".join(filter(None, with_region(language)))
        self._language_name = _LANGUAGES[script_of(language)]

    def write(self, translations: Sequence[str]) -> bytes:
        """Write the file with these texts in place of the segments.

        Raises:
            InvalidArgumentError: the copied formats exceed the limits of a file.
        """
        remaining = iter(translations)
        changed = {}
        copies = DocumentCounts(self._limits, "copied formats of its runs: ")
        for name, source, root, groups in self._parts:
            is_changed = False
            for group in groups:
                text = next(remaining)
                if text != group.segment.text:
                    group.write(text, copies)
                    is_changed = True
            if is_changed:
                self._name_language(root)
                changed[name] = write_xml(root, source)
        if changed and self._language and _STYLES in self._archive.names:
            source = self._archive.read(_STYLES)
            with contextlib.suppress(InvalidArgumentError):  # Word may read what we don't
                root = parse_xml(source, DocumentCounts(self._limits), _STYLES)
                self._name_language(root)
                changed[_STYLES] = write_xml(root, source)
        return self._archive.write(changed)

    def _name_language(self, root: Element) -> None:
        """Name the language in all formats that have one."""
        name = f"{{{namespace(root)}}}"
        for found in root.iter(f"{name}lang") if self._language else ():
            if f"{name}val" in found.attrib or self._language_name != "val":
                found.set(f"{name}{self._language_name}", self._language)


def _groups_of(root: Element, limits: DocumentLimits) -> Iterator[_Group]:
    """Yield possible segments, in the order of the part's paragraphs."""
    name = f"{{{namespace(root)}}}"
    for paragraph in root.iter(f"{name}p"):
        groups: list[_Group] = []
        _add_groups(paragraph, nodes_of(paragraph, name, limits), name, groups)
        yield from groups


def _add_groups(parent: Element, nodes: Sequence[RunNode], name: str, groups: list[_Group]) -> None:
    """Add groups of neighbouring nodes without a break between them."""
    group = _Group(parent, name)
    for node in nodes:
        if node.kind in NOISE:
            continue
        if not node.is_end:
            group.children.append(node)
            continue
        if group.children:
            groups.append(group)
        group = _Group(parent, name)
        _add_groups(node.element, node.children, name, groups)
    if group.children:
        groups.append(group)


def _add_texts(nodes: Sequence[RunNode], texts: list[RunNode]) -> None:
    """Add the texts of runs, also of those in containers."""
    for node in nodes:
        if node.text is not None:
            texts.append(node)
        elif node.is_container:
            _add_texts(node.children, texts)
