"""Finds the translation of each line of a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from model.bundle.spans import Span
from service.errors import InternalError
from service.translation.links import Link
from service.translation.results import TextResult


class TranslatedText(NamedTuple):
    """The translation of a text, and the links between both."""

    text: str
    links: Sequence[Link]


def split_lines(lengths: Sequence[int], result: TextResult) -> list[TranslatedText]:
    """The translation of each line of a text.

    Args:
        lengths: the length of each line in characters, without line breaks.
        result: the result of the text, with links.

    Raises:
        InternalError: a line break was not copied.
    """
    lines: list[TranslatedText] = []
    source_start = target_start = 0
    links = list(result.links)
    index = 0
    for number, length in enumerate(lengths, 1):
        source_end = source_start + length
        own: list[Link] = []
        target_end = len(result.text) if number == len(lengths) else None
        while index < len(links):
            source, target, is_unit = links[index]
            holds_break = source.start <= source_end < source.end
            shift = target.start - source.start
            if holds_break and len(target) and target.end - source.end == shift:
                target_end = source_end + shift
                source, target = Span(source.start, source_end), Span(target.start, target_end)
            elif source.start > source_end:
                break
            else:
                index += 1
            if source.start < source_start:  # the rest of a copied part
                target = Span(target.start + source_start - source.start, target.end)
                source = Span(source_start, source.end)
            if source.start < source.end:
                own.append(_moved(Link(source, target, is_unit), -source_start, -target_start))
            if holds_break:
                break
        if target_end is None:
            raise InternalError("a line break was lost in translation")
        lines.append(TranslatedText(result.text[target_start:target_end], own))
        source_start, target_start = source_end + 1, target_end + 1
    return lines


def _moved(link: Link, by_source: int, by_target: int) -> Link:
    source, target, is_unit = link
    return Link(
        Span(source.start + by_source, source.end + by_source),
        Span(target.start + by_target, target.end + by_target),
        is_unit,
    )
