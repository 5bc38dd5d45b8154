"""Days of the week, months and dates such as "October 4", which small models lose or confuse.

They are found in English and German, and read in the translations to eight languages.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from model.bundle.spans import Span
from service.things.edits import Edit
from service.things.number_forms import subtag
from service.things.number_reader import number_of

# Monday to Sunday, January to December.
_NAMES = {
    "da": "mandag tirsdag onsdag torsdag fredag lørdag søndag januar februar marts april maj juni"
    " juli august september oktober november december",
    "de": "montag dienstag mittwoch donnerstag freitag samstag|sonnabend sonntag januar|jänner"
    " februar märz april mai juni juli august september oktober november dezember",
    "en": "monday tuesday wednesday thursday friday saturday sunday january february march april"
    " may june july august september october november december",
    "es": "lunes martes miércoles jueves viernes sábado domingo enero febrero marzo abril mayo"
    " junio julio agosto septiembre|setiembre octubre noviembre diciembre",
    "fr": "lundi mardi mercredi jeudi vendredi samedi dimanche janvier février mars avril mai juin"
    " juillet août septembre octobre novembre décembre",
    "it": "lunedì martedì mercoledì giovedì venerdì sabato domenica gennaio febbraio marzo aprile"
    " maggio giugno luglio agosto settembre ottobre novembre dicembre",
    "nl": "maandag dinsdag woensdag donderdag vrijdag zaterdag zondag januari februari maart april"
    " mei juni juli augustus september oktober november december",
    "pt": "segunda terça quarta quinta sexta sábado domingo janeiro fevereiro março abril maio"
    " junho julho agosto setembro outubro novembro dezembro",
}
_DAYS_OF_WEEK = 7
_FOUND_IN = frozenset(["de", "en"])
_IN_CAPITALS = frozenset(["de", "en"])
# Names are parts of longer words in these languages: Ostersonntag, Novembernebel.
_COMPOUNDING = frozenset(["da", "de", "nl"])
_FORMATS = {"de": "{}. {}", "da": "{}. {}", "es": "{} de {}", "pt": "{} de {}"}
_ORDINARY = frozenset(["may", "march", "august"])  # in lower case, these are other words
_AMBIGUOUS = frozenset([_DAYS_OF_WEEK + 2, _DAYS_OF_WEEK + 4])  # March and May
_NUMERIC_DATE = re.compile(r"\d[./-]\d")
_BEFORE_MAY = re.compile(
    r"\b(?:in|since|until|till|by|from|to|of|last|next|this|early|mid|late|between|before|after"
    r"|during|throughout|every|each)[\s-]\Z",
    re.IGNORECASE,
)
_AFTER_MAY = re.compile(
    r"\s\d{1,2}(?:st|nd|rd|th|\s?[,.;:!?–-]|\s\d{4}\b|\s(?:and|at|in|is|or|to|was|will)\b|\Z)"
)
_GERMAN = [name.title() for name in _NAMES["de"].split()]
_WEEKDAYS, _MONTHS = "|".join(_GERMAN[:_DAYS_OF_WEEK]), "|".join(_GERMAN[_DAYS_OF_WEEK:])
_NOT_CONTRACTED = re.compile(
    rf"\b(?:(?P<day>[Aa]uf|[Ii]n)(?=\s\d{{1,2}}\.\s(?:{_MONTHS})\b)"
    rf"|(?P<month>[Ii]n)(?=\s(?:{_MONTHS})\b(?!-))"
    rf"|(?=[Aa]uf\s(?P<name>{_WEEKDAYS})\b(?!-))(?P<weekday>[Aa]uf)"
    rf"|\d\d?\.\s(?:{_MONTHS})(?P<year>,)(?=\s(?:1\d|20)\d\d\b))"
)
_CONTRACTIONS = {"day": "am", "month": "im", "weekday": "am", "year": ""}
_DAY = r"(?:\d{1,2}(?:st|nd|rd|th|er|[.º°])?|(?:(?:twenty|thirty)[\s-])?[^\W\d_]{3,})"
_LINK = r"(?:\s?(?:[-–—/,]|und|bis|oder|and|to|or|et|au|y|e|al|og|til|en|tot)\s?)"
_BEFORE = re.compile(
    rf"(?<![\w.,:/–-])(?P<others>(?:\d{{1,2}}[.º°]?{_LINK})*)(?P<day>{_DAY})\s(?:(?:of|de|des|di)\s)?\Z",
    re.IGNORECASE,
)
_AFTER = re.compile(
    rf"\s(?:(?P<day>\d{{1,2}})(?:st|nd|rd|th|\.(?!\d))?|the\s(?P<said>{_DAY}))"
    rf"(?P<others>(?:{_LINK}\d{{1,2}}(?:st|nd|rd|th)?)*)(?!\w|[.,:/–-]\d)",
    re.IGNORECASE,
)
_MOST_BEFORE = 40
_LAST_DAY = 31
_ENDINGS = {1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd", 31: "st"}


@dataclass(frozen=True)
class Date:
    """A day of the week, a month, or a day of a month.

    Attributes:
        name: number of the name: 0 is Monday, 7 is January.
        day: day of the month; 0 without one.
    """

    name: int
    day: int = 0

    def written(self, language: str) -> str | None:
        """The date as a language writes it; None in an unknown language."""
        names = _NAMES.get(subtag(language), "").split()
        if not names:
            return None
        name = names[self.name].split("|")[0]
        name = name.capitalize() if subtag(language) in _IN_CAPITALS else name
        return _FORMATS.get(subtag(language), "{} {}").format(self.day, name) if self.day else name

    def given(self, text: str, source: str) -> str | None:
        """The date with its day in digits, if an English or German sentence has it in words."""
        if not self.day or any(map(str.isdigit, text)):
            return None
        name = replace(self, day=0).written(source)
        ending = _ENDINGS.get(self.day, "th")
        return f"{self.day}{ending} of {name}" if subtag(source) == "en" else self.written(source)

    def in_other_words(self, text: str, source: str) -> str | None:
        """Another spelling of a date with a day in an English sentence."""
        if not self.day or subtag(source) != "en":
            return None
        written = self.written(source)
        return f"{replace(self, day=0).written(source)} {self.day}" if text == written else written

    def misplaced(self, language: str) -> tuple[str, ...]:
        """Spellings of a German date without the point of its day, or with the month before it."""
        if not self.day or subtag(language) != "de":
            return ()
        name = replace(self, day=0).written(language)
        return (f"{self.day} {name}", f"{name} {self.day}")


def are_read_in(language: str) -> bool:
    """Whether dates are recognised in translations to a language."""
    return subtag(language) in _NAMES


def may_have(text: str, language: str) -> bool:
    """Whether a text may have a date: a fast scan."""
    if subtag(language) not in _FOUND_IN:
        return False
    usual, capital = _parts(subtag(language))
    return any(map(text.lower().__contains__, usual)) or any(map(text.__contains__, capital))


def dates_to_keep(text: str, language: str) -> Iterator[tuple[Span, Date]]:
    """The dates of an English or German sentence with their places, in order.

    Of several days with one month ("4 and 6 October"), the month is kept; the days are numbers.
    """
    end = 0
    for name, readings in _named(text, subtag(language)):
        dated = [pair for pair in readings if pair[1].day]
        kept = dated if len(dated) == 1 else [pair for pair in readings if not pair[1].day]
        for span, date in kept:
            if span.start >= end and _is_date(text, name, bool(dated), language):
                end = span.end
                yield span, date


def date_of(text: str, language: str) -> Date | None:
    """The date that a string of a sentence says; None if it says none."""
    return next((date for span, date in dates_in(text, language) if span == (0, len(text))), None)


def dates_in(text: str, language: str) -> list[tuple[Span, Date]]:
    """All dates of a text with their places; of dates with a day, also the month alone.

    Args:
        text: any text.
        language: BCP-47 code of the text, one of those in which dates are recognised.
    """
    return [pair for _, readings in _named(text, subtag(language)) for pair in readings]


def added_names(source: str, text: str, language: str, target: str) -> list[str]:
    """The first day of the week or month that only the translation has; [] if none is known.

    Args:
        source: the sentence.
        text: the translation.
        language: BCP-47 code of the sentence.
        target: BCP-47 code of the translation. Names are found in German and English ones.
    """
    if not are_read_in(language) or not may_have(text, target):
        return []
    known = {date.name for _, date in dates_in(source, language)}
    for span, date in dates_in(text, target):
        is_part = text[span.start - 1 : span.start].isalpha()  # Ostersonntag
        if date.day or date.name in known or date.name in _AMBIGUOUS or is_part:
            continue
        name = _NAMES[subtag(language)].split()[date.name]
        is_short = re.search(rf"(?i)\b{name[:3]}", source) is not None
        if not is_short and (date.name < _DAYS_OF_WEEK or _NUMERIC_DATE.search(source) is None):
            return [text[slice(*span)]]
    return []


def contracted(source: str, text: str, language: str) -> list[Edit]:
    """The edits that give the dates of a German translation their prepositions: "am 4. Oktober".

    Stand-ins hide from the model that a date follows.

    Args:
        source: the sentence, in English.
        text: its translation.
        language: BCP-47 code of the translation.
    """
    if subtag(language) != "de":
        return []
    edits = []
    for match in _NOT_CONTRACTED.finditer(text):
        kind = match.lastgroup or ""
        if kind == "weekday" and f"on {_english_name(match['name'])}" not in source.lower():
            continue  # "postponed to Thursday"
        put, span = _CONTRACTIONS[kind], Span(*match.span(kind))
        edits.append(Edit(span, put.capitalize() if text[span.start].isupper() else put))
    return edits


def _english_name(german: str) -> str:
    [(_, date)] = dates_in(german, "de")
    return _NAMES["en"].split()[date.name]


def _named(text: str, language: str) -> Iterator[tuple[Span, list[tuple[Span, Date]]]]:
    """The place of each name in a text, with what it says: alone, and with the days beside it."""
    for match in _pattern(language).finditer(text):
        group = match.lastgroup or ""
        name, span = int(group[1:]), Span(*match.span())
        if language == "en" and match[0].lower() in _ORDINARY and match[0].islower():
            continue
        # An abbreviation without a day may be another word.
        readings = [(span, Date(name))] if group[0] == "n" else []
        if name >= _DAYS_OF_WEEK:
            readings += ((there, Date(name, day)) for there, day in _days(text, span, language))
        yield span, readings


def _days(text: str, name: Span, language: str) -> list[tuple[Span, int]]:
    """The days of a month, with the places of the dates: 4 and 5 October; October 4."""
    start = max(0, name.start - _MOST_BEFORE)
    before = _BEFORE.search(text, start, name.start)
    if before is not None and (day := _day(before["day"], language)):
        span = Span(before.start("day"), name.end)
        others = [int(number) for number in re.findall(r"\d+", before["others"])]
        return [(span, each) for each in (day, *others) if 0 < each <= _LAST_DAY]
    after = _AFTER.match(text, name.end)
    if after is not None and (day := _day(after["day"] or after["said"], language)):
        others = [int(number) for number in re.findall(r"\d+", after["others"])]
        span = Span(name.start, after.end("day" if after["day"] else "said"))
        if text[span.end : span.end + 2] in ("st", "nd", "rd", "th"):
            span = Span(span.start, span.end + 2)
        return [(span, each) for each in (day, *others) if 0 < each <= _LAST_DAY]
    return []


def _day(said: str, language: str) -> int:
    """The day that a string says; 0 if it says none."""
    if digits := re.match(r"\d+", said):
        day = int(digits[0])
    else:
        number = number_of(said, language)
        is_day = number is not None and (number.is_ordinal or language not in _FOUND_IN)
        day = int(number.value) if number is not None and is_day else 0
    return day if 0 < day <= _LAST_DAY else 0


def _is_date(text: str, name: Span, has_day: bool, language: str) -> bool:
    """Whether a name of a sentence is one of a date: no other word, part of a word, or person."""
    if text[name.start - 1 : name.start].isalpha() or text[name.end : name.end + 1].isalpha():
        return False
    if subtag(language) == "de":
        return text[slice(*name)].lower() != "mais"
    if text[slice(*name)].lower() not in ("may", "march"):
        return True
    if has_day:  # "May 3 people come in?"
        return name.start > 0 or _AFTER_MAY.match(text, name.end) is not None
    return _BEFORE_MAY.search(text, 0, name.start) is not None


@functools.cache
def _parts(language: str) -> tuple[list[str], list[str]]:
    """Strings of which a text with a date has one: in lower case, and in the case of the text."""
    usual, capital = [], []
    for number, names in enumerate(_NAMES[language].split()):
        for name in names.split("|"):
            part = name if number < _DAYS_OF_WEEK else name[:3]
            if name in _ORDINARY:
                capital += [part.title(), part.upper()]
            else:
                usual.append(part)
    return usual, capital


@functools.cache
def _pattern(language: str) -> re.Pattern[str]:
    """The names of a language; a group is called after the number of its name."""
    inside = language in _COMPOUNDING
    start = r"(?<![^\W\d_])"
    end = r"(?:s|e[ns]?)?(?![^\W\d_]{1,3}(?![^\W\d_]))" if inside else r"s?(?![^\W\d_])"
    groups = []
    for number, name in enumerate(_NAMES[language].split()):
        is_month = number >= _DAYS_OF_WEEK
        groups.append(rf"{start if is_month or not inside else ''}(?P<n{number}>(?:{name}){end})")
        if is_month:  # Oct. 4, 4 oct.; without a day, they may be other words
            groups.append(rf"{start}(?P<s{number}>{name[:3]}(?:[^\W\d_]{{0,2}}\.|(?![^\W\d_])))")
    return re.compile("|".join(groups), re.IGNORECASE)
