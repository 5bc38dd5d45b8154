"""States of segments that translation programs write into XLIFF files.

SDL Trados lists the segments of a unit in its `seg-defs`; memoQ and Memsource have attributes of
units. All of these are in namespaces of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from service.documents.xml_parts import Element

_YES = ("true", "yes", "1", "locked")
# Trados: Translated, ApprovedTranslation; memoQ: ManuallyConfirmed, Proofread; Memsource: 1.
_CONFIRMED = re.compile(r"translated|approved.*|.*confirmed|proofread|true|1", re.IGNORECASE)
_STATES = ("conf", "status", "confirmed")
_BREAK = re.compile(
    r"lb|pb|xlf:[lp]b|x-(?:html-)?br|<br(?:\b[^<>]{0,200}|[0-9]{0,9}/?)>", re.IGNORECASE
)


def is_break(*kinds: str) -> bool:
    """Whether an inline element breaks the line, by its types or its code: `lb`, or `<br/>`."""
    return any(_BREAK.fullmatch(kind.strip()) for kind in kinds)


@dataclass(frozen=True)
class UnitNotes:
    """A program's notes of a unit.

    Attributes:
        locked: names of segments that may not be changed; "" for the unit.
        confirmed: names of segments whose translation a translator has confirmed; "" for the unit.
    """

    locked: frozenset[str]
    confirmed: frozenset[str]

    @classmethod
    def of(cls, unit: Element) -> UnitNotes:
        """Read the notes of a unit."""
        notes = list(_notes(unit))
        return cls(
            frozenset(mid for mid, name, value in notes if name == "locked" and value in _YES),
            frozenset(
                mid for mid, name, value in notes if name in _STATES and _CONFIRMED.fullmatch(value)
            ),
        )

    def is_locked(self, mid: str | None) -> bool:
        """Whether a segment may not be changed; with None, the unit, which is not divided."""
        return bool(self.locked if mid is None else self.locked & {"", mid})

    def is_confirmed(self, mid: str | None) -> bool:
        """Whether the translation of a segment is confirmed; with None, that of the unit."""
        return bool(self.confirmed if mid is None else self.confirmed & {"", mid})


def _notes(unit: Element) -> Iterator[tuple[str, str, str]]:
    """The segment, the name and the value of each note; the segment is "" for the unit's own."""
    for name, value in unit.items():
        if str(name).startswith("{"):
            yield "", str(name).rpartition("}")[2], str(value).lower()
    for listed in unit.iterfind("{*}seg-defs/{*}seg"):
        for name, value in listed.items():
            yield listed.get("id", ""), str(name), str(value).lower()
