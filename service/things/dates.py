"""Reads days of the week, months and dates such as "October 4", in eight languages."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from model.bundle.languages import primary_subtag
from model.bundle.spans import Span
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
_WITH_ORDINALS = frozenset(["de", "en"])  # a day in words is an ordinal: "third of May"
_CAPITALISED = frozenset(["de", "en"])
# Names are parts of longer words in these languages: Ostersonntag, Novembernebel.
_COMPOUNDING = frozenset(["da", "de", "nl"])
OTHER_WORDS = frozenset(["may", "march", "august"])
"""English names of months that are other words in lower case."""
_FORMATS = {"de": "{}. {}", "da": "{}. {}", "es": "{} de {}", "pt": "{} de {}"}
# Endings of a day in digits, and words between a day and its month.
_AFTER_DIGITS = {
    **{"en": r"st|nd|rd|th|\.", "de": r"\.", "da": r"\.", "fr": "er", "nl": "ste|de|e"},
    **{"es": r"\.?º|°", "pt": r"\.?º|°", "it": "º|°"},
}
_OF = {
    **{"en": r"of\s", "de": r"des\s", "fr": r"de\s|d['’]", "es": r"de\s", "pt": r"de\s"},
    **{"it": r"di\s", "nl": r"van\s", "da": r"i\s"},
}
_WORDS = r"(?:(?:twenty|thirty)[\s-])?[^\W\d_]{3,}"
_LINK = (
    r"(?:\s?(?:[-–—/,&]|und|bis(?:\seinschließlich)?|oder|and|to|through|or|et|aux?|y|e|al|ao|a|og"
    r"|til|en|tot(?:\sen\smet)?|t/m)(?:\s(?:zum|dem|am|den|le|el|il|lo|o)\b|\s?(?:all|l)['’])?\s?)"
)
_OXFORD = r",\s(?:and|or)\s"
_END = r"(?=[.;!?)]|,?\s\d{4}\b|\Z)"  # behind a day that counts nothing
_NEAR = 8  # characters between an abbreviation and its day
_MOST_BEFORE = 40  # characters of the days before a month
_LAST_DAY = 31
_ENDINGS = {1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd", 31: "st"}
SHORT_DAY = r"(?:mon|tues?|wed|thu(?:rs?)?|fri|sat|sun)"
"""Pattern of the abbreviations of English days of the week."""


@dataclass(frozen=True)
class Date:
    """A day of the week, a month, or a day of a month.

    Attributes:
        number: number of its name: 0 is Monday, 7 is January.
        day: day of the month; 0 without one.
    """

    number: int
    day: int = 0

    def written(self, language: str) -> str:
        """The date as a language writes it, one of those in which dates are read."""
        name, code = names_of(language)[self.number], primary_subtag(language)
        if not self.day:
            return name
        day = "1er" if code == "fr" and self.day == 1 else str(self.day)
        return _FORMATS.get(code, "{} {}").format(day, name)


@dataclass(frozen=True)
class DayOfMonth:
    """A day beside the name of its month.

    Attributes:
        span: place of the date; of several days before one month, that of a day alone.
        day: from 1 to 31.
        is_behind: whether it stands behind the month.
        is_in_words: whether it is no digits.
    """

    span: Span
    day: int
    is_behind: bool
    is_in_words: bool


@dataclass(frozen=True)
class DateName:
    """The name of a day of the week or of a month in a text.

    Attributes:
        span: place of the name.
        number: 0 is Monday, 7 is January.
        is_short: whether it is an abbreviation.
        days: the days of the month beside it.
    """

    span: Span
    number: int
    is_short: bool
    days: tuple[DayOfMonth, ...] = ()


@functools.cache
def names_of(language: str) -> tuple[str, ...]:
    """The names of days of the week, from Monday, and of months, as a language writes them."""
    code = primary_subtag(language)
    names = (each.split("|")[0] for each in _NAMES[code].split())
    return tuple(name.title() if code in _CAPITALISED else name for name in names)


def days_of(language: str) -> tuple[str, ...]:
    """The names of days of the week, from Monday, as a language writes them."""
    return names_of(language)[:_DAYS_OF_WEEK]


def months_of(language: str) -> tuple[str, ...]:
    """The names of months, as a language writes them."""
    return names_of(language)[_DAYS_OF_WEEK:]


def ending_of(day: int) -> str:
    """The ending of a day in English: the "rd" of 3rd."""
    return _ENDINGS.get(day, "th")


def are_read_in(language: str) -> bool:
    """Whether dates are read in texts of a language."""
    return primary_subtag(language) in _NAMES


def date_of(text: str, language: str) -> Date | None:
    """The date that a string says; None if it says none.

    Args:
        text: a date as `date_scan` finds it in a sentence.
        language: BCP-47 code, one of those in which dates are read.
    """
    whole = Span(0, len(text))
    for name in date_names(text, language):
        for day in name.days:
            if day.span == whole:
                return Date(name.number, day.day)
        if name.span == whole:
            return Date(name.number)
    return None


def dates_in(text: str, language: str) -> list[tuple[Span, Date]]:
    """All dates of a text with their places; of dates with a day, also the month alone.

    Abbreviations are read beside a day only: without one, they may be other words.

    Args:
        text: any text.
        language: BCP-47 code of the text, one of those in which dates are read.
    """
    found = []
    for name in date_names(text, language):
        if not name.is_short:
            found.append((name.span, Date(name.number)))
        found += [(day.span, Date(name.number, day.day)) for day in name.days]
    return found


def date_names(text: str, language: str) -> Iterator[DateName]:
    """The names of days of the week and of months in a text, with the days beside them."""
    language = primary_subtag(language)
    for match in _pattern(language).finditer(text):
        kind, number = (match.lastgroup or "").split("_")
        span = Span(*match.span())
        is_short = kind == "short"
        if language == "en" and match[0].islower() and (is_short or match[0] in OTHER_WORDS):
            continue  # "sep 2" may be a setting
        may_be_month = is_month(int(number))
        if is_short and language == "en":  # "dec" and "sep" are mostly other words
            near = text[max(0, span.start - _NEAR) : span.end + _NEAR].lower()
            may_be_month = may_be_month and ("of" in near or any(map(str.isdigit, near)))
        days = _days(text, span, language) if may_be_month else []
        yield DateName(span, int(number), is_short, tuple(days))


def compile_patterns(language: str) -> None:
    """Compile the patterns of a language in which dates are read."""
    language = primary_subtag(language)
    _pattern(language)
    _days_patterns(language)


def is_month(number: int) -> bool:
    """Whether the number of a name is one of a month."""
    return number >= _DAYS_OF_WEEK


def _days(text: str, name: Span, language: str) -> list[DayOfMonth]:
    """The days of a month: 4 and 5 October; October 4."""
    start = max(0, name.start - _MOST_BEFORE)
    before_pattern, behind_pattern = _days_patterns(language)
    before = before_pattern.search(text, start, name.start)
    behind = behind_pattern.match(text, name.end)
    group = "day" if behind is not None and behind["day"] else "said"
    day_behind = _day(behind[group], language) if behind is not None else 0
    found = []
    if before is not None and (day := _day(before["day"], language)):
        is_in_words = not before["day"][0].isdigit()
        found.append(DayOfMonth(Span(before.start("day"), name.end), day, False, is_in_words))
        found += _others(before, is_behind=False)
        # In "I turned 18 May 4", the day stands behind.
        is_bare = before["day"].isdigit() and day_behind and language == "en"
        found = [] if is_bare else found
    if not found and behind is not None and day_behind:
        is_in_words = not behind[group][0].isdigit()
        span = Span(name.start, behind.end(group))
        found = [DayOfMonth(span, day_behind, True, is_in_words), *_others(behind, is_behind=True)]
    return found


def _others(match: re.Match[str], *, is_behind: bool) -> Iterator[DayOfMonth]:
    """The other days of a month, each at its own place."""
    for day in re.finditer(r"(\d+)(?:st|nd|rd|th)?", match["others"]):
        start = match.start("others") + day.start()
        if 0 < int(day[1]) <= _LAST_DAY:
            span = Span(start, start + len(day[0]))
            yield DayOfMonth(span, int(day[1]), is_behind, is_in_words=False)


def _day(said: str, language: str) -> int:
    """The day that a string says; 0 if it says none."""
    if digits := re.match(r"\d+", said):
        day = int(digits[0])
    else:
        number = number_of(said, language)
        is_day = number is not None and (number.is_ordinal or language not in _WITH_ORDINALS)
        day = int(number.value) if number is not None and is_day else 0
    return day if 0 < day <= _LAST_DAY else 0


@functools.cache
def _days_patterns(language: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """The days before a month, and those behind it."""
    digits = rf"\d{{1,2}}(?:{_AFTER_DIGITS[language]})?"
    before = (
        rf"(?<![\w.,:/–-])(?P<others>(?:{digits}(?:{_OXFORD}|{_LINK}))*)(?P<day>{digits}|{_WORDS})"
        rf"(?:\s|(?<=\d\.))(?:{_OF[language]})?\Z"
    )
    plain = r"\d{1,2}(?:st|nd|rd|th)?"
    behind = (
        rf"\s(?:(?P<day>{plain})|the\s(?P<said>{plain}|{_WORDS}))"
        rf"(?P<others>(?:{_LINK}{plain})*(?:{_OXFORD}{plain}{_END})?)(?!\w|[.,:/–-]\w)"
    )
    return re.compile(before, re.IGNORECASE), re.compile(behind, re.IGNORECASE)


@functools.cache
def _pattern(language: str) -> re.Pattern[str]:
    """The names of a language. The group "name_7" is January; "short_7" is its abbreviation."""
    is_compounding = language in _COMPOUNDING
    start = r"(?<![^\W\d_])"
    end = r"s?(?![^\W\d_])"
    if is_compounding:
        end = r"(?:s|e[ns]?|tage?s?|dag(?:en)?)?(?![^\W\d_]{1,3}(?![^\W\d_]))"
    groups = []
    for number, names in enumerate(_NAMES[language].split()):
        of_month = is_month(number)
        name = names if of_month or language != "de" else names.replace("tag", "t[aä]g")
        before = "" if is_compounding and not of_month else start
        groups.append(rf"{before}(?P<name_{number}>(?:{name}){end})")
        if of_month:  # French "juil." is not June.
            least = 4 if name.startswith("jui") else 3
            short, rest = name[:least], name[least : least + 2]
            rest = rf"(?:(?:{rest[:1]}(?:{rest[1:]})?)?\.|(?![^\W\d_]))"
            groups.append(rf"{start}(?P<short_{number}>{short}{rest})")
        elif language == "en":
            short = re.sub(rf"^({SHORT_DAY}).*", r"\1", name)
            rest = f"(?:{short[3:]})?" if len(short) > 3 else ""
            groups.append(
                rf"{start}(?P<short_{number}>{short[:3]}{rest}(?:\.(?=,?\s|\Z))?(?![^\W\d_]))"
            )
    return re.compile("|".join(groups), re.IGNORECASE)
