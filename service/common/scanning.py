"""Searches long texts with a regular expression, without long calls that hold Python's lock."""

from __future__ import annotations

import re
from collections.abc import Iterator

# The slowest patterns take 2 µs for a character.
_WINDOW = 4096
# Most characters that decide whether a match begins at a place, and where it ends.
_MARGIN = 1024


def matches(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """The same matches as `pattern.finditer(text)`, each call over a few thousand characters.

    Args:
        pattern: a pattern that never matches an empty text, and whose quantifiers have bounds.
        text: any text.
    """
    if len(text) <= _WINDOW:
        yield from pattern.finditer(text)
        return
    start = 0
    while start < len(text):
        end = start + _WINDOW
        match = pattern.search(text, start, end)
        if end < len(text):
            if match is None or match.start() > end - _MARGIN:
                start = end - _MARGIN
                continue
            if match.end() > end - _MARGIN:  # the end of the window may have cut it
                begin = match.start()
                match = pattern.match(text, begin)
                if match is None:
                    start = begin + 1
                    continue
        if match is None:
            return
        yield match
        start = match.end()


def contains(pattern: re.Pattern[str], text: str) -> bool:
    """Whether `pattern` matches anywhere in a text; see `matches`."""
    return next(matches(pattern, text), None) is not None
