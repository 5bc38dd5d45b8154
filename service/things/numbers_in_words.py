"""Numbers in words, such as "fifty-two", which small models lose or confuse."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from model.bundle.languages import primary_subtag
from model.bundle.spans import Span
from service.things.dates import months_of
from service.things.number_reader import (
    AND,
    BETWEEN,
    Number,
    Reading,
    joined_year,
    number_of,
    readings,
)

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
_DIGITS_SAID = {
    "en": ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"),
    "de": ("null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"),
}
_SMALL = {
    "en": re.compile(r"\b(?:three|four|five|six|seven|eight|nine|ten|eleven|twelve)\b"),
    "de": re.compile(r"\b(?:drei|vier|fünf|sechs|sieben|acht|neun|zehn|elf|zwölf)\b"),
}
_ALL_DIGITS = frozenset(word for words in _DIGITS_SAID.values() for word in words)
_WORD = re.compile(r"\w+")
_CENTURIES = {"seventeen": "17", "eighteen": "18", "nineteen": "19"}
_DECADES = {
    **{"twenties": "20", "thirties": "30", "forties": "40", "fifties": "50"},
    **{"sixties": "60", "seventies": "70", "eighties": "80", "nineties": "90"},
}
_OF_LIFE = "|".join(
    rf"(?<=\b{one}\s)|(?<=\b{one}\searly\s)|(?<=\b{one}\slate\s)|(?<=\b{one}\smid[\s-])"
    for one in ("my", "your", "his", "her", "our", "their")
)
_AGE = re.compile(rf"(?:{_OF_LIFE})({'|'.join(_DECADES)})(?![\w-])", re.IGNORECASE)
_DECADE = re.compile(
    rf"(?<![\w-])(?:({'|'.join(_CENTURIES)})[\s-])?({'|'.join(_DECADES)})(?![\w-])", re.IGNORECASE
)
_OR = frozenset(["to", "or", "bis", "oder"])
_ARTICLES = frozenset(["a", "an"])
_SCALES = frozenset(["hundred", "thousand", "hundert", "tausend"])
_MILLIONS = ("illion", "illionen", "illiarde", "illiarden")
_PARTS_OF_ONE = frozenset(["half", "quarter", "halbe", "halb", "viertel"])
_PLURALS = ("reds", "ands", "ions", "ths")
_LEAST_DIGITS = 4
_COUNTING = "0123456789"
_MOST_DIGITS = 32
# Words after which three digits are a number, and one two three no counting.
_CODE = re.compile(
    r"\b(?:codes?|pins?|numbers?|dial|extension|rooms?|lockers?|flight|press|\w*nummer|wähle|zimmer"
    r"|durchwahl)\b",
    re.IGNORECASE,
)
_NO_DIGITS_BEFORE = re.compile(r"-\w|\s(?:times|steps|mal)\b", re.IGNORECASE)
_LARGEST_ORDINAL = 10**6
_LARGEST_WORD = 12
_LARGEST_AMBIGUOUS = 2  # "Two" can be "both".
# With these, "acht" is heed. Numbers are parts of the English idioms.
_HEED = re.compile(
    r"\b(?:g[eia]b\w*|gegeben|ha[bt]\w*|n[aei]hm\w*|nimm\w*|außer|acht\w+)\b", re.IGNORECASE
)
_IDIOMS = re.compile(r"(?:(?:high|take|cloud)\s|-(?:to|by)-)\Z", re.IGNORECASE)
_PART_OF_WORD = re.compile(r"-(?:pack|wheel|to|by|leaf|letter|piece)\b|\sby\sfour", re.IGNORECASE)
_NEXT_WORD = re.compile(r"[\s-]?(\w*)")
# "Thirty-second" can be half a minute. These say that it is a number.
_COUNTED = (
    "of century birthday anniversary street floor day year time place edition president chapter"
    " season round"
)
_AFTER_ORDINALS = frozenset(_COUNTED.split())
_SUPERLATIVE = re.compile(r"\w{2,}est|most|worst|last")
_MONTHS = [month.lower() for month in months_of("en")]
_MONTH = re.compile(rf"\b(?:{'|'.join(_MONTHS)})\b", re.IGNORECASE)
_YEARS = (
    "in since year of by until till from before after between and to or late early mid around about"
    " circa spring summer autumn winter"
)
_BEFORE_YEARS = frozenset(["", *_YEARS.split(), *_MONTHS])  # "": at the beginning


def may_have(text: str, language: str) -> bool:
    """Whether a text may have a number in words: a fast scan."""
    language, lower = primary_subtag(language), text.lower()
    if any(map(lower.__contains__, _PARTS.get(language, ()))):
        return True
    if (small := _SMALL.get(language)) is not None and small.search(lower):
        return True
    digits = _DIGITS_SAID.get(language, ())
    return not _ALL_DIGITS.isdisjoint(lower.split()) and any(
        one in digits and other in digits for one, other in itertools.pairwise(_WORD.findall(lower))
    )


def ages(text: str, language: str) -> Iterator[Span]:
    """The places of decades of a life in an English text: "her forties", "their late twenties"."""
    return _english(_AGE, text, language)


def decades(text: str, language: str) -> Iterator[Span]:
    """The places of decades in an English text: "the nineteen eighties", "the nineties"."""
    return _english(_DECADE, text, language)


def _english(pattern: re.Pattern[str], text: str, language: str) -> Iterator[Span]:
    matches = pattern.finditer(text) if primary_subtag(language) == "en" else ()
    return (Span(*match.span()) for match in matches)


def decade_of(text: str) -> str:
    """A decade in words in digits: 1980s, 40s."""
    match = _DECADE.fullmatch(text)
    assert match is not None, "it is a decade in words"
    return f"{_CENTURIES.get((match[1] or '').lower(), '')}{_DECADES[match[2].lower()]}s"


def numbers_to_keep(text: str, language: str) -> list[tuple[Span, Number]]:
    """The numbers in words of a sentence that a translation has to keep, with their places.

    Kept are: numbers from three on; negative numbers and fractions; English ordinals from "fourth"
    on; digits that are said one by one. Of millions, their number is kept. What may be no number
    ("fifty-fifty", "three to four hundred") is left out.
    """
    language = primary_subtag(language)
    found: list[tuple[Span, Number]] = []
    read = readings(text, language)
    before, index = None, 0
    while index < len(read):
        one, rest = read[index], read[index : index + _MOST_DIGITS]
        run = _digits_said(text, rest, language)
        if run is not None and _is_code(text, *run):
            found.append(run)
            index += sum(each.span.start < run[0].end for each in rest)
            before = None
            continue
        other = read[index + 1] if index + 1 < len(read) else None
        if other is not None and _are_one(text, one, other):
            found += _joined(text, one, other)
            index += 1
        elif _is_kept(text, one, language) and not _is_part(text, before, one):
            found.append((_with_article(one), one.number))
        before = read[index]
        index += 1
    # Some numbers are others without the words around.
    return [(s, number) for s, number in found if number_said(text[slice(*s)], language) == number]


def number_said(text: str, language: str) -> Number | None:
    """The number that a string of a sentence says; None if it says none, or several."""
    read = readings(text, language)
    run = _digits_said(text, read, primary_subtag(language)) if read else None
    return run[1] if run else number_of(text, language)


def _is_code(text: str, span: Span, number: Number) -> bool:
    """Whether some digits are the number of something, instead of counting and scores."""
    digits = number.spelled
    is_counted = digits in _COUNTING or digits[::-1] in _COUNTING
    if len(digits) < _LEAST_DIGITS or is_counted:
        is_named = _CODE.search(text, 0, span.start) is not None
        return is_named and _NO_DIGITS_BEFORE.match(text, span.end) is None
    return _NO_DIGITS_BEFORE.match(text, span.end) is None


def _digits_said(text: str, read: Sequence[Reading], language: str) -> tuple[Span, Number] | None:
    """Digits that are said one by one, from the first of some numbers on: zero one seven one."""
    words, digits, end = _DIGITS_SAID.get(language, ()), "", read[0].span.start
    for one in read:
        said = one.said.split()
        if not all(word in words for word in said) or text[end : one.span.start].strip(" "):
            break
        digits += "".join(str(words.index(word)) for word in said)
        end = one.span.end
    if len(digits) < _LEAST_DIGITS - 1:
        return None
    return Span(read[0].span.start, end), Number(float(digits), spelled=digits)


def _is_kept(text: str, one: Reading, language: str) -> bool:
    number, size, after = one.number, abs(one.number.value), _word_after(text, one)
    is_bare = one.said in _SCALES and (language != "en" or one.previous not in _ARTICLES)
    is_bare = is_bare or one.said.endswith(_MILLIONS)
    if is_bare or one.previous in _PARTS_OF_ONE or one.said.endswith(_PLURALS):
        return False  # a few thousand, one and a half thousand, thousands
    if number.is_ordinal:
        return _is_kept_ordinal(one, language, after)
    is_small = size <= _LARGEST_WORD
    if after == "uhr" or (after == "times" and number.is_simple and not is_small):
        return False
    if is_small and _is_no_number(text, one, language):
        return False
    return size > _LARGEST_AMBIGUOUS or number.value < 0 or size % 1 != 0


def _is_no_number(text: str, one: Reading, language: str) -> bool:
    """Whether a small number is none: the mark "eine Vier", to give heed ("acht"), a six-pack."""
    start, end = one.span
    if language == "en":
        is_idiom = _IDIOMS.search(text, max(0, start - 8), start) is not None
        return is_idiom or _PART_OF_WORD.match(text, end) is not None
    is_noun = one.span.start > 0 and text[one.span.start].isupper()
    return is_noun or (one.said == "acht" and _HEED.search(text) is not None)


def _is_kept_ordinal(one: Reading, language: str, after: str) -> bool:
    if one.number.value >= _LARGEST_ORDINAL:
        return False  # the hundred millionth
    if language != "en":
        return one.number.value > _LARGEST_WORD  # the German "achte" is a verb, too
    # The first three have other meanings: a third party.
    if one.number.value <= 3 or one.previous in _ARTICLES or _SUPERLATIVE.fullmatch(after):
        return False
    is_fraction = one.said.endswith(("hundredth", "thousandth")) and after == "of"
    return not is_fraction and (not one.said.endswith("second") or after in _AFTER_ORDINALS)


def _word_after(text: str, one: Reading) -> str:
    match = _NEXT_WORD.match(text, one.span.end)
    return match[1].lower() if match else ""


def _is_part(text: str, before: Reading | None, one: Reading) -> bool:
    """Whether a number is part of a range: three to four hundred; not fifty to five hundred."""
    scale = 1000 if one.number.value % 1000 == 0 else 100
    if before is None or one.number.value % scale or before.number.value * scale > one.number.value:
        return False
    link = text[before.span.end : one.span.start].strip(" -\u2010\u2011").lower()
    return link in _OR or (link in AND and before.previous in BETWEEN)


def _with_article(one: Reading) -> Span:
    """The place of a number with the article that belongs to it: a hundred and one."""
    has_article = one.previous in _ARTICLES or one.previous in ("eine", "einer")
    is_after = has_article and one.said.startswith(("hundred", "thousand", "million"))
    return Span(one.start, one.span.end) if is_after else one.span


def _are_one(text: str, one: Reading, other: Reading) -> bool:
    """Whether two numbers are one, or none, such as "fifty-fifty" and "six thirty"."""
    between = text[one.span.end : other.span.start].strip()
    if other.said.endswith(_MILLIONS):
        return False  # two point five million
    is_split = one.number.value % 1000 == 0 and other.number.value < 1000
    return between in ("", "-") or (between == "," and is_split)


def _joined(text: str, one: Reading, other: Reading) -> list[tuple[Span, Number]]:
    """The year that two numbers side by side say; nothing if they may say something else."""
    year = joined_year(text, one, other)
    is_compound = text[other.span.end : other.span.end + 1] == "-"
    if year is None or one.number.value < 15 or is_compound:
        return []
    is_date = one.previous == "," and _MONTH.search(text, 0, one.span.start) is not None
    is_year = is_date or one.previous in _BEFORE_YEARS
    return [(Span(one.span.start, other.span.end), year)] if is_year else []
