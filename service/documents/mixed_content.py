"""Text with elements in it, in XLIFF and OpenDocument: converted to items, and back."""

from __future__ import annotations

import copy
import enum
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from service.documents.document import DocumentSegment
from service.documents.inline import (
    AtomKind,
    InlineAtom,
    InlineEnd,
    InlineItem,
    InlineStart,
    InlineText,
    from_html,
    to_html,
)
from service.documents.xml_parts import Element, drop, printable
from service.text.options import MimeType


class InlineKind(enum.Enum):
    """The kind of an element inside of a text."""

    PAIR = enum.auto()
    """An element with content that is part of the text."""
    SCRIPT = enum.auto()
    """As PAIR, above or below the line, as the mark of a footnote."""
    ATOM = enum.auto()
    """An element that is copied with its content."""
    BREAK = enum.auto()
    """As ATOM, at the end of a line."""
    VALUE = enum.auto()
    """As ATOM, in place of words: the model reads a placeholder."""


_PAIRS = InlineKind.PAIR, InlineKind.SCRIPT
_ATOMS: dict[InlineKind, AtomKind] = {
    InlineKind.ATOM: "img",
    InlineKind.BREAK: "br",
    InlineKind.VALUE: "code",
}

Classify = Callable[[Element], InlineKind]


@dataclass
class MixedContent:
    """The text of an element and the elements in it.

    Attributes:
        elements: elements by the numbers of the items.
    """

    parent: Element
    items: list[InlineItem] = field(default_factory=list)
    elements: list[Element] = field(default_factory=list)
    _repeated: list[Element] = field(default_factory=list)

    @classmethod
    def of(cls, parent: Element, classify: Classify) -> MixedContent:
        """Read the content of `parent`. The parser has bounded its nesting."""
        found = cls(parent)
        found._add(parent, classify)
        return found

    def _add(self, parent: Element, classify: Classify) -> None:
        items = self.items
        self._add_text(parent.text)
        for child in parent:
            number = len(self.elements)
            kind = classify(child)
            if kind in _PAIRS:
                if items and isinstance(items[-1], InlineEnd) and self._repeats(child):
                    items.pop()  # two neighbours with the same format are merged
                    self._repeated.append(child)
                else:
                    self.elements.append(child)
                    items.append(InlineStart(number, kind is InlineKind.SCRIPT))
                self._add(child, classify)
                items.append(InlineEnd())
            else:
                self.elements.append(child)
                items.append(InlineAtom(number, _ATOMS[kind]))
            self._add_text(child.tail)

    def _repeats(self, child: Element) -> bool:
        """Whether the element before `child` is a direct neighbour with the same format."""
        before = child.getprevious()
        return (
            before is not None
            and not before.tail
            and before.tag == child.tag
            and dict(before.attrib) == dict(child.attrib)
            and not any(name.endswith("id") for name in child.attrib)
        )

    def _add_text(self, text: str | None) -> None:
        if text:
            self.items.append(InlineText(text))

    @functools.cached_property
    def has_words(self) -> bool:
        """Whether there are words to translate."""
        return any(
            isinstance(item, InlineText) and any(map(str.isalpha, item.text)) for item in self.items
        )

    @functools.cached_property
    def segment(self) -> DocumentSegment:
        """The segment to translate."""
        if all(isinstance(item, InlineText) for item in self.items):
            return DocumentSegment(_joined(self.items))
        return DocumentSegment(to_html(self.items), MimeType.HTML)

    def translated(self, translation: str) -> list[InlineItem]:
        """The items of the translation of `segment`."""
        if not self.segment.is_html:
            return [InlineText(translation)]
        return from_html(translation, self.items)

    def write(self, parent: Element, items: Sequence[InlineItem], *, copies: bool) -> None:
        """Replace the content of an element.

        Args:
            parent: the element; without `copies`, the element that this content was read from.
            items: items of a translation, with each element once.
            copies: whether to copy elements instead of moving them.
        """
        if copies:
            del parent[:]
        parent.text = None
        path: list[tuple[Element, Element | None]] = [(parent, None)]  # each with its last child
        for item in items:
            current, last = path[-1]
            if isinstance(item, InlineEnd):
                path.pop()
            elif isinstance(item, InlineText):
                _append_text(current, last, printable(item.text))
            else:
                element = self._copy(item) if copies else self.elements[item.number]
                element.tail = None
                # Moved within the tree, where its namespaces are declared: taking it out would
                # declare all of them on it, in quadratic time.
                current.append(element)
                path[-1] = current, element
                if isinstance(item, InlineStart):
                    element.text = None
                    path.append((element, None))
        if not copies:  # the content of merged elements is elsewhere now
            for element in reversed(self._repeated):  # inner ones first
                drop(element)

    def _copy(self, item: InlineStart | InlineAtom) -> Element:
        element = self.elements[item.number]
        if isinstance(item, InlineAtom):
            return copy.deepcopy(element)
        # Keeps the namespaces that are declared on it or used by it. Others are declared at its new
        # place; if there were many, each would be compared with all others.
        parent = element.getparent()
        around = {} if parent is None else parent.nsmap
        used = {name[1:].partition("}")[0] for name in element.attrib if name[0] == "{"}
        declared = {
            prefix: uri
            for prefix, uri in element.nsmap.items()
            if uri in used or around.get(prefix) != uri
        }
        return element.makeelement(element.tag, dict(element.attrib), nsmap=declared)


def _joined(items: Sequence[InlineItem]) -> str:
    return "".join(item.text for item in items if isinstance(item, InlineText))


def _append_text(parent: Element, last: Element | None, text: str) -> None:
    """Add text after `last`, the last child of an element: finding it takes linear time."""
    if last is not None:
        last.tail = (last.tail or "") + text
    else:
        parent.text = (parent.text or "") + text
