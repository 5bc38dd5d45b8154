"""XLIFF 1.2 and 2.0: units without a finished target are translated, and their state is set.

A unit of version 1.2 may be divided: its `seg-source` has an element `mrk` for each segment. Each
segment is translated by itself, and the target gets the same elements, by which programs find the
segments. Units are not nested, and neither are segments.
"""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lxml import etree

from service.documents.document import (
    DocumentCounts,
    DocumentLimits,
    DocumentSegment,
    bad_document,
)
from service.documents.languages import check_target
from service.documents.mixed_content import InlineKind, MixedContent
from service.documents.xliff_states import UnitNotes, is_break
from service.documents.xml_parts import (
    Element,
    drop,
    local_name,
    namespace,
    parse_xml,
    write_xml,
)

# Types of elements above or below the line, such as x-sup and x-html-sub.
_SCRIPT = re.compile(r"\b(?:sup|sub)(?:script)?\b", re.IGNORECASE)
_PAIRS = {"g", "mrk", "pc"}
# Elements that stand for a value, unless they say that they are formatting or an image.
_VALUES = {"x", "ph"}
_VALUE_TYPES = ("", "other", "ui")
# States of targets that are not translated, or have to be translated again.
_OPEN_STATES = {"new", "needs-translation", "initial", ""}
_SPACE = "{http://www.w3.org/XML/1998/namespace}space"


@dataclass(frozen=True)
class _Unit:
    """A source and the place of its translation.

    Attributes:
        holder: the trans-unit (1.2) or the segment (2.0).
        content: content to translate: the source, or a segment of it.
        mid: name of the segment in a divided unit; None in others.
    """

    holder: Element
    source: Element
    content: MixedContent
    mid: str | None = None


class Xliff:
    """An XLIFF file.

    Raises:
        InvalidArgumentError: the file is not XLIFF, or exceeds a limit.
    """

    def __init__(self, data: bytes, limits: DocumentLimits) -> None:
        self._data = data
        self._root = parse_xml(data, DocumentCounts(limits), has_doctype=True)
        version = self._root.get("version", "")
        self._namespace = namespace(self._root)
        is_xliff = local_name(self._root) == "xliff"
        if not is_xliff or not version.startswith(("1.", "2.")):
            raise bad_document("is no XLIFF file of version 1.2 or 2.0")
        self._is_v1 = version.startswith("1.")
        self._holders = self._named("trans-unit" if self._is_v1 else "segment")
        self._are_copies = self._has_only_copies()
        # Whether the elements around units are translated; each is examined once.
        self._translates: dict[Element, bool] = {}
        self._units: list[_Unit] = []
        for unit in self._all_units():
            if unit.content.items:
                self._units.append(unit)
                limits.check_segments(len(self._units))
        self.segments: Sequence[DocumentSegment] = [
            unit.content.segment for unit in self._units if unit.content.has_words
        ]

    def set_language(self, language: str) -> None:
        """Name the target language where the file does not.

        Raises:
            InvalidArgumentError: the file says that its targets are in another language.
        """
        name, places = self._language_places()
        for place in places:
            if found := place.get(name):
                check_target(found, language, name)
            else:
                place.set(name, language)

    def write(self, translations: Sequence[str]) -> bytes:
        """Write the file with these targets."""
        if not self._units:
            return self._data
        remaining = iter(translations)
        # A text without words is its own translation.
        pairs = [
            (
                unit,
                unit.content.translated(next(remaining))
                if unit.content.has_words
                else unit.content.items,
            )
            for unit in self._units
        ]
        for _, group in itertools.groupby(pairs, lambda pair: pair[0].holder):
            same = list(group)
            holder, target = same[0][0].holder, self._target(same[0][0])
            places = self._places([unit for unit, _ in same], target)
            for (unit, items), place in zip(same, places, strict=True):
                unit.content.write(place, items, copies=True)
            if self._is_v1:
                target.set("state", "needs-review-translation")
                target.set("state-qualifier", "mt-suggestion")
            else:
                holder.set("state", "translated")
        return write_xml(self._root, self._data)

    def _language_places(self) -> tuple[str, list[Element]]:
        """The attribute that names the target language, and the elements that have it."""
        if not self._is_v1:
            return "trgLang", [self._root]
        holders = {unit.holder: None for unit in self._units}
        files = (next(each.iterancestors(self._named("file")), None) for each in holders)
        return "target-language", list(dict.fromkeys(file for file in files if file is not None))

    def _all_units(self) -> Iterator[_Unit]:
        walk = etree.iterwalk(self._root, events=("start",), tag=self._holders)
        for _, holder in walk:
            walk.skip_subtree()
            source = holder.find(self._named("source"))
            if source is None or holder.get("approved") == "yes" or not self._is_translated(holder):
                continue
            target = holder.find(self._named("target"))
            segments = _segments(holder.find(self._named("seg-source"))) if self._is_v1 else {}
            done, notes = _segments(target), UnitNotes.of(holder)
            if segments and (done or self._is_open(holder, target)):
                for mid, segment in segments.items():
                    is_open = mid not in done or self._is_open(holder, target, done[mid])
                    if is_open and not self._is_kept(notes, done.get(mid), mid):
                        yield _Unit(holder, source, MixedContent.of(segment, _classify), mid)
            elif self._is_open(holder, target) and not self._is_kept(notes, target):
                yield _Unit(holder, source, MixedContent.of(source, _classify))

    def _has_only_copies(self) -> bool:
        """Whether each target is a copy of its source, as some programs write new files."""
        num_copies = 0
        for holder in self._root.iter(self._holders):
            for source, target in self._pairs(holder):
                if text := _letters(target):
                    if _letters(source) != text:
                        return False
                    num_copies += 1
        return num_copies > 0

    def _pairs(self, holder: Element) -> Iterator[tuple[Element, Element]]:
        """The source and the target of a unit, or of each of its segments."""
        source, target = (holder.find(self._named(name)) for name in ("source", "target"))
        if source is not None and target is not None:
            segments, done = _segments(holder.find(self._named("seg-source"))), _segments(target)
            if segments and done:
                yield from ((segments.get(mid, source), segment) for mid, segment in done.items())
            else:
                yield source, target

    def _is_translated(self, element: Element) -> bool:
        """Whether an element is translated, by its own attribute or that of an ancestor."""
        said: str | None = element.get("translate")
        if said:
            return said != "no"
        parent = element.getparent()
        if parent is None:
            return True
        if parent not in self._translates:
            self._translates[parent] = self._is_translated(parent)
        return self._translates[parent]

    def _named(self, name: str) -> str:
        """The name of an element with the namespace of the file."""
        return f"{{{self._namespace}}}{name}" if self._namespace else name

    def _is_kept(self, notes: UnitNotes, target: Element | None, mid: str | None = None) -> bool:
        """Whether a translator has locked the target of a unit or segment, or confirmed a copy."""
        is_copy = self._are_copies and target is not None and not _is_empty(target)
        return notes.is_locked(mid) or (is_copy and notes.is_confirmed(mid))

    def _is_open(
        self, holder: Element, target: Element | None, segment: Element | None = None
    ) -> bool:
        """Whether a unit, or a segment of its target, has no finished translation."""
        state = holder.get("state", "") if not self._is_v1 else ""
        if target is None:
            return state in _OPEN_STATES
        if self._is_v1:
            state = target.get("state", "")
        if _is_empty(target if segment is None else segment):
            return True
        return state in _OPEN_STATES if state else self._are_copies

    def _places(self, units: Sequence[_Unit], target: Element) -> list[Element]:
        """The elements for the translations of a holder's units: its target, or its segments."""
        if units[0].mid is None:
            return [target]
        segments = _segments(target)
        divided = units[0].holder.find(self._named("seg-source"))
        assert divided is not None, "its segments are the units"
        if not _segments(divided).keys() <= segments.keys():
            segments = _divide(target, divided, segments)
        return [segments[unit.mid or ""] for unit in units]

    def _target(self, unit: _Unit) -> Element:
        """The target of a unit; if there is none, it is made after the source."""
        name = self._named("target")
        target = unit.holder.find(name)
        if target is None:
            target = unit.source.makeelement(name)
            if (space := unit.source.get(_SPACE)) is not None:
                target.set(_SPACE, space)
            # After the segmented source, which stands between source and target in version 1.2.
            before = unit.holder.find(self._named("seg-source"))
            before = unit.source if before is None else before
            before.addnext(target)  # the text that follows `before` now follows the target
        return target


def _segments(divided: Element | None) -> dict[str, Element]:
    """The segments of a source or a target by name.

    It is empty if a name is missing or occurs twice, or if segments are nested.
    """
    if divided is None:
        return {}
    segments: dict[str, Element] = {}
    inside = 0
    for event, element in etree.iterwalk(divided, events=("start", "end"), tag="{*}mrk"):
        if not _is_segment(element):
            continue
        inside += 1 if event == "start" else -1
        if event == "start":
            mid = element.get("mid", "")
            if inside > 1 or not mid or mid in segments:
                return {}
            segments[mid] = element
    return segments


def _is_segment(element: Element) -> bool:
    return local_name(element) == "mrk" and element.get("mtype") == "seg"


def _letters(element: Element) -> str:
    """The text of an element without white space, which programs divide it at."""
    return "".join("".join(element.itertext()).split())


def _is_empty(element: Element) -> bool:
    return not "".join(element.itertext()).strip()


def _divide(target: Element, divided: Element, done: dict[str, Element]) -> dict[str, Element]:
    """Divide a target like its source, and return its segments.

    Args:
        target: target to divide; only its translated segments stay.
        done: segments of the target, which are copied; nothing may refer to the old ones.
    """
    kept = {mid: copy.deepcopy(each) for mid, each in done.items() if not _is_empty(each)}
    done.clear()
    del target[:]
    target.text = divided.text
    for child in divided:
        target.append(copy.deepcopy(child))
    made = _segments(target)
    for mid, segment in kept.items():
        if mid in made:
            segment.tail = made[mid].tail
            made[mid].addprevious(segment)
            drop(made[mid])
            made[mid] = segment
    return made


def _classify(element: Element) -> InlineKind:
    name = local_name(element)
    if not name:  # a comment or an instruction
        return InlineKind.ATOM
    kinds = [element.get(each, "") for each in ("ctype", "type", "subType")]
    shown = element.get("equiv-text") or element.get("disp") or element.get("equiv") or element.text
    shown = (shown or "").strip()
    if name == "mrk" and (element.get("mtype") == "protected" or element.get("translate") == "no"):
        return InlineKind.VALUE
    if name in _PAIRS:
        is_script = _SCRIPT.search(" ".join(kinds))
        return InlineKind.SCRIPT if is_script else InlineKind.PAIR
    if is_break(*kinds, shown):
        return InlineKind.BREAK
    is_value = (
        name in _VALUES
        and all(kind in _VALUE_TYPES for kind in kinds)
        and not shown.startswith(("<", "&lt;"))
        and not _is_glued(element)
    )
    return InlineKind.VALUE if is_value else InlineKind.ATOM


def _is_glued(element: Element) -> bool:
    """Whether a word touches an element."""
    parent, before = element.getparent(), element.getprevious()
    text = before.tail if before is not None else parent.text if parent is not None else ""
    return (text or "")[-1:].isalnum() or (element.tail or "")[:1].isalnum()
