"""Finds what a translation has to contain as it is in the text: placeholders, URLs, numbers ..."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from model.bundle.spans import Span


class ThingKind(enum.Enum):
    """A kind of thing; the values are the names of the contract's switches."""

    PLACEHOLDER = "placeholders"
    URL = "urls"
    EMAIL = "emails"
    CODE = "code"
    EMOJI = "emoji"
    SYMBOL = "symbols"
    NUMBER = "numbers"


ALL_KINDS = frozenset(ThingKind)


@dataclass(frozen=True)
class Thing:
    """A part of a text that is not translated."""

    kind: ThingKind
    span: Span
    text: str


_MAX_NUMBER = 64
_PICTURES = (
    "\u203c\u2049\u231a-\u23ff\u25aa-\u25fe\u2600-\u27bf\u2934\u2935\u2b05-\u2b55\u3030\u303d"
    "\u3297\u3299\U0001f000-\U0001faff"
)
_SYMBOLS = "©®™€£¥₩₹₽¢§°±×÷≤≥≠≈∞√∑†‡\u2190-\u21ff"
_MARKS = "\ufe0e\ufe0f\u20e3\U0001f3fb-\U0001f3ff"

# Without one of these characters, or "www.", a text has no thing.
_ASCII_SIGNS = b"0123456789{%$<`@/\\"
_SIGN = re.compile(rf"[{re.escape(_ASCII_SIGNS.decode())}{_SYMBOLS}{_PICTURES}]")

# No part of it can match in several ways, and all that can fail after a long run either has a
# bounded length or can't begin within that run: linear time on any input.
_THING = re.compile(
    rf"""
    (?P<CODE> `[^`\n]{{1,200}}+` )
  | (?P<URL> (?<!\w)(?:[A-Za-z][a-z0-9+.-]{{1,15}}+://|www\.(?=\w))[^\s<>"'`«»“”„{{}}]++ )
  | (?P<EMAIL> (?<![\w.+-])[\w.+-]{{1,64}}+@[\w-]{{1,63}}+(?:\.[\w-]{{1,63}}+){{1,8}}+ )
  | (?P<PLACEHOLDER>
        </?[A-Za-z][\w:.-]{{0,40}}+(?:\s[^<>\n]{{0,300}}+)?>          # <x id="7"/>
      | \{{\{{[^{{}}\n]{{1,100}}+\}}\}}                                 # {{{{ count }}}}
      | [$%\#@]?\{{\s?[^\s{{}}]{{0,100}}+\s?\}}                          # {{name}} ${{var}} %{{n}}
      | (?<![\w%])%(?:\(\w{{1,64}}+\)|\d{{1,2}}\$)?[-+\#0]{{0,3}}\d{{0,3}}(?:\.\d{{1,3}})?
        (?:hh?|ll?|[qjztL])?[diouxXeEfFgGcrsaAn@](?![A-Za-z])         # %s %1$s %(n)d
      | (?<![\w%])%L?\d{{1,2}}+(?!\w)                                  # %1
      | (?<![\w%])%[A-Z_]{{2,64}}+%                                    # %PATH%
      | (?<![\w$])\$[A-Za-z_]\w{{0,64}}+                               # $HOME
      | \[X\d{{1,9}}X\]                                               # [X7X], of Weblate
      | (?<![\w@%./+-])@[A-Za-z]\w{{0,63}}+(?:[.-]\w{{1,63}}+){{0,4}}+  # @tom
        (?:@[\w-]{{1,63}}+(?:\.[\w-]{{1,63}}+){{1,4}}+)?
      | (?<!\\)(?:\\[nrt])++                                         # \n, two characters
    )
  | (?P<EMOJI> (?:[\#*0-9]\ufe0f?\u20e3
      | [{_PICTURES}][{_MARKS}]{{0,3}}+(?:\u200d[{_PICTURES}][{_MARKS}]{{0,3}}+)*+)++ )
  | (?P<SYMBOL> [{_SYMBOLS}] )
  | (?P<NUMBER> (?<!\w)(?<!\d[.,:/'’-])\d++(?:[.,:/'’\u00a0\u202f-]\d++)*+(?![\w\u20e3\ufe0f])
        (?!\s?[ap]\.?m\b) )                                         # 3 pm can become 15 Uhr
    """,
    re.VERBOSE,
)
# What precedes an escape that is none, but a part of a path of Windows: C:\new
_IN_PATH = re.compile(
    r"""["'(]?(?:[A-Za-z]:|~|\.{1,2}(?:\Z|\\)|%\w+%|\\\\)|.*\\[^nrt"'\\]""", re.DOTALL
)
_MAX_PATH = 260
_BEFORE_BREAKS = tuple(".!?:;,…")
_CLOSING = {")": "(", "]": "["}


def may_have_things(text: str) -> bool:
    """Whether a text may have any: one fast scan, for the many that have none."""
    if "www." in text:
        return True
    if text.isascii():  # ten times as fast as the pattern
        return len(text.encode().translate(None, _ASCII_SIGNS)) < len(text)
    return _SIGN.search(text) is not None


def find_things(text: str, kinds: frozenset[ThingKind] = ALL_KINDS) -> list[Thing]:
    """The things of a text, in order; they don't overlap.

    Args:
        text: any text.
        kinds: those to find. What is within a thing of another kind is no thing of its own.
    """
    if not may_have_things(text):
        return []
    found = []
    for match in _THING.finditer(text):
        kind = ThingKind[match.lastgroup or ""]
        thing = match.group()
        if thing[0] == "\\" and _is_no_escape(text, match.start(), match.end()):
            continue
        if kind is ThingKind.URL:
            thing = _without_punctuation(thing)
        if kind in kinds and not (kind is ThingKind.NUMBER and len(thing) > _MAX_NUMBER):
            start = match.start()
            found.append(Thing(kind, Span(start, start + len(thing)), thing))
    return found


def may_be_word(text: str, start: int, end: int) -> bool:
    r"""Whether an escape may be the beginning of a word, as in \times, or of a name in a path.

    It may if a letter in lower case follows a single one, and no end of a sentence precedes it.
    """
    before, after = text[max(0, start - 1) : start], text[end : end + 1]
    return end - start == 2 and after.islower() and before not in _BEFORE_BREAKS


def _is_no_escape(text: str, start: int, end: int) -> bool:
    r"""Whether a backslash begins a command such as \times, or stands in a path of Windows."""
    is_after_word = text[max(0, start - 1) : start].isalnum()
    return (may_be_word(text, start, end) and not is_after_word) or is_in_path(text, start)


def is_in_path(text: str, position: int) -> bool:
    """Whether a backslash stands in a path of Windows: the word before it says so."""
    before = text[max(0, position - _MAX_PATH) : position]
    words = before.split()
    return bool(words) and not before[-1].isspace() and _IN_PATH.match(words[-1]) is not None


def _without_punctuation(url: str) -> str:
    """A URL without what ends the sentence, or a bracket around it."""
    end = len(url)
    unopened = {close: url.count(close) - url.count(begin) for close, begin in _CLOSING.items()}
    while end > 1:
        last = url[end - 1]
        if unopened.get(last, 0) > 0:
            unopened[last] -= 1
        elif last not in ".,;:!?…*":
            break
        end -= 1
    return url[:end]


class Occurrences:
    """Where given strings are in a text: the longest first, so that they don't overlap.

    Args:
        text: to search.
        wanted: for each string its forms, as they may stand in the text.

    Attributes:
        spans: for each string, in order of the text.
    """

    def __init__(self, text: str, wanted: Mapping[str, Sequence[str]]) -> None:
        self.spans: dict[str, list[Span]] = {name: [] for name in wanted}
        taken = bytearray(len(text))
        forms = [(form, name) for name, forms in wanted.items() for form in forms]
        for form, name in sorted(forms, key=lambda pair: -len(pair[0])):
            start = text.find(form)
            while start >= 0:
                span = Span(start, start + len(form))
                if not any(taken[span.start : span.end]) and _is_whole(text, span):
                    taken[span.start : span.end] = b"\1" * len(form)
                    self.spans[name].append(span)
                    start = text.find(form, span.end)
                else:
                    start = text.find(form, start + 1)
        for spans in self.spans.values():
            spans.sort()


def _is_whole(text: str, span: Span) -> bool:
    """Whether a part of a text is not part of a longer word or number."""
    first, last = text[span.start], text[span.end - 1]
    if first == "\\":  # an escape, which ends before a word
        return True
    before = text[max(0, span.start - 2) : span.start]
    after = text[span.end : span.end + 2]
    if before and _is_word(first) and _is_word(before[-1]):
        return False
    if after and _is_word(last) and _is_word(after[0]):
        return False
    if first.isdigit() and len(before) == 2 and before[1] in ".,:/" and before[0].isdigit():
        return False
    return not (last.isdigit() and len(after) == 2 and after[0] in ".,:/" and after[1].isdigit())


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"
