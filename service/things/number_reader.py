"""Reads numbers in words, in the eight languages of the package text2num."""

from __future__ import annotations

import functools
import itertools
import re
from dataclasses import dataclass, replace

from text_to_num import find_numbers

from model.bundle.languages import primary_subtag
from model.bundle.spans import Span
from service.things import number_forms

_READ = frozenset(["da", "de", "en", "es", "fr", "it", "nl", "pt"])
_TOKEN = re.compile(r"[^\W\d_]+|\d+|[^\w\s]")
_HYPHENS = str.maketrans("\u2010\u2011", "--")
_DASHED = re.compile(r"[–—][^\W\d_]")
# Beginnings of words for 3 to 12, of other words with them too: dreimal, Vierteljahr, Jahrzehnt.
_STEMS = {
    "de": "drei|dritt vier fünf sechs sieb acht neun zehn|jahrzehnt elf zwölf|dutzend",
    "en": r"three|third|thrice|triple four|quart five|fifth six seven eight nine|ninth"
    r" ten(?=s?\b|th|fold)|decade eleven twelve|twelfth|dozen",
}
_TENS = r"zehn|zig|ßig|und\w+[zß]ig|teen|ty|ties"  # thirteen is not three
_MINUS = frozenset(["minus", "moins", "menos", "meno", "min"])
_POINT = frozenset(["point", "komma"])
AND = frozenset(["and", "und"])
BETWEEN = frozenset(["between", "zwischen"])
_SCALES = ("hundred", "thousand", "million", "billion", "hundert", "tausend")
_WORDS_BETWEEN = 6
_OF_MILLIONS = re.compile(
    r"(?:(.*\S)\s)?(?:[mb]illion|billionen|millionen|milliarden?)", re.IGNORECASE
)
_MILLION = 10**6
_GROUPED = 10**4
_LARGEST_SMALL = 12
_LARGEST = 10**15
_DECIMALS = 6
_ENDINGS = {1: "st", 2: "nd", 3: "rd"}
_TEENS = range(11, 14)


@dataclass(frozen=True)
class Number:
    """A number that is written in words.

    Attributes:
        value: the number.
        is_ordinal: whether it is one as "twenty-first".
        spelled: its digits, if they are said one by one: 0171.
    """

    value: float
    is_ordinal: bool = False
    spelled: str = ""

    @property
    def digits(self) -> str:
        """The number in digits, as English writes it: 1984, 120,000, -2.5, 21st."""
        if self.spelled:
            return self.spelled
        if self.value % 1:
            return f"{self.value:,.{_DECIMALS}f}".rstrip("0")
        digits = f"{self.value:,.0f}" if abs(self.value) >= _GROUPED else f"{self.value:.0f}"
        return digits + self._ending if self.is_ordinal else digits

    def given(self, source: str) -> str | None:
        """The digits as the language of a sentence writes them; None where that is not known."""
        if not self.is_ordinal:
            written = number_forms.preferred(self.digits, "en", source)
            has_comma = number_forms.uses_point(source) is False and self.value % 1
            return written.replace(".", ",") if has_comma else written
        if primary_subtag(source) == "en":
            return self.digits
        return f"{self.value:.0f}." if primary_subtag(source) == "de" else None

    @property
    def is_simple(self) -> bool:
        """Whether the number is one word in most languages, which models know."""
        if self.spelled:
            return False
        return self.value in range(21) or self.value in (*range(30, 100, 10), 100, 1000)

    @property
    def is_small(self) -> bool:
        """Whether it is a cardinal up to twelve, which other words contain: dreimal, twofold."""
        return 0 < self.value <= _LARGEST_SMALL and not self.is_ordinal and not self.spelled

    @property
    def _ending(self) -> str:
        number = int(self.value)
        return "th" if number % 100 in _TEENS else _ENDINGS.get(number % 10, "th")


@dataclass(frozen=True)
class Reading:
    """A number of a text.

    Attributes:
        said: its words, in lower case.
        previous: the word or sign before it, in lower case; empty at the beginning.
        start: where that word begins.
    """

    span: Span
    number: Number
    said: str
    previous: str
    start: int


def are_read_in(language: str) -> bool:
    """Whether numbers in words are recognised in translations to a language."""
    return primary_subtag(language) in _READ


def are_small_ones_read_in(language: str) -> bool:
    """Whether numbers up to twelve are recognised as parts of words of a language, too."""
    return primary_subtag(language) in _STEMS


def number_of(text: str, language: str) -> Number | None:
    """The number that a string says; None if it says none, or several."""
    read = readings(text, language)
    if len(read) == 2:
        return joined_year(text, *read)
    return read[0].number if len(read) == 1 else None


def numbers_in(text: str, language: str) -> list[tuple[Span, Number]]:
    """All numbers in words of a text, small ones too, with their places, in order.

    Two numbers that say a year are three: both, and the year.

    Args:
        text: any text.
        language: BCP-47 code of the text, one of those in which numbers are recognised.
    """
    read = readings(text, language)
    found = [(each.span, each.number) for each in read]
    for one, other in itertools.pairwise(read):
        if (year := joined_year(text, one, other)) is not None:
            found.append((Span(one.span.start, other.span.end), year))
    return sorted(found, key=lambda pair: pair[0])


def small_numbers_in(text: str, language: str) -> list[tuple[Span, Number]]:
    """The words that may say a number from 3 to 12, with their places; [] in unknown languages."""
    pattern = _small(primary_subtag(language))
    if pattern is None:
        return []
    matches = pattern.finditer(text)
    return [(Span(*m.span()), Number(float((m.lastgroup or "")[1:]))) for m in matches]


@functools.cache
def _small(language: str) -> re.Pattern[str] | None:
    stems = _STEMS.get(language)
    if stems is None:
        return None
    groups = (
        f"(?P<n{number}>(?:{each})(?!{_TENS})\\w*)" for number, each in enumerate(stems.split(), 3)
    )
    return re.compile(rf"(?<![^\W\d_])(?:{'|'.join(groups)})", re.IGNORECASE)


def joined_year(text: str, one: Reading, other: Reading) -> Number | None:
    """The year that two numbers side by side may say: nineteen eighty-four."""
    first, second = one.number, other.number
    if text[one.span.end : other.span.start] != " " or first.is_ordinal or second.is_ordinal:
        return None
    is_year = 13 <= first.value <= 20 and 10 <= second.value <= 99
    return Number(100 * first.value + second.value) if is_year else None


class _Token:
    """A word or a sign, as text2num asks for it."""

    def __init__(self, text: str, *, is_separate: bool = False) -> None:
        self._text = text
        self._is_separate = is_separate

    def text(self) -> str:
        return self._text

    def nt_separated(self, previous: _Token) -> bool:
        return self._is_separate

    def not_a_number_part(self) -> bool:
        return False


def readings(text: str, language: str) -> list[Reading]:
    """The numbers in words of a text, in order; see `numbers_in`."""
    matches = list(_TOKEN.finditer(text))
    words = [match.group().lower().translate(_HYPHENS) for match in matches]
    tokens = [
        _Token(word, is_separate=word in AND and _links_numbers(words, index))
        for index, word in enumerate(words)
    ]
    found = []
    for each in find_numbers(tokens, primary_subtag(language), 0):
        first, value = each.start, float(each.value)
        before = words[first - 1] if first else ""
        span = Span(matches[first].start(), matches[each.end - 1].end())
        number = Number(value, each.is_ordinal)
        if not _is_sound(number) or before in _POINT or _DASHED.match(text, span.end):
            continue
        if any(word.isdigit() for word in (before, *words[first : each.end])):
            continue  # 5 hundred
        if before in _MINUS and not each.is_ordinal:
            first, number = first - 1, Number(-value)
            span = Span(matches[first].start(), span.end)
        start = matches[first - 1].start() if first else span.start
        previous = words[first - 1] if first else ""
        reading = Reading(span, number, text[slice(*span)].lower(), previous, start)
        found += _counted(text, reading, language)
    return found


def _counted(text: str, one: Reading, language: str) -> list[Reading]:
    """The number of millions, of which models know the word; other numbers as they are."""
    match = _OF_MILLIONS.fullmatch(text, *one.span)
    if match is None or match[1] is None or one.number.value % _MILLION:
        return [one]
    count = number_of(match[1], language)
    span = Span(*match.span(1))
    return [replace(one, span=span, number=count, said=match[1].lower())] if count else []


def _links_numbers(words: list[str], index: int) -> bool:
    """Whether an "and" stands between two numbers instead of within one."""
    if not index or not words[index - 1].endswith(_SCALES):
        return True
    return any(word in BETWEEN for word in words[max(0, index - _WORDS_BETWEEN) : index])


def _is_sound(number: Number) -> bool:
    is_short = round(number.value, _DECIMALS) == number.value
    return number.value < _LARGEST and is_short and not (number.is_ordinal and number.value % 1)
