"""Numbers in words, such as "fifty-two", which small models lose or confuse.

The package text2num reads them. Numbers up to twelve are words like others: "two" can be "both".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from text_to_num import find_numbers

from model.bundle.spans import Span
from service.things import number_forms

# Without one of these, a text in lower case has no number that a translation has to keep. Strings
# are found ten times as fast as a pattern.
_PARTS = {
    "en": (
        *("teen", "twent", "thirt", "fort", "fift", "sixt", "sevent", "eight", "ninet", "hundred"),
        *("thousand", "fourth", "sixth", "ninth", "tenth", "leventh", "welfth"),
        *("minus", "point"),
        *("enties", "irties", "orties", "ifties", "ixties", "ghties", "neties"),
    ),
    "de": ("zehn", "zwanzig", "ßig", "zig", "hundert", "tausend", "minus", "komma"),
}
_CENTURIES = {"seventeen": "17", "eighteen": "18", "nineteen": "19"}
_DECADES = {
    **{"twenties": "20", "thirties": "30", "forties": "40", "fifties": "50"},
    **{"sixties": "60", "seventies": "70", "eighties": "80", "nineties": "90"},
}
_OF_LIFE = "|".join(
    rf"(?<=\b{one}\s)|(?<=\b{one}\searly\s)|(?<=\b{one}\slate\s)|(?<=\b{one}\smid[\s-])"
    for one in ("my", "your", "his", "her", "our", "their")
)
AGE_IN_WORDS = re.compile(rf"(?:{_OF_LIFE})({'|'.join(_DECADES)})(?![\w-])", re.IGNORECASE)
"""English decades of a life: "her forties", "their late twenties"."""
DECADE_IN_WORDS = re.compile(
    rf"(?<![\w-])(?:({'|'.join(_CENTURIES)})[\s-])?({'|'.join(_DECADES)})(?![\w-])", re.IGNORECASE
)
"""English decades: "the nineteen eighties", "the nineties"."""
# The languages whose numbers are found in translations.
_READ = frozenset(["da", "de", "en", "es", "fr", "it", "nl", "pt"])
_TOKEN = re.compile(r"[^\W\d_]+|\d+|[^\w\s]")
_MINUS = frozenset(["minus", "moins", "menos", "meno", "min"])
_OR = frozenset(["to", "or", "bis", "oder"])
_ARTICLES = frozenset(["a", "an"])
_AFTER_ARTICLES = ("hundred", "thousand")  # a hundred and one
_PARTS_OF_ONE = frozenset(["half", "quarter", "halbe", "halb", "viertel"])
_PLURALS = frozenset(["hundreds", "thousands", "millions", "billions"])
_LARGEST_WORD = 12
_MILLION = 10**6  # "5 million" is read more easily than the number
_GROUPED = 10**4
_ENDINGS = {1: "st", 2: "nd", 3: "rd"}
_TEENS = range(11, 14)


@dataclass(frozen=True)
class Number:
    """A number that is written in words.

    Attributes:
        value: the number.
        is_ordinal: whether it is one as "twenty-first".
    """

    value: float
    is_ordinal: bool = False

    @property
    def digits(self) -> str:
        """The number in digits, as English writes it: 1984, 120,000, -2.5, 21st."""
        if self.value != int(self.value):
            return f"{self.value:g}"
        digits = f"{self.value:,.0f}" if abs(self.value) >= _GROUPED else f"{self.value:.0f}"
        return digits + self._ending if self.is_ordinal else digits

    def given(self, source: str) -> str | None:
        """The digits as the language of a sentence writes them; None where that is not known."""
        if not self.is_ordinal:
            written = number_forms.preferred(self.digits, "en", source)
            has_comma = number_forms.uses_point(source) is False and self.value % 1
            return written.replace(".", ",") if has_comma else written
        if _subtag(source) == "en":
            return self.digits
        return f"{self.value:.0f}." if _subtag(source) == "de" else None

    @property
    def is_simple(self) -> bool:
        """Whether the number is one word in most languages, which models know."""
        return self.value in range(21) or self.value in (*range(30, 100, 10), 100, 1000)

    @property
    def _ending(self) -> str:
        number = int(self.value)
        return "th" if number % 100 in _TEENS else _ENDINGS.get(number % 10, "th")


def may_have(text: str, language: str) -> bool:
    """Whether a text may have a number in words: a fast scan."""
    parts = _PARTS.get(_subtag(language), ())
    return any(map(text.lower().__contains__, parts))


def number_of(text: str, language: str) -> Number:
    """The number that a string says."""
    [(_, number)] = numbers_to_keep(text, language)
    return number


def decade_of(text: str) -> str:
    """A decade in words in digits: 1980s, 40s."""
    match = DECADE_IN_WORDS.fullmatch(text)
    assert match is not None, "it is a decade in words"
    return f"{_CENTURIES.get((match[1] or '').lower(), '')}{_DECADES[match[2].lower()]}s"


def are_read_in(language: str) -> bool:
    """Whether numbers in words are recognised in translations to a language."""
    return _subtag(language) in _READ


def numbers_in(text: str, language: str) -> list[tuple[Span, Number]]:
    """All numbers in words of a text, small ones too, with their places, in order.

    Args:
        text: any text.
        language: BCP-47 code of the text, one of those in which numbers are recognised.
    """
    return [(each.span, each.number) for each in _read(text, _subtag(language))]


def numbers_to_keep(text: str, language: str) -> list[tuple[Span, Number]]:
    """The numbers in words of a sentence that a translation has to keep, with their places.

    These are numbers above twelve, with a minus or with a fraction, and English ordinals from
    "fourth" on. Multiples of a million, and what may be no number ("fifty-fifty", "three to four
    hundred"), are left out.
    """
    language = _subtag(language)
    found: list[tuple[Span, Number]] = []
    read = _read(text, language)
    before, index = None, 0
    while index < len(read):
        one, other = read[index], read[index + 1] if index + 1 < len(read) else None
        if other is not None and _are_one(text, one, other):
            found += _joined(text, one, other)
            index += 1
        elif _is_kept(one, language) and not _is_part(text, before, one):
            found.append((_with_article(one), one.number))
        before = read[index]
        index += 1
    return found


@dataclass(frozen=True)
class _Reading:
    """A number of a text.

    Attributes:
        said: its words, in lower case.
        previous: the word or sign before it, in lower case.
        start: where that word begins.
    """

    span: Span
    number: Number
    said: str
    previous: str
    start: int


def _is_kept(one: _Reading, language: str) -> bool:
    number, size = one.number, abs(one.number.value)
    if one.said in _PLURALS or one.previous in _PARTS_OF_ONE:
        return False  # thousands of people, one and a half thousand
    if number.is_ordinal and one.previous in _ARTICLES:
        return False  # a fifth of them
    # The first three have other meanings (third party); in German, "achte" is a verb, too.
    largest = 3 if number.is_ordinal and language == "en" else _LARGEST_WORD
    is_large = size > largest and size % _MILLION != 0
    return is_large or number.value < 0 or size % 1 != 0


def _is_part(text: str, before: _Reading | None, one: _Reading) -> bool:
    """Whether a number is part of a range: three to four hundred."""
    is_linked = before is not None and text[before.span.end : one.span.start].strip().lower() in _OR
    return is_linked and one.number.value % 100 == 0


def _with_article(one: _Reading) -> Span:
    """The place of a number with the article that belongs to it: a hundred and one."""
    if one.previous in _ARTICLES and one.said.startswith(_AFTER_ARTICLES):
        return Span(one.start, one.span.end)
    return one.span


def _are_one(text: str, one: _Reading, other: _Reading) -> bool:
    """Whether two numbers are one, or none, such as "fifty-fifty" and "six thirty"."""
    between = text[one.span.end : other.span.start].strip()
    is_split = one.number.value % 1000 == 0 and other.number.value < 1000
    return between in ("", "-") or (between == "," and is_split)


def _joined(text: str, one: _Reading, other: _Reading) -> list[tuple[Span, Number]]:
    """The kept part of two numbers side by side: a year, or the number of millions."""
    first, second = one.number, other.number
    if text[one.span.end : other.span.start] != " " or first.is_ordinal or second.is_ordinal:
        return []
    if 13 <= first.value <= 20 and 10 <= second.value <= 99:  # nineteen eighty-four
        return [(Span(one.span.start, other.span.end), Number(100 * first.value + second.value))]
    is_scaled = first.value % 1 != 0 and second.value >= _MILLION
    return [(one.span, first)] if is_scaled else []  # 2.5 million


class _Token:
    """A word or a sign, as text2num asks for it."""

    def __init__(self, text: str) -> None:
        self._text = text

    def text(self) -> str:
        return self._text

    def nt_separated(self, previous: _Token) -> bool:
        return False

    def not_a_number_part(self) -> bool:
        return False


def _read(text: str, language: str) -> list[_Reading]:
    matches = list(_TOKEN.finditer(text))
    tokens = [_Token(match.group().lower()) for match in matches]
    found = []
    for each in find_numbers(tokens, language, 0):
        first, value = each.start, each.value
        if any(match.group().isdigit() for match in matches[max(0, first - 1) : each.end]):
            continue  # 5 hundred
        if first and not each.is_ordinal and tokens[first - 1].text() in _MINUS:
            first, value = first - 1, -value
        span = Span(matches[first].start(), matches[each.end - 1].end())
        previous = tokens[first - 1].text() if first else ""
        start = matches[first - 1].start() if first else span.start
        number, said = Number(value, each.is_ordinal), text[slice(*span)].lower()
        found.append(_Reading(span, number, said, previous, start))
    return found


def _subtag(language: str) -> str:
    return language.split("-")[0].lower()
