"""Replaces parts of a text, and says where each part of one text is in the other."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from model.bundle.spans import Span


@dataclass(frozen=True)
class Edit:
    """A replacement: a part of a text, and the string that takes its place."""

    span: Span
    text: str


class EditedText:
    """A text before and after edits.

    Args:
        before: the text before the edits.
        edits: edits of parts that don't overlap, in any order.

    Attributes:
        text: the text after the edits.
        spans: places of the new strings in the edited text, in order.
    """

    def __init__(self, before: str, edits: Iterable[Edit]) -> None:
        self._old: list[Span] = []
        self.spans: list[Span] = []
        pieces: list[str] = []
        end = length = 0
        for edit in sorted(edits, key=lambda edit: edit.span):
            kept = before[end : edit.span.start]
            start = length + len(kept)
            length, end = start + len(edit.text), edit.span.end
            pieces += (kept, edit.text)
            self._old.append(edit.span)
            self.spans.append(Span(start, length))
        self.text = "".join([*pieces, before[end:]])

    def after(self, span: Span) -> Span:
        """The place of a part in the edited text, with all of each edit that the part touches."""
        return _moved(span, self._old, self.spans)

    def before(self, span: Span) -> Span:
        """The place in the original text of a part of the edited text."""
        return _moved(span, self.spans, self._old)


def _moved(span: Span, old: list[Span], new: list[Span]) -> Span:
    start = _position(span.start, old, new, at_end=False)
    return Span(start, max(start, _position(span.end, old, new, at_end=True)))


def _position(position: int, old: list[Span], new: list[Span], *, at_end: bool) -> int:
    """The new position of a character. A position within an edit moves to its start or end."""
    find = bisect_left if at_end else bisect_right
    index = find(old, position, key=lambda span: span.start) - 1
    if index < 0:
        return position
    if position < old[index].end or (at_end and position == old[index].end):
        return new[index].end if at_end else new[index].start
    return position + new[index].end - old[index].end
