"""Checks of a translation against its source."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from model.bundle.languages import primary_subtag
from model.bundle.spans import Span
from service.things.date_scan import added_names
from service.things.number_reader import numbers_in
from service.things.quotes import apostrophes_of, quotes_of
from service.things.runs import lacks_rest, lost_run, surplus_run
from service.translation.results import TranslationWarning, WarningKind

_OPENING = ("„", "‚")  # never the last mark
UNKNOWN = "\ufffd"
# Signs that stand-ins and placeholders are made of, and that no sentence needs by itself.
_SIGNS = re.compile(r"[{}\[\]<>|\\^~_@#$%`*=]")
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*+")
_LONG_WORD = re.compile(r"[^\W\d_]{4,}")
_GLUED = re.compile(r"\)[^\W\d_]")
# Tags with nothing between them: <b></b>, [b][/b]
_EMPTY = re.compile(r"[<\[]([A-Za-z][\w-]{0,20})[^<>\[\]\n]{0,300}[>\]]\s{0,3}[<\[]/\1[>\]]")
_TOKEN = re.compile(r"\w++")
_DIGITS = re.compile(r"(?<![\w.,:])\d++(?:[.,:]\d++)*+")
_NAMES = r"dollars?|euros?|pfund|pounds?|prozent|per\s?cent|francs?|franken|yen|rubel|rou?bles?"
_METRIC = (
    r"(?:milli|[cz]enti|kilo|quadrat|kubik)*(?:met(?:er|re|ro)s?n?|m[èe]tres?|metri)|kilo(?:gramm?e?s?)?s?"
    r"|gramm?e?s?|lit(?:er|re)s?n?"
)
_UNITS = re.compile(rf"(?i)\d[ \u00a0]?({_NAMES}|[$€£%])(?!\w)")
_UNIT_NAMES = re.compile(
    rf"(?i)(?<![^\W\d_])(?:{_NAMES}|[$€£%¢]|US|USD|EUR|GBP|CHF|lbs?|bucks?|quid|fr|JPY|¥)(?![^\W\d_])"
)
_AMOUNT = re.compile(r"\d|meter|liter|gramm|kilo|met[re]|litr", re.IGNORECASE)
_PRICE_AS_TIME = re.compile(r"[$€£]\s?\d[\d.,]*\s(Uhr)\b")
# After a German number in words, too: "sechzig Meter".
_METRIC_UNITS = re.compile(
    r"(?i)(?:\d[ \u00a0]?|(?:zig|zehn|elf|zwölf|zwei|drei|vier|fünf|sechs|sieben|acht|neun|hundert"
    r"|tausend|millionen)[ ])"
    rf"({_METRIC})(?!\w)"
)
_METRIC_NAMES = re.compile(
    rf"(?i){_METRIC}|(?<![^\W\d_])(?:[mcdk]?ms?[²³]?|sqk?m|cbm|cc|k|k?gs?m?s?|gr|[mcd]?ls?|ltrs?|mtrs?"
    r"|k[mp]p?h|klicks?)(?![^\W\d_])"
)
# Words for numbers and amounts that a translation may write in digits.
_AMOUNT_WORDS = re.compile(
    r"(?i)\b(?:dozens?|half|quarters?|noon|midnight|\w+(?:[vxnhr]ths|ties)|twice|once|both|decades?"
    r"|cent(?:ury|uries)|fortnights?|couple|pair|point|oh)\b"
)
_SCALES = re.compile(r"hundred|thousand|[mb]illion", re.IGNORECASE)


def flaws(
    source: str,
    text: str,
    source_things: Sequence[Span] = (),
    things: Sequence[Span] = (),
) -> list[TranslationWarning]:
    """The flaws of a translation, apart from its things.

    Args:
        source: the sentence.
        text: the translation.
        source_things: places of things in the sentence.
        things: places of things in the translation.
    """
    found = []
    rest = _without(text, (*things, *apostrophes_of(text)))
    source_rest = _without(source, (*source_things, *apostrophes_of(source)))
    if UNKNOWN in rest and UNKNOWN not in source_rest:
        found.append((WarningKind.CHARACTER, UNKNOWN))
    if different := different_signs(source_rest, rest):
        found.append((WarningKind.SIGNS, different))
    elif ")" in rest and len(_GLUED.findall(rest)) > len(_GLUED.findall(source_rest)):
        found.append((WarningKind.SIGNS, ")"))
    if "/" in text and len(empty := _empty(text)) > len(_empty(source)):
        found.append((WarningKind.MISSING, empty[0]))
    quotes, own_quotes = quotes_of(text, things), quotes_of(source, source_things)
    is_open = bool(quotes) and quotes[-1].text in _OPENING and len(quotes) > 1
    if len(quotes) != len(own_quotes) or is_open:
        found.append((WarningKind.QUOTES, "".join(quote.text for quote in own_quotes)))
    if (run := surplus_run(source, text)) is not None:
        found.append((WarningKind.REPETITION, text[slice(*run)][:40]))
    elif (lost := lost_run(source, text)) is not None:
        found.append((WarningKind.REPETITION, source[slice(*lost)][:40]))
    if not is_plausible(source_rest, rest) or lacks_rest(source, text):
        found.append((WarningKind.LENGTH, ""))
    return [TranslationWarning(kind, what, source) for kind, what in found]


def _empty(text: str) -> list[str]:
    return [match[0] for match in _EMPTY.finditer(text)]


def different_signs(source: str, text: str) -> str:
    """The signs of stand-ins and placeholders that only one of two texts has."""
    if not _SIGNS.search(source) and not _SIGNS.search(text):
        return ""  # the usual case
    signs, own = Counter(_SIGNS.findall(text)), Counter(_SIGNS.findall(source))
    return "".join(sorted((signs - own) + (own - signs))) if signs != own else ""


def added(
    source: str,
    text: str,
    languages: tuple[str, str],
    source_things: Sequence[Span] = (),
    things: Sequence[Span] = (),
) -> list[str]:
    """Numbers, currencies, units and names of days that only the translation has.

    Args:
        source: the sentence.
        text: the translation.
        languages: BCP-47 codes of the sentence and of the translation.
        source_things: places of things in the sentence.
        things: places of things in the translation.
    """
    return [
        *added_numbers(source, text, source_things, things, languages[0]),
        *added_units(source, text, languages[0]),
        *added_names(source, text, *languages),
    ]


def added_units(source: str, text: str, language: str) -> list[str]:
    """A currency or a unit that a translation adds.

    Args:
        source: the sentence.
        text: the translation.
        language: BCP-47 code of the sentence. Metric units are known in English and German.
    """
    if _AMOUNT.search(text) is None:  # most texts
        return []
    if price := _PRICE_AS_TIME.search(text):
        return [price[1]]
    found = _UNITS.findall(text)
    if len(found) > len(_UNIT_NAMES.findall(source)):
        return found[:1]
    if primary_subtag(language) not in ("en", "de") or _METRIC_NAMES.search(source):
        return []
    return _METRIC_UNITS.findall(text)[:1]


def added_numbers(
    source: str, text: str, source_things: Sequence[Span], things: Sequence[Span], language: str
) -> list[str]:
    """Numbers that the translation has beside its things, and the sentence hasn't.

    Numbers of things that are there once more are always added. Others are not, if the sentence
    says them in words, or has other words for an amount, such as "dozen".

    Args:
        source: the sentence.
        text: the translation.
        source_things: places of things in the sentence.
        things: places of things in the translation.
        language: BCP-47 code of the sentence. For other languages than English, only numbers of
            things are found.
    """
    found = _DIGITS.findall(_without(text, things))
    if not found:
        return []
    others = _DIGITS.findall(_without(source, source_things))
    of_things = {number for s in source_things for number in _DIGITS.findall(source[slice(*s)])}
    surplus = Counter(found) - Counter(others)
    added = [number for number in surplus.elements() if number in of_things]
    if primary_subtag(language) != "en" or _AMOUNT_WORDS.search(source):
        return added
    # "Three to four hundred" can be 300 to 400.
    shown = _significant if _SCALES.search(source) else _plain
    said = {shown(number.digits) for _, number in numbers_in(source, "en")}
    return added + [n for n in found if n not in source and shown(n) not in said]


def _plain(number: str) -> str:
    return re.sub(r"\D", "", number)


def _significant(number: str) -> str:
    return _plain(number).strip("0")


def is_plausible(source: str, text: str) -> bool:
    """Whether the length of a translation is plausible for its source."""
    if len(source) <= 3 * len(text) and len(text) <= 4 * len(source) and _WORD.search(text):
        return True  # the usual case
    words = _TOKEN.findall(source)
    num_words, num_source = len(_WORD.findall(text)), len(_WORD.findall(source))
    if not num_words and ((num_source >= 2 and len(words) >= 2) or _LONG_WORD.search(source)):
        return False
    if (
        num_source >= 4
        and num_words * 3 < num_source
        and len(text.strip()) * 3 < len(source.strip())
    ):
        return False
    return len(text) <= 4 * len(source) + 60


def _without(text: str, spans: Iterable[Span]) -> str:
    pieces, end = [], 0
    for span in sorted(spans):
        pieces.append(text[end : span.start])
        end = max(end, span.end)
    return " ".join([*pieces, text[end:]])
