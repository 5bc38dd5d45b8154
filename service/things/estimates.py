"""Estimates at the beginning of a sentence: "About 50 people" is not "Über 50 Menschen"."""

from __future__ import annotations

import re

from model.bundle.languages import primary_subtag
from model.bundle.spans import Span
from service.things.edits import Edit

_TENS = "twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety"
_SMALL = "two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"
_NUMBER = (
    r"(?:\d[\d,.]*(?![\w/:])|(?:a|one|two|three|four|five|six|seven|eight|nine)\s(?:hundred|thousand|million)\b"
    rf"|a\s(?:dozen|quarter|third)\b|half\b|(?:thir|four|fif|six|seven|eigh|nine)teen\b|(?:{_TENS})\b"
    rf"|(?:{_SMALL})\s(?:percent|people|men|women|children|[a-z]+s)\b)(?!-year)"
)
_ABOUT = re.compile(rf"(?:About|Around|Approximately|Roughly)\s{_NUMBER}(?!\so['’]clock)")
# The model's words for "about", which say "over" and "at" before a number.
_OVER = re.compile(
    r"(?:Über|Um)(?=\s(?!\S+\sUhr)(?:\d[\d.]*(?![\w/:.,])|\w*(?:zig|zehn|hundert|tausend)\b|zwei\b|drei\b|vier\b"
    r"|fünf\b|sechs\b|sieben\b|acht\b|neun\b|elf\b|zwölf\b|\w*einem?\s(?:Dutzend|Drittel|Viertel)))"
)
_PARTS = ("About ", "Around ", "Approximately ", "Roughly ")


def may_have_estimates(text: str) -> bool:
    """Whether a sentence of an English text may begin with an estimate: a fast scan."""
    return any(map(text.__contains__, _PARTS))


def is_estimate(sentence: str) -> bool:
    """Whether an English sentence begins with an estimate."""
    return _ABOUT.match(sentence) is not None


def estimated(source: str, target: str, language: str) -> list[Edit]:
    """The edit that makes a German translation an estimate, too.

    Args:
        source: a sentence.
        target: its translation.
        language: BCP-47 code of the translation.
    """
    if primary_subtag(language) != "de" or not is_estimate(source):
        return []
    match = _OVER.match(target)
    return [Edit(Span(*match.span()), "Etwa")] if match else []
