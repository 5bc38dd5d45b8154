"""Dates in German and English translations, as these languages write them.

A stand-in hides from the model that a date follows, and small models copy the order of English.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from model.bundle.spans import Span
from service.things.dates import Date, dates_in, ending_of, names_of
from service.things.edits import Edit
from service.things.number_forms import subtag
from service.things.wanted import overlap

_DAYS, _MONTHS = ("|".join(names_of("de")[part]) for part in (slice(0, 7), slice(7, None)))
_ENGLISH_MONTHS = "|".join(names_of("en")[7:])
_DATE = rf"\d{{1,2}}\.\s(?:{_MONTHS})\b"
_RANGE = r"(?P<first>\d{1,2})(?P<link>\s?(?:[-–/]|bis|und|oder)\s?)(?P<last>\d{1,2})"
# Several days without their points, or behind the month: 1-3. Mai, Mai 1-3.
_SEVERAL = re.compile(
    rf"(?<![\w.,])(?P<own>(?:{_MONTHS})\s)?(?:{_RANGE}\.?\s(?P<month>{_MONTHS})\b"
    rf"|(?<!\d\s)(?<!\.\s)(?P<before>{_MONTHS})\s{_RANGE.replace('P<', 'P<_')}"
    rf"(?:\.(?=\s\d{{4}}\b))?(?!\w|[.,:]\d|\.?\s(?:{_MONTHS})))"
)
# A day without its point, or behind the month: 3 Mai, Mai 3.
_ONE = re.compile(
    rf"(?<![\w.,–-])(?P<day>\d{{1,2}})\s(?P<month>{_MONTHS})\b"
    rf"|(?<!\d\s)(?<!\.\s)\b(?P<before>{_MONTHS})\s(?P<behind>\d{{1,2}})"
    rf"(?:\.(?=\s[\da-zäöü]))?(?!\w|[.,:–-]\d|\.?\s(?:{_MONTHS}))"
)
_NIGHT = re.compile(r"\bnight\b", re.IGNORECASE)
_PREPOSITIONS = (
    ("am", re.compile(rf"\b(?:auf|in)(?=\s{_DATE})", re.IGNORECASE)),
    ("vom", re.compile(rf"\bvon(?=\s(?:\d{{1,2}}\.\s(?:bis|und)\s)?{_DATE})", re.IGNORECASE)),
    ("im", re.compile(rf"\bin(?=\s(?:{_MONTHS})\b(?!-))", re.IGNORECASE)),
)
_MIDDLE = re.compile(
    rf"\b(?:in(?:\sder)?|im|am|zum|zur)\s(?=Mitte\s(?:{_MONTHS})\b)", re.IGNORECASE
)
_ON_DAY = re.compile(rf"\b(?:(?P<day>{_DAYS})\s)?(?P<auf>[Aa]uf)(?=\s(?P<next>{_DAYS})\b(?!-))")
_BEFORE_YEAR = re.compile(rf"\b{_DATE}(?P<comma>,)(?=\s(?P<year>(?:1\d|20)\d\d)\b)")
_ENGLISH = re.compile(
    rf"\b(?P<the>[Tt]he\s)?(?P<day>\d{{1,2}})(?P<end>\.|th|st|nd|rd)?\s(?P<month>{_ENGLISH_MONTHS})\b"
)


def ordered(source: str, text: str, language: str) -> list[Edit]:
    """The edits that write the days of a month in the order of a German translation.

    Args:
        source: the sentence.
        text: its translation.
        language: BCP-47 code of the translation.
    """
    return list(_ordered(source, text)) if subtag(language) == "de" else []


def _ordered(source: str, text: str) -> Iterator[Edit]:
    for match in _SEVERAL.finditer(text):
        if match["own"]:
            continue  # Mai 30 - 2. Juni
        is_behind = match["before"] is not None
        mark = "_" if is_behind else ""
        first, link, last = (match[f"{mark}{part}"] for part in ("first", "link", "last"))
        month = match["before"] or match["month"]
        english = names_of("en")[names_of("de").index(month)]
        if is_behind and f"{english} {first}" not in source:
            continue  # "im Mai 5 bis 9 Leute"
        yield Edit(Span(*match.span()), f"{first}.{link.replace('-', '–')}{last}. {month}")
    dates = {date for _, date in dates_in(source, "en")}
    several = [Span(*match.span()) for match in _SEVERAL.finditer(text)]
    for match in _ONE.finditer(text):
        span, name = Span(*match.span()), match["month"] or match["before"]
        date = Date(names_of("de").index(name), int(match["day"] or match["behind"]))
        if date in dates and not any(overlap(span, other) for other in several):
            yield Edit(span, date.written("de"))


def corrected(source: str, text: str, language: str, dates: Sequence[Span]) -> list[Edit]:
    """The edits that correct the words and signs around dates: "am 4. Oktober", "the 3rd of May".

    Args:
        source: the sentence.
        text: its translation.
        language: BCP-47 code of the translation.
        dates: the places of the sentence's dates in the translation.
    """
    if subtag(language) == "en":
        return list(_english(text, dates))
    if subtag(language) != "de":
        return []
    near = [Span(date.start - 1, date.end + 1) for date in dates]
    found = [e for e in _german(source, text) if any(_touch(e.span, date) for date in near)]
    return found + [Edit(Span(*match.span()), "") for match in _MIDDLE.finditer(text)]


def _touch(one: Span, other: Span) -> bool:
    return one.start <= other.end and other.start <= one.end


def _german(source: str, text: str) -> Iterator[Edit]:
    for put, pattern in _PREPOSITIONS:
        for match in pattern.finditer(text):
            yield Edit(Span(*match.span()), put.title() if match[0].istitle() else put)
    for match in _BEFORE_YEAR.finditer(text):
        if f", {match['year']}" in source:
            yield Edit(Span(*match.span("comma")), "")
    for match in _ON_DAY.finditer(text):
        first, last = (_in_english(match[group]) for group in ("day", "next"))
        span = Span(*match.span("auf"))
        if first and f"{first} to {last}" in source and not _NIGHT.search(source):
            yield Edit(span, "bis")
        elif f"on {last}" in source or f"On {last}" in source:  # not "postponed to Thursday"
            yield Edit(span, "Am" if match["auf"] == "Auf" else "am")


def _english(text: str, dates: Sequence[Span]) -> Iterator[Edit]:
    for match in _ENGLISH.finditer(text):
        if not any(date.start <= match.start("day") < date.end for date in dates):
            continue
        day, month = int(match["day"]), match["month"]
        ending = ending_of(day)
        if match["the"]:
            yield Edit(Span(*match.span()), f"{match['the']}{day}{ending} of {month}")
        elif match["end"] is not None and match["end"] != ending:
            yield Edit(Span(*match.span()), Date(names_of("en").index(month), day).written("en"))


def _in_english(day: str | None) -> str:
    return names_of("en")[names_of("de").index(day)] if day else ""
