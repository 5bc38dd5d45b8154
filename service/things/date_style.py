"""Dates in German and English translations, as these languages write them.

A stand-in hides from the model that a date follows, and small models copy the order of English.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from model.bundle.languages import primary_subtag
from model.bundle.spans import Span
from service.things.date_lists import date_lists, list_edits
from service.things.date_scan import dates_to_keep, is_in_name, may_have, search_before
from service.things.dates import Date, dates_in, days_of, ending_of, is_month, months_of, names_of
from service.things.edits import Edit
from service.things.wanted import overlap

_DAYS, _MONTHS = "|".join(days_of("de")), "|".join(months_of("de"))
_ENGLISH_MONTHS = "|".join(months_of("en"))
_RANGE = r"(?P<first>\d{1,2})(?P<link>\s?(?:[-–]|bis|und|oder)\s?)(?P<last>\d{1,2})"
# Several days without their points, or behind the month: 1-3. Mai, Mai 1-3.
_SEVERAL = re.compile(
    rf"(?<![\w.,:/–-])(?P<own>(?:{_MONTHS})\s)?(?:{_RANGE}\.?\s(?P<month>{_MONTHS})\b"
    rf"|(?<!\d\s)(?<!\.\s)(?P<before>{_MONTHS})\s{_RANGE.replace('P<', 'P<_')}"
    rf"(?:\.(?=\s\d{{4}}\b))?(?!\w|[.,:]\d|\.?\s(?:{_MONTHS})))"
)
# A day without its point, or behind the month: 3 Mai, Mai 3.
_ONE = re.compile(
    rf"(?<![\w.,:/–-])(?P<day>\d{{1,2}})\s(?P<month>{_MONTHS})\b"
    rf"|(?<!\d\s)(?<!\.\s)\b(?P<before>{_MONTHS})\s(?P<behind>\d{{1,2}})"
    rf"(?:\.(?=\s[\da-zäöü]))?(?!\w|[.,:–-]\d|\.?\s(?:{_MONTHS}))"
)
# Before a month whose number counts something: "im Mai 3 Leute".
_MONTH_ALONE = re.compile(
    r"\b(?:im|Anfang|Mitte|Ende|späten|frühen|zwischen|und|seit)\s\Z", re.IGNORECASE
)
_PREPOSITION = re.compile(r"\b(auf|in|von)\s\Z", re.IGNORECASE)
_ENGLISH_PREPOSITION = re.compile(r"\b(on|in|during|from)\s(?:the\s)?\Z", re.IGNORECASE)
# Verbs with "auf", and nights from one day to the next.
_WITH_AUF = re.compile(
    r"\b(?:focus\w*|f[ae]ll\w*|forward|depend\w*|konzentrier\w*|freu\w*|fäll\w*|fiel\w*"
    r"|versch[oi]\w*|verleg\w*|gelegt|over)\b|night",
    re.IGNORECASE,
)
_FROM_DAY_TO_DAY = re.compile(
    rf"(?<!von\s)(?<!vom\s)\b(?P<first>{_DAYS})\s(?P<auf>auf)\s(?P<last>{_DAYS})\b(?!-)"
)
_MIDDLE = re.compile(
    rf"\b(?:in(?:\sder)?|im|am|zum|zur)\s(?=Mitte\s(?:{_MONTHS})\b)", re.IGNORECASE
)
_BEFORE_YEAR = re.compile(r",(?=\s((?:1\d|20)\d\d)\b)")
_ENGLISH = re.compile(
    rf"\b(?P<the>[Tt]he\s)?(?P<day>\d{{1,2}})(?P<end>\.|th|st|nd|rd)?\s(?P<month>{_ENGLISH_MONTHS})\b"
    r"(?!\s(?:\d{4}\s)?[a-z]{4})"  # the 9 May celebrations
)


def ordered(source: str, text: str, languages: tuple[str, str]) -> list[Edit]:
    """The edits that write the days of a month in the order of a German translation.

    Args:
        source: the sentence; none is edited unless it is English.
        text: its translation.
        languages: BCP-47 codes of the sentence and of the translation.
    """
    may_be = _are_english_german(languages) and may_have(source, "en")
    return list(_ordered(source, text)) if may_be else []


def _ordered(source: str, text: str) -> Iterator[Edit]:
    edits = list(list_edits(source, text))
    yield from edits
    days = {date for _, date in dates_in(source, "en")}
    for match in _SEVERAL.finditer(text):
        span = Span(*match.span())
        if match["own"] or any(overlap(span, edit.span) for edit in edits):
            continue  # Mai 30 - 2. Juni
        mark = "_" if match["before"] is not None else ""
        first, link, last = (match[f"{mark}{part}"] for part in ("first", "link", "last"))
        month = match["before"] or match["month"]
        number = names_of("de").index(month)
        both = {Date(number, int(first)), Date(number, int(last))}
        if both <= days and int(first) < int(last):
            yield Edit(span, f"{first}.{link.replace('-', '–')}{last}. {month}")
    dates = {date for _, date in dates_to_keep(source, "en")}
    for match in _ONE.finditer(text):
        month = match["month"] or match["before"]
        date = Date(names_of("de").index(month), int(match["day"] or match["behind"]))
        span = Span(*match.span())
        is_count = match["before"] and search_before(_MONTH_ALONE, text, span)
        is_done = any(overlap(span, e.span) for e in edits) or _SEVERAL.match(text, span.start)
        if date in dates and not is_count and not is_done:
            yield Edit(span, date.written("de"))


def corrected(source: str, text: str, languages: tuple[str, str]) -> list[Edit]:
    """The edits that correct the words and signs around dates: "am 4. Oktober", "the 3rd of May".

    Args:
        source: the sentence, in English or German.
        text: its translation.
        languages: BCP-47 codes of the sentence and of the translation.
    """
    if not may_have(source, languages[0]):
        return []
    if _are_english_german(languages):
        return list(_german(source, text))
    is_english = tuple(map(primary_subtag, languages)) == ("de", "en")
    return list(_english(source, text)) if is_english else []


def _are_english_german(languages: tuple[str, str]) -> bool:
    return tuple(map(primary_subtag, languages)) == ("en", "de")


def _german(source: str, text: str) -> Iterator[Edit]:
    kept = list(dates_to_keep(source, "en"))
    if not kept:
        return
    counts = Counter(date for _, date in kept)
    kept += [(each.span, each.days[0]) for each in date_lists(source) if not counts[each.days[0]]]
    prepositions = {date: _english_preposition(source, span) for span, date in kept}
    has_auf = _WITH_AUF.search(source) is not None or _WITH_AUF.search(text) is not None
    names = {date for span, date in kept if is_in_name(source, span, "en")}
    for span, date in dates_in(text, "de"):
        if date not in prepositions or text[span.end : span.end + 1] == "-":
            continue
        match = search_before(_PREPOSITION, text, span)
        if match is not None:
            may_be_auf = prepositions[date] == "on" and not has_auf and counts[date] == 1
            put = _contracted(match[1].lower(), date, prepositions[date], may_be_auf=may_be_auf)
            if put and (date.day or date not in names):
                yield Edit(Span(*match.span(1)), put.title() if match[1].istitle() else put)
        comma = _BEFORE_YEAR.match(text, span.end) if date.day else None
        if comma is not None and f", {comma[1]}" in source:
            yield Edit(Span(comma.start(), comma.end()), "")
    for match in _FROM_DAY_TO_DAY.finditer(text):
        first, last = (names_of("en")[names_of("de").index(match[n])] for n in ("first", "last"))
        if f"{first} to {last}" in source and not has_auf:
            yield Edit(Span(*match.span("auf")), "bis")
    if "mid-" in source.lower():
        for match in _MIDDLE.finditer(text):
            yield Edit(Span(*match.span()), "")


def _english_preposition(source: str, span: Span) -> str:
    match = search_before(_ENGLISH_PREPOSITION, source, span)
    return match[1].lower() if match else ""


def _contracted(word: str, date: Date, preposition: str, *, may_be_auf: bool) -> str:
    """The German preposition in place of a word before a date; empty to leave it."""
    if date.day:
        if word == "von":
            return "vom"
        is_on = may_be_auf if word == "auf" else preposition == "on"
        return "am" if is_on else ""
    if is_month(date.number):
        return "im" if word == "in" and preposition in ("in", "during") else ""
    return "am" if word == "auf" and may_be_auf else ""


def _english(source: str, text: str) -> Iterator[Edit]:
    dates = {date for _, date in dates_to_keep(source, "de")}
    for match in _ENGLISH.finditer(text) if dates else ():
        day, month = int(match["day"]), match["month"]
        date, ending = Date(names_of("en").index(month), day), ending_of(day)
        if date not in dates:
            continue
        if match["the"]:
            yield Edit(Span(*match.span()), f"{match['the']}{day}{ending} of {month}")
        elif match["end"] is not None and match["end"] != ending:
            yield Edit(Span(*match.span()), date.written("en"))
