"""Estimates at the beginning of a sentence: "About 50 people" is not "Über 50 Menschen"."""

from __future__ import annotations

import re

from model.bundle.spans import Span
from service.things.edits import Edit

_NUMBER = (
    r"(?:\d|(?:a|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|half)\b|\w+(?:teen|ty)\b"
    r"|\w+ty-\w)"
)
_ABOUT = re.compile(rf"(?:About|Around|Approximately|Roughly)\s{_NUMBER}")
# The model's words for "about", which say "over" and "at" before a number.
_OVER = re.compile(r"(?:Über|Um)(?=\s(?:\d|[a-zäöüß]))")


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
    if language.split("-")[0].lower() != "de" or not is_estimate(source):
        return []
    match = _OVER.match(target)
    return [Edit(Span(*match.span()), "Etwa")] if match else []
