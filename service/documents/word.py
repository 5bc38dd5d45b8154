"""Word documents (.docx): paragraphs of the text, heads, feet, notes, comments and text boxes.

A paragraph is cut at tabs, line breaks and fields, whose places are kept; each part with words is a
segment. Runs of text with the same formatting are one. The formatting that most of a segment has
needs no tag, so that only the differences travel through the translation.
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from lxml import etree

from service.documents.archive import Archive
from service.documents.document import DocumentLimits, DocumentSegment, bad_document
from service.documents.inline import (
    InlineAtom,
    InlineEnd,
    InlineItem,
    InlineStart,
    InlineText,
    from_html,
    to_html,
)
from service.documents.xml_parts import Element, local_name, namespace, parse_xml, write_xml
from service.text.options import MimeType

_PART = re.compile(
    r"word/(?:document|header\d{0,4}|footer\d{0,4}|footnotes|endnotes|comments)\.xml"
)
_MAIN = "word/document.xml"
_NAMESPACES = (
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
    "http://purl.oclc.org/ooxml/wordprocessingml/main",  # strict
)
_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
# Elements around runs, which are part of a sentence.
_CONTAINERS = {"hyperlink", "ins", "smartTag", "moveTo", "dir", "bdo"}
# Marks of checkers and of the last layout, which say nothing about another text.
_NOISE = {"proofErr", "lastRenderedPageBreak", "noProof", "lang"}
_HYPHENS = {"noBreakHyphen": "\u2011", "softHyphen": ""}
# What ends a segment where it stands in a run.
_BREAKS = {"tab", "br", "cr", "ptab", "fldChar", "instrText", "delInstrText"}


@dataclass
class _Group:
    """Neighbouring children of one parent: a segment.

    Attributes:
        parent: their parent.
        children: in order.
        items: their text and the elements in it.
        elements: by number: formats (`w:rPr`, or None for no format), containers, and others.
        base: the format of text outside of any format.
        name: the prefix of tags of the document.
    """

    parent: Element
    name: str
    children: list[Element] = field(default_factory=list)
    items: list[InlineItem] = field(default_factory=list)
    elements: list[Element | None] = field(default_factory=list)
    base: Element | None = None

    def read(self) -> bool:
        """Make the items; whether there are words."""
        texts = [*self._texts(self.children)]
        weights: Counter[bytes] = Counter()
        for run, text in texts:
            weights[_format_key(run)] += len(text)
        if not any(any(map(str.isalpha, text)) for _, text in texts):
            return False
        [(base, _)] = weights.most_common(1)
        self.base = next(_format(run) for run, _ in texts if _format_key(run) == base)
        self._add(self.children, base)
        self.items = _merged(self.items)
        return True

    def _texts(self, children: Sequence[Element]) -> Iterator[tuple[Element, str]]:
        for child in children:
            if local_name(child) == "r":
                if (text := _text_of(child)) is not None:
                    yield child, text
            elif local_name(child) in _CONTAINERS:
                yield from self._texts(list(child))

    def _add(self, children: Sequence[Element], base: bytes) -> None:
        before: tuple[bytes, int] | None = None  # the format of the last item, if it is a run's
        for child in children:
            kind = local_name(child)
            if kind in _NOISE:
                continue
            if kind in _CONTAINERS:
                self.items.append(InlineStart(self._number(child)))
                self._add(list(child), base)
                self.items.append(InlineEnd())
                before = None
            elif kind == "r" and (text := _text_of(child)) is not None:
                key = _format_key(child)
                if not text:
                    continue
                if key == base:
                    self.items.append(InlineText(text))
                    before = None
                elif before is not None and before[0] == key:
                    self.items[-1:] = [InlineText(text), InlineEnd()]
                else:
                    number = self._number(_format(child))
                    self.items += [InlineStart(number), InlineText(text), InlineEnd()]
                    before = key, number
            else:
                self.items.append(InlineAtom(self._number(child)))
                before = None

    def _number(self, element: Element | None) -> int:
        self.elements.append(element)
        return len(self.elements) - 1

    @property
    def segment(self) -> DocumentSegment:
        """What is to be translated."""
        if all(isinstance(item, InlineText) for item in self.items):
            return DocumentSegment(
                "".join(item.text for item in self.items if isinstance(item, InlineText))
            )
        return DocumentSegment(to_html(self.items), MimeType.HTML)

    def write(self, translation: str) -> None:
        """Put the translation in place of the children."""
        is_html = self.segment.is_html
        items = from_html(translation, self.items) if is_html else [InlineText(translation)]
        # In linear time: the index of a child takes as long as there are children.
        mark = self.parent.makeelement("mark")
        self.children[0].addprevious(mark)
        for child in self.children:
            self.parent.remove(child)
        made = self.parent.makeelement("made")
        path, formats = [made], [self.base]
        opened: list[bool] = []  # whether each open element is a container
        for item in items:
            if isinstance(item, InlineEnd):
                if opened.pop():
                    path.pop()
                else:
                    formats.pop()
            elif isinstance(item, InlineText):
                path[-1].append(self._run(item.text, formats[-1]))
            elif isinstance(item, InlineAtom):
                element = self.elements[item.number]
                assert element is not None
                path[-1].append(element)
            else:
                element = self.elements[item.number]
                is_container = element is not None and local_name(element) != "rPr"
                opened.append(is_container)
                if element is not None and is_container:
                    new = element.makeelement(
                        element.tag, dict(element.attrib), nsmap=element.nsmap
                    )
                    path[-1].append(new)
                    path.append(new)
                else:
                    formats.append(element)
        for child in list(made):
            mark.addprevious(child)
        self.parent.remove(mark)

    def _run(self, text: str, form: Element | None) -> Element:
        run = self.parent.makeelement(f"{self.name}r")
        if form is not None:
            run.append(copy.deepcopy(form))
        content = etree.SubElement(run, f"{self.name}t")
        content.text = _printable(text)
        content.set(_SPACE, "preserve")
        return run


class WordDocument:
    """A document of Word and others.

    Args:
        data: the file.
        limits: of its parts.

    Raises:
        InvalidArgumentError: it is no such document, or exceeds a limit.
    """

    def __init__(self, data: bytes, limits: DocumentLimits) -> None:
        self._archive = Archive(data, limits)
        if _MAIN not in self._archive.names:
            raise bad_document(f"has no part {_MAIN}: it is no Word document")
        self._parts: list[tuple[str, bytes, Element, list[_Group]]] = []
        segments: list[DocumentSegment] = []
        for name in filter(_PART.fullmatch, self._archive.names):
            source = self._archive.read(name)
            root = parse_xml(source, name)
            if namespace(root) not in _NAMESPACES:
                raise bad_document(f"{name} is no part of a Word document")
            groups = _groups_of(root)
            self._parts.append((name, source, root, groups))
            segments += [group.segment for group in groups]
            limits.check_segments(len(segments))
        self.segments: Sequence[DocumentSegment] = segments

    def write(self, translations: Sequence[str]) -> bytes:
        """The file with these texts."""
        remaining = iter(translations)
        changed = {}
        for name, source, root, groups in self._parts:
            is_changed = False
            for group in groups:
                text = next(remaining)
                if text != group.segment.text:
                    group.write(text)
                    is_changed = True
            if is_changed:
                changed[name] = write_xml(root, source)
        return self._archive.write(changed)


def _groups_of(root: Element) -> list[_Group]:
    """The segments of a part. Runs with several contents become several runs."""
    name = f"{{{namespace(root)}}}"
    groups = []
    for paragraph in list(root.iter(f"{name}p")):
        _split_runs(paragraph, name)
        groups += [group for group in _groups(paragraph, name) if group.read()]
    return groups


def _split_runs(parent: Element, name: str) -> None:
    """Give each run of a paragraph one content only; not those of text boxes inside of it."""
    for child in list(parent):
        if child.tag == f"{name}r":
            contents = [each for each in child if each.tag != f"{name}rPr"]
            if len(contents) < 2:
                continue
            form = child.find(f"{name}rPr")
            last = child
            for content in contents[1:]:
                run = child.makeelement(child.tag, dict(child.attrib))
                if form is not None:
                    run.append(copy.deepcopy(form))
                run.append(content)
                last.addnext(run)
                last = run
        elif local_name(child) in (*_CONTAINERS, "fldSimple", "sdt", "sdtContent"):
            _split_runs(child, name)


def _groups(parent: Element, name: str) -> Iterator[_Group]:
    """Neighbouring children without a break between them."""
    group = _Group(parent, name)
    for child in list(parent):
        kind = local_name(child)
        if kind in _NOISE:
            continue
        ends = kind in ("pPr", "fldSimple", "sdt", "sdtContent", "sdtPr", "sdtEndPr", "p", "tbl")
        if ends or _has_break(child, name):
            if group.children:
                yield group
            group = _Group(parent, name)
            if kind in _CONTAINERS or kind in ("fldSimple", "sdt", "sdtContent"):
                yield from _groups(child, name)
        else:
            group.children.append(child)
    if group.children:
        yield group


def _has_break(child: Element, name: str) -> bool:
    kind = local_name(child)
    if kind == "r":
        return any(local_name(content) in _BREAKS for content in child)
    if kind in _CONTAINERS:
        return any(
            _has_break(each, name) or local_name(each) in ("fldSimple", "sdt") for each in child
        )
    return False


def _text_of(run: Element) -> str | None:
    """The text of a run with one content; None if that is something else."""
    contents = [each for each in run if local_name(each) != "rPr"]
    if not contents:
        return ""
    kind = local_name(contents[0])
    if kind == "t":
        return contents[0].text or ""
    return "" if kind in _NOISE else _HYPHENS.get(kind)


def _format(run: Element) -> Element | None:
    return next((each for each in run if local_name(each) == "rPr"), None)


def _format_key(run: Element) -> bytes:
    """The same for runs that look the same."""
    form = _format(run)
    if form is None:
        return b""
    return b"".join(
        bytes(etree.tostring(each, with_tail=False))
        for each in sorted(form, key=local_name)
        if local_name(each) not in _NOISE
    )


def _merged(items: Sequence[InlineItem]) -> list[InlineItem]:
    """Items where neighbouring texts are one."""
    merged: list[InlineItem] = []
    for item in items:
        if isinstance(item, InlineText) and merged and isinstance(last := merged[-1], InlineText):
            merged[-1] = InlineText(last.text + item.text)
        else:
            merged.append(item)
    return merged


def _printable(text: str) -> str:
    """Text without characters that XML can't hold."""
    return "".join(c if c in "\t\n" or ord(c) >= 32 else " " for c in text)
