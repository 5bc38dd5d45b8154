"""Text with elements in it, as XLIFF and OpenDocument have it: to items, and back."""

from __future__ import annotations

import copy
import enum
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from service.documents.document import DocumentSegment
from service.documents.inline import (
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
    """What an element inside of a text is."""

    PAIR = enum.auto()
    """Its content is part of the text."""
    SCRIPT = enum.auto()
    """As PAIR, above or below the line, as the mark of a footnote."""
    ATOM = enum.auto()
    """It is copied with its content."""


Classify = Callable[[Element], InlineKind]


@dataclass
class MixedContent:
    """The text of an element and the elements in it.

    Attributes:
        parent: the element.
        items: in order.
        elements: those that the numbers of the items mean.
    """

    parent: Element
    items: list[InlineItem] = field(default_factory=list)
    elements: list[Element] = field(default_factory=list)
    _repeated: list[Element] = field(default_factory=list)

    @classmethod
    def of(cls, parent: Element, classify: Classify) -> MixedContent:
        """What `parent` holds. Nesting is bounded by the parser."""
        found = cls(parent)
        found._add(parent, classify)
        return found

    def _add(self, parent: Element, classify: Classify) -> None:
        items = self.items
        self._add_text(parent.text)
        for child in parent:
            number = len(self.elements)
            kind = classify(child)
            if kind is not InlineKind.ATOM:
                if items and isinstance(items[-1], InlineEnd) and self._repeats(child):
                    items.pop()  # two neighbours that are formatted alike are one
                    self._repeated.append(child)
                else:
                    self.elements.append(child)
                    items.append(InlineStart(number, kind is InlineKind.SCRIPT))
                self._add(child, classify)
                items.append(InlineEnd())
            else:
                self.elements.append(child)
                items.append(InlineAtom(number))
            self._add_text(child.tail)

    def _repeats(self, child: Element) -> bool:
        """Whether the element that was closed last is a neighbour with the same formatting."""
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

    @property
    def has_words(self) -> bool:
        """Whether there is something to translate."""
        return any(
            isinstance(item, InlineText) and any(map(str.isalpha, item.text)) for item in self.items
        )

    @functools.cached_property
    def segment(self) -> DocumentSegment:
        """What is to be translated."""
        if all(isinstance(item, InlineText) for item in self.items):
            return DocumentSegment(_joined(self.items))
        return DocumentSegment(to_html(self.items), MimeType.HTML)

    def translated(self, translation: str) -> list[InlineItem]:
        """The items of the translation of `segment`."""
        if not self.segment.is_html:
            return [InlineText(translation)]
        return from_html(translation, self.items)

    def write(self, parent: Element, items: Sequence[InlineItem], *, copies: bool) -> None:
        """Put items into an element in place of what it holds.

        Args:
            parent: the element; that of this content, unless copies are put into it.
            items: of a translation, each element once.
            copies: whether to copy elements, or to move them.
        """
        if copies:
            del parent[:]
        parent.text = None
        path: list[tuple[Element, Element | None]] = [(parent, None)]  # with the last child
        for item in items:
            current, last = path[-1]
            if isinstance(item, InlineEnd):
                path.pop()
            elif isinstance(item, InlineText):
                _append_text(current, last, printable(item.text))
            else:
                element = self._copy(item) if copies else self.elements[item.number]
                element.tail = None
                # Moved from place to place within the tree, where its namespaces are declared:
                # to take it out and declare them on it takes quadratic time.
                current.append(element)
                path[-1] = current, element
                if isinstance(item, InlineStart):
                    element.text = None
                    path.append((element, None))
        if not copies:  # what was in those without a number is elsewhere now
            for element in reversed(self._repeated):  # inner ones first
                drop(element)

    def _copy(self, item: InlineStart | InlineAtom) -> Element:
        element = self.elements[item.number]
        if isinstance(item, InlineAtom):
            return copy.deepcopy(element)
        # The namespaces that are declared on it or used by it. Others are declared where it is put;
        # if there were many, each would be compared with all others.
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
    """Add text after the last child of an element; the number of children would take time."""
    if last is not None:
        last.tail = (last.tail or "") + text
    else:
        parent.text = (parent.text or "") + text
