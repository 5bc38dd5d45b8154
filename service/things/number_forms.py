"""The forms that a number may have in a translation.

Numbers are copied, with two exceptions. A model may use the separators of the target language:
`3,5` for `3.5`, `10.30` for `10:30`. And a number with separators of thousands gets those of the
target language, because it could be misread otherwise: in German, `1,250` is 1.25.
"""

from __future__ import annotations

import re

from model.bundle.languages import primary_subtag

# Languages that write 1,250.50; the others that are known write 1.250,50, or 1 250,50.
_POINT = frozenset(["en", "zh", "ja", "ko", "th", "he", "hi", "ms", "tl"])
_COMMA = frozenset(
    [
        "de",
        "fr",
        "es",
        "it",
        "nl",
        "pt",
        "pl",
        "ru",
        "uk",
        "cs",
        "sk",
        "sv",
        "da",
        "nb",
        "nn",
        "no",
        "fi",
        "el",
        "tr",
        "ro",
        "hu",
        "bg",
        "hr",
        "sl",
        "sr",
        "lt",
        "lv",
        "et",
        "id",
    ]
)
_SPACES = " \u00a0\u202f"
_ENGLISH_GROUPS = re.compile(r"\d{1,3}(?:,\d{3})++(?:\.\d++)?")
_CONTINENTAL_GROUPS = re.compile(rf"\d{{1,3}}(?:[.{_SPACES}]\d{{3}})++(?:,\d++)?|\d{{4,}}+,\d++")
_SEPARATOR = re.compile(r"[^\d]")
# Of numbers that have just one kind: 3.5 and 3,5; 10:30 and 10.30; 1/2/2024 and 1.2.2024.
_LIKE = {",": ".", ".": ",", ":": ".", "/": "."}
_WORDS = {
    "de": "null ein|eine|einen|einem|einer|eines|eins zwei drei vier fünf sechs sieben acht neun"
    " zehn elf zwölf",
    "en": "zero|no one|a|an two three four five six seven eight nine ten eleven twelve",
    "fr": "zéro un|une deux trois quatre cinq six sept huit neuf dix onze douze",
}


def preferred(number: str, source: str, target: str) -> str:
    """The number as it is put into a translation.

    Args:
        number: digits, with single separators between them.
        source: BCP-47 code of the text.
        target: BCP-47 code of the translation.
    """
    point_there, point_here = uses_point(source), uses_point(target)
    if None in (point_there, point_here) or point_there == point_here:
        return number
    groups = _ENGLISH_GROUPS if point_there else _CONTINENTAL_GROUPS
    if not groups.fullmatch(number):
        return number  # a decimal fraction, a version, a section: only a reader could tell
    if point_there:
        return number.translate({ord(","): ".", ord("."): ","})
    whole, mark, rest = number.partition(",")
    return re.sub(rf"[.{_SPACES}]", ",", whole) + mark.replace(",", ".") + rest


def forms(number: str, source: str, target: str) -> tuple[str, ...]:
    """All forms that are right for the number in a translation, the preferred one first."""
    best = preferred(number, source, target)
    if best != number:
        group, decimal = (".", ",") if uses_point(source) else (",", ".")
        whole, mark, rest = best.partition(decimal)
        others = [whole.replace(group, other) + mark + rest for other in ("", *_SPACES, "'")]
        return tuple(dict.fromkeys((best, *others)))
    separators = set(_SEPARATOR.findall(number))
    if len(separators) == 1 and (mark := separators.pop()) in _LIKE:
        other = number.replace(mark, _LIKE[mark])
        # "Am 12.30" is a date.
        is_time = mark == ":" and target[:2].lower() == "de"
        return (number, f"{other} Uhr" if is_time else other)
    return (number,)


def words(number: str, target: str) -> tuple[str, ...]:
    """The words for a small number in a language; none for others, or in an unknown language."""
    table = _WORDS.get(primary_subtag(target), "").split()
    return tuple(table[int(number)].split("|")) if _is_below(number, len(table)) else ()


def _is_below(number: str, limit: int) -> bool:
    return number.isascii() and number.isdigit() and len(number) <= 2 and int(number) < limit


def uses_point(language: str) -> bool | None:
    """Whether a language writes decimals with a point; None if that is not known."""
    code = primary_subtag(language)
    if code in _POINT:
        return True
    return False if code in _COMMA else None
