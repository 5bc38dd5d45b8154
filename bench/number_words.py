"""Numbers in English and German words, for samples: independent of what the server reads."""

from __future__ import annotations

_ENGLISH = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
    "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]  # fmt: skip
_ENGLISH_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_GERMAN = [
    "null", "ein", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf",
    "zwölf", "dreizehn", "vierzehn", "fünfzehn", "sechzehn", "siebzehn", "achtzehn", "neunzehn",
]  # fmt: skip
_GERMAN_TENS = [
    *("zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig")
]
LIMIT = 10**6
"""Numbers from 1 to below this one have words."""


def in_english(number: int) -> str:
    """The number as British English says it: one hundred and twenty-one."""
    if number >= 1000:
        rest = number % 1000
        link = " and " if 0 < rest < 100 else " "
        said = f"{in_english(number // 1000)} thousand"
        return f"{said}{link}{in_english(rest)}" if rest else said
    if number >= 100:
        said = f"{_ENGLISH[number // 100]} hundred"
        return f"{said} and {in_english(number % 100)}" if number % 100 else said
    if number < 20:
        return _ENGLISH[number]
    tens = _ENGLISH_TENS[number // 10 - 2]
    return f"{tens}-{_ENGLISH[number % 10]}" if number % 10 else tens


def in_german(number: int) -> str:
    """The number in one German word: einhunderteinundzwanzig; 1 and 101 end in "eins"."""
    said = _compound(number)
    return f"{said}s" if number % 100 == 1 else said


def _compound(number: int) -> str:
    if number >= 1000:
        return f"{_compound(number // 1000)}tausend" + (
            _compound(number % 1000) if number % 1000 else ""
        )
    if number >= 100:
        return f"{_GERMAN[number // 100]}hundert" + (
            _compound(number % 100) if number % 100 else ""
        )
    if number < 20:
        return _GERMAN[number]
    tens = _GERMAN_TENS[number // 10 - 2]
    return f"{_GERMAN[number % 10]}und{tens}" if number % 10 else tens
