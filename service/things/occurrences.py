"""Finds strings in a text, as whole words."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from model.bundle.spans import Span
from service.things.patterns import CURRENCIES

_NO_LATIN = "\u0250"


class Occurrences:
    """Occurrences of some strings in a text. They don't overlap: longer forms are found first.

    Args:
        text: the text to search.
        wanted: the forms of each string that may be in the text, by the string's name.
        parts: names of strings that count as parts of longer words and numbers too.

    Attributes:
        spans: places of each string in the text, in order, by the string's name.
    """

    def __init__(
        self, text: str, wanted: Mapping[str, Sequence[str]], parts: Collection[str] = ()
    ) -> None:
        self.spans: dict[str, list[Span]] = {name: [] for name in wanted}
        taken = bytearray(len(text))
        forms = [(form, name) for name, forms in wanted.items() for form in forms]
        for form, name in sorted(forms, key=lambda pair: -len(pair[0])):
            start = text.find(form)
            while start >= 0:
                span = Span(start, start + len(form))
                is_free = not any(taken[span.start : span.end])
                if is_free and (name in parts or _is_whole(text, span)):
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
    if before and _are_one_word(before[-1], first):
        return False
    if after and (_are_one_word(last, after[0]) or (last in CURRENCIES and after[0].isdigit())):
        return False
    if first.isdigit() and len(before) == 2 and before[1] in ".,:/" and before[0].isdigit():
        return False
    return not (last.isdigit() and len(after) == 2 and after[0] in ".,:/" and after[1].isdigit())


def _are_one_word(one: str, next_one: str) -> bool:
    """Whether two neighbours are of one word: not if just one of them is Latin or a digit."""
    is_same = (one < _NO_LATIN) is (next_one < _NO_LATIN)
    return is_same and _is_word(one) and _is_word(next_one)


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"
