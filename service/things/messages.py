"""Finds ICU messages, such as {count, plural, one {# file} other {# files}}, and their branches.

The keywords and braces are copied, and each branch is translated as a sentence of its own.
"""

from __future__ import annotations

import re

from model.bundle.spans import Span
from service.common.scanning import contains

MAX_BRANCHES = 24
"""Most branches of a message that is translated."""
_HEAD = re.compile(r"\{\s{0,8}\w{1,64}\s{0,8},\s{0,8}(?:plural|selectordinal|select)\s{0,8},")
_BRACES = re.compile(r"[{}]")


def messages_of(text: str) -> list[Span]:
    """The places of the messages of a text, in order, without messages within another."""
    if "{" not in text or not contains(_HEAD, text):
        return []
    found: list[Span] = []
    opened: list[int] = []
    for match in _BRACES.finditer(text):
        if match.group() == "{":
            opened.append(match.start())
        elif opened:
            start = opened.pop()
            if _HEAD.match(text, start):
                while found and found[-1].start > start:
                    found.pop()
                found.append(Span(start, match.end()))
    return found


def branches_of(message: str) -> list[Span]:
    """The places of the branches of a message, which can contain further messages."""
    found: list[Span] = []
    depth = begun = 0
    for match in _BRACES.finditer(message):
        if match.group() == "{":
            depth += 1
            if depth == 2:
                begun = match.end()
        else:
            if depth == 2:
                found.append(Span(begun, match.start()))
            depth -= 1
    return found
