"""XLIFF 1.2 and 2.0: units without a finished target are translated, and their state is set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from service.documents.document import DocumentSegment, bad_document
from service.documents.mixed_content import InlineKind, MixedContent
from service.documents.xml_parts import (
    Element,
    local_name,
    namespace,
    parse_xml,
    write_xml,
)

_PAIRS = {"g", "mrk", "pc"}
# Targets that are no translation yet, or one that has to be made again.
_OPEN_STATES = {"new", "needs-translation", "initial", ""}
_SPACE = "{http://www.w3.org/XML/1998/namespace}space"


@dataclass(frozen=True)
class _Unit:
    """A source and where its translation goes.

    Attributes:
        holder: the trans-unit (1.2) or the segment (2.0).
        source: its element.
        content: what the source holds.
    """

    holder: Element
    source: Element
    content: MixedContent


class Xliff:
    """An XLIFF file.

    Args:
        data: the file.

    Raises:
        InvalidArgumentError: it is no such file.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._root = parse_xml(data)
        version = self._root.get("version", "")
        self._namespace = namespace(self._root)
        is_xliff = local_name(self._root) == "xliff"
        if not is_xliff or not version.startswith(("1.", "2.")):
            raise bad_document("is no XLIFF file of version 1.2 or 2.0")
        self._is_v1 = version.startswith("1.")
        self._units = [unit for unit in self._all_units() if unit.content.has_words]
        self.segments: Sequence[DocumentSegment] = [unit.content.segment for unit in self._units]

    def write(self, translations: Sequence[str]) -> bytes:
        """The file with these targets."""
        if not self._units:
            return self._data
        for unit, text in zip(self._units, translations, strict=True):
            target = self._target(unit)
            unit.content.write(target, unit.content.translated(text), copies=True)
            if self._is_v1:
                target.set("state", "needs-review-translation")
                target.set("state-qualifier", "mt-suggestion")
            else:
                unit.holder.set("state", "translated")
        return write_xml(self._root, self._data)

    def _all_units(self) -> Iterator[_Unit]:
        holders = "trans-unit" if self._is_v1 else "segment"
        prefix = f"{{{self._namespace}}}" if self._namespace else ""
        for holder in self._root.iter(prefix + holders):
            source = holder.find(prefix + "source")
            if source is None or not self._is_open(holder, prefix):
                continue
            yield _Unit(holder, source, MixedContent.of(source, _classify))

    def _is_open(self, holder: Element, prefix: str) -> bool:
        """Whether the unit is to be translated, and not yet translated."""
        ancestors = [holder, *holder.iterancestors()]
        inherited = next((e.get("translate") for e in ancestors if e.get("translate")), "yes")
        if inherited == "no" or holder.get("approved") == "yes":
            return False
        target = holder.find(prefix + "target")
        state = holder.get("state", "") if not self._is_v1 else ""
        if target is None:
            return state in _OPEN_STATES
        if self._is_v1:
            state = target.get("state", "")
        is_empty = not "".join(target.itertext()).strip()
        return is_empty or (state in _OPEN_STATES and state != "")

    def _target(self, unit: _Unit) -> Element:
        """The target of a unit, newly made after its source if there is none."""
        name = f"{{{self._namespace}}}target" if self._namespace else "target"
        target = unit.holder.find(name)
        if target is None:
            target = unit.source.makeelement(name, nsmap=unit.source.nsmap)
            if (space := unit.source.get(_SPACE)) is not None:
                target.set(_SPACE, space)
            # After the segmented source, which version 1.2 puts between the two.
            before = unit.holder.find(f"{{{self._namespace}}}seg-source")
            before = unit.source if before is None else before
            before.addnext(target)  # and before the text that follows it
        return target


def _classify(element: Element) -> InlineKind:
    return InlineKind.PAIR if local_name(element) in _PAIRS else InlineKind.ATOM
