"""Finds the days of the week, months and dates of a sentence, which small models lose or confuse.

English and German sentences are searched.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterator

from model.bundle.languages import primary_subtag
from model.bundle.spans import Span
from service.things.dates import (
    OTHER_WORDS,
    SHORT_DAY,
    Date,
    DateName,
    DayOfMonth,
    date_names,
    days_of,
    ending_of,
    is_month,
    months_of,
    names_of,
)

VERBS = frozenset(["May", "March"])  # months that are other words, too
_PERSONS = frozenset([*VERBS, "April", "June", "August"])
_FOUND_IN = frozenset(["de", "en"])
_MOST_BEFORE = 24  # characters that the patterns of what stands before need
_MID = "mid-"
_MIDDLE = re.compile(
    rf"\b(?:in|by|since|until|till|from|to|around|before|after)\s(?P<mid>{_MID})\Z", re.IGNORECASE
)
# Before the name of a month that is no other word and no person: "in May", "May, June and July".
_ENGLISH_MONTHS = "|".join(months_of("en"))
_BEFORE_MONTH = re.compile(
    r"\b(?:in|since|until|till|by|from|to|of|last|next|this|early|mid|late|between|before|after"
    r"|during|throughout|every|each)[\s-]\Z"
    rf"|\b(?:{_ENGLISH_MONTHS})(?:\s?[-–]\s?|,?\s(?:(?:and|or|to)\s)?)\Z",
    re.IGNORECASE,
)
_YEAR_BEHIND = re.compile(r",?\s\d{4}\b")
_HERR = re.compile(r"\b(?:Herrn?|Frau|Dr\.|Familie)\s\Z")
# After these, a number behind the month counts something: "in October 4 people came".
_NO_DAY_BEHIND = re.compile(
    r"\b(?:in|during|throughout|last|next|this|every|each|early|late)\s\Z", re.IGNORECASE
)
# Before and behind a date, where a number behind a month is a day.
_ON = re.compile(rf"\b(?:on|the|{'|'.join(days_of('en'))}),?\s\Z", re.IGNORECASE)
_AFTER_DAY = re.compile(
    r"\s?[,.;:!?)\"”–-]|\s\d{4}\b|\Z|\s(?:a|and|as|at|because|but|for|from|he|i|if|in|is|it|of|on|or|she"
    r"|that|the|then|there|they|this|through|to|until|was|we|when|where|will|with|you)\b",
    re.IGNORECASE,
)
_NO_DATE_BEHIND = re.compile(r"-[^\W\d]|s\b")  # the 2. Juli-Woche
# Before an ordinal that is a fraction or counts: the last third of October, every second October.
_COUNTING = re.compile(
    r"\b(?:an?|one|two|three|last|final|first|middle|second|every|each|their|his|her|its|our|my|your"
    r"|jede[mnrs]?|jeweils|ein|eine[mnrs]?)\s\Z",
    re.IGNORECASE,
)
_GERMAN_DETERMINER = re.compile(
    r"\b(?:am|der|dem|den|des|vom|zum|bis|beim|ab|seit|und|oder)\s\Z", re.IGNORECASE
)
_OF_SUNDAY = re.compile(r"\s(?:school|best)\b")
_NAME_BEFORE = re.compile(r"\b[A-Z][a-z'’]+\s\Z")
_NAME_BEHIND = re.compile(r"\s(?!I\b)[A-Z][a-z]")
_LINK = r"\.?\s?(?:[-–]|to)\s?"
# Beside the abbreviation of a day of the week: a date, or another one in a range.
_AFTER_SHORT = re.compile(
    r"[.,]{0,2}\s(?:\d{1,2}(?:st|nd|rd|th|\.)?\s(?:of\s)?[A-Z][a-z]|[A-Z][a-z]{2,8}\.?\s\d)"
    rf"|(?i:{_LINK}{SHORT_DAY}\b)"
)
_BEFORE_SHORT = re.compile(rf"\b{SHORT_DAY}{_LINK}\Z", re.IGNORECASE)
# Other words for days of the week, in English and in German.
_OTHER_DAYS = re.compile(
    r"\b(?:M[oO]|D[iI]|M[iI]|D[oO]|F[rR]|S[aA]|S[oO])\b|weekday|weekend|\b(?i:mon|tue|wed|thu|fri|sat|sun)[a-z]{0,2}\b"
    r"|(?i:pfingst|fasching|himmelfahrt|oster|easter|whit|shrove|wochen)"
)
_NUMERIC_DATE = re.compile(r"\d[./-]\s?\d")


def may_have(text: str, language: str) -> bool:
    """Whether a text may have a date: a fast scan."""
    if primary_subtag(language) not in _FOUND_IN:
        return False
    lower, parts = text.lower(), _parts(primary_subtag(language))
    return any(map(lower.__contains__, parts[0])) or any(map(text.__contains__, parts[1]))


def dates_to_keep(text: str, language: str) -> Iterator[tuple[Span, Date]]:
    """The dates of an English or German sentence with their places, in order.

    Of several days with one month ("4 and 6 October"), the month is kept; the days are numbers.
    """
    end = 0
    for name in date_names(text, language):
        days = [day for day in name.days if is_day(text, name, day, primary_subtag(language))]
        if len(days) == len(name.days) == 1:
            span, date = days[0].span, Date(name.number, days[0].day)
        elif _is_name(text, name, primary_subtag(language), has_day=bool(days)):
            span, date = name.span, Date(name.number)
            middle = search_before(_MIDDLE, text, span)
            if middle is not None and is_month(name.number):
                span = Span(middle.start("mid"), span.end)
        else:
            continue
        if span.start >= end:
            end = span.end
            yield span, date


def is_in_name(text: str, span: Span, language: str) -> bool:
    """Whether a word may be part of a name: Sunday Times, Black Friday, Ocean's Eleven."""
    if primary_subtag(language) != "en" or not text[span.start].isupper():
        return False
    is_before = search_before(_NAME_BEFORE, text, span) is not None
    return is_before or _NAME_BEHIND.match(text, span.end) is not None


def without_middle(text: str) -> tuple[str, bool]:
    """A date without the "mid-" before it, and whether it had one."""
    is_middle = text[: len(_MID)].lower() == _MID
    return text[len(_MID) :] if is_middle else text, is_middle


def read_as(date: Date, text: str, language: str) -> str | None:
    """The string that the model reads instead of an abbreviation, of capitals, or of "mid-May".

    Args:
        date: the date.
        text: the date in its sentence.
        language: BCP-47 code of the sentence.
    """
    name = names_of(language)[date.number]
    if without_middle(text)[1]:
        return f"the middle of {name}"
    if name.lower() not in text.lower():
        return date.written(language)
    return text.capitalize() if text.isupper() else None


def in_other_words(date: Date, text: str, language: str) -> str | None:
    """Another spelling of a date with a day, in digits; None for the day of a week or a month."""
    if not date.day:
        return None
    written, name = date.written(language), names_of(language)[date.number]
    if primary_subtag(language) != "en":
        return written
    if not any(map(str.isdigit, text)):
        return f"{date.day}{ending_of(date.day)} of {name}"
    return f"{name} {date.day}" if text == written else written


def added_names(source: str, text: str, language: str, target: str) -> list[str]:
    """The first name of a day or month that only an English or German translation has, if any.

    A day of the week is added, too, if the translation has it more often than the sentence. May and
    March are left out: they may be other words.

    Args:
        source: the sentence, in English or German; of others, nothing is found.
        text: the translation.
        language: BCP-47 code of the sentence.
        target: BCP-47 code of the translation.
    """
    if primary_subtag(language) not in _FOUND_IN or not may_have(text, target):
        return []
    known = Counter(name.number for name in date_names(source, language))
    for name in date_names(text, target):
        day, word = not is_month(name.number), text[slice(*name.span)]
        around = text[max(0, name.span.start - 1) : name.span.start], text[name.span.end :][:1]
        is_compound = any(map(str.isalpha, around))  # Ostersonntag, Oktoberfest
        if name.is_short or name.days or is_compound or names_of("en")[name.number] in VERBS:
            continue
        is_known = name.number in known
        if day and is_known:
            known[name.number] -= 1
            is_known = known[name.number] >= 0
        is_hidden = _OTHER_DAYS if day else _NUMERIC_DATE
        if not is_known and is_hidden.search(source) is None:
            return [word]
    return []


def is_day(text: str, name: DateName, day: DayOfMonth, language: str) -> bool:
    """Whether a day of a month is one in a sentence: no count, fraction, or part of a word."""
    if not _is_whole(text, name.span) or _NO_DATE_BEHIND.match(text, day.span.end):
        return False
    if language == "de":
        is_said = day.is_in_words and search_before(_GERMAN_DETERMINER, text, day.span) is None
        return not (day.is_behind or is_said)
    if day.is_behind:
        if search_before(_NO_DAY_BEHIND, text, name.span) is not None:
            return False
        # Elsewhere, it may count: "Since April 10 people died", "May 3 people come in?"
        is_clear = text[day.span.end - 1].isalpha() or search_before(_ON, text, name.span)
        return bool(is_clear) or _AFTER_DAY.match(text, day.span.end) is not None
    if not day.is_in_words:
        return True
    has_of = re.search(r"\sof\s\Z", text[day.span.start : name.span.start]) is not None
    is_plural = "s of" in text[day.span.start : name.span.start]
    return has_of and not is_plural and search_before(_COUNTING, text, day.span) is None


def _is_name(text: str, name: DateName, language: str, *, has_day: bool) -> bool:
    """Whether a name is that of a day or month: no other word, part of a word, or person."""
    word = text[slice(*name.span)]
    if not _is_whole(text, name.span):
        return False
    if name.is_short:
        is_day = language == "en" and not is_month(name.number)
        return is_day and _is_short_day(text, name.span)
    if language == "de":
        return word.lower() != "mais" and search_before(_HERR, text, name.span) is None
    if not is_month(name.number):
        return _OF_SUNDAY.match(text, name.span.end) is None
    if word.title() not in _PERSONS or has_day:
        return True
    if word.title() not in VERBS and _YEAR_BEHIND.match(text, name.span.end) is not None:
        return True
    is_named = _NAME_BEHIND.match(text, name.span.end) is not None  # March Street
    return not is_named and search_before(_BEFORE_MONTH, text, name.span) is not None


def _is_whole(text: str, span: Span) -> bool:
    before, behind = text[max(0, span.start - 1) : span.start], text[span.end : span.end + 1]
    return not (before.isalpha() or behind.isalpha())


def _is_short_day(text: str, span: Span) -> bool:
    """Whether an abbreviation is the day of a week, and no other word: Mon, 8 Feb; Mon-Fri."""
    is_last = search_before(_BEFORE_SHORT, text, span) is not None
    return is_last or _AFTER_SHORT.match(text, span.end) is not None


def search_before(pattern: re.Pattern[str], text: str, span: Span) -> re.Match[str] | None:
    """The match of a pattern that ends where a part of a text begins."""
    return pattern.search(text, max(0, span.start - _MOST_BEFORE), span.start)


@functools.cache
def _parts(language: str) -> tuple[list[str], list[str]]:
    """Strings of which a text with a date has one: in lower case, and in the case of the text."""
    short = ("mon", "tue", "wed", "thu", "fri", "sat") if language == "en" else ()
    lower, as_written = [f"{day}{dash}" for day in short for dash in "-–"], list[str]()
    for number, name in enumerate(map(str.lower, names_of(language))):
        part = name[:3] if is_month(number) else name
        if name in OTHER_WORDS:
            as_written += [part.title(), part.upper()]
        else:
            lower.append(part)
    if language == "de":
        lower += ["sonnabend", "jänner"]
    return lower, as_written
