"""The words of a translation, and the parts of the run's text that each comes from."""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from model.bundle.spans import Span
from service.glossaries.placeholders import PLACEHOLDER
from service.text.markup.tree import Node, RunTree
from service.translation.links import Link

QUOTES = "\"“”„«»‹›'‘’‚"
_WORD = re.compile(rf"\w+(?:['’]\w+)*|[{QUOTES}]|[.,;:!?]+|[^\w\s{QUOTES}.,;:!?]+")
_SIGNS = re.compile(rf"[{QUOTES}.,;:!?()\[\]]+")
_PUNCTUATION_WEIGHT = 0.5


@dataclass(slots=True)
class Unit:
    """A word of the translation.

    Attributes:
        span: place in the translation.
        sources: the parts of the run's text that it comes from.
        is_placeholder: whether verbatim text is written for it.
        node: the deepest node that it belongs to.
        weight: weight in the choice of an element's place.
        is_barrier: whether only elements around it continue across it, as for a quotation mark.
    """

    span: Span
    sources: list[Span]
    is_placeholder: bool = False
    node: Node | None = None
    weight: float = 1.0
    is_barrier: bool = False


def units_of(tree: RunTree, target: str, links: Sequence[Link]) -> list[Unit]:
    """The words of a translation, in order."""
    units: list[Unit] = []
    position = 0
    by_target: dict[Span, list[Span]] = {}
    whole = {link.target for link in links if link.is_unit}
    for link in _plausible(tree.text, target, links):
        by_target.setdefault(link.target, []).append(link.source)
    for span, sources in by_target.items():
        if span.start < position:
            continue
        _add_words(units, target, position, span.start)
        is_copied = tree.text[slice(*sources[0])] == target[slice(*span)]
        if len(sources) == 1 and (span not in whole or is_copied):
            units += _refined(tree.text, target, Link(sources[0], span))
        else:
            is_whole = span in whole or not any(mark in target[slice(*span)] for mark in QUOTES)
            words = [span] if is_whole else [Span(*each.span()) for each in _words(target, span)]
            units += [Unit(word, sources) for word in words]
        position = span.end
    _add_words(units, target, position, len(target))
    units = _with_placeholders(tree, target, units)
    for unit in units:
        text = target[slice(*unit.span)]
        unit.weight = float(len(text)) if is_word(text) else _PUNCTUATION_WEIGHT
    return units


def _plausible(text: str, target: str, links: Sequence[Link]) -> list[Link]:
    """The links without those of a word to a sign, or to others than the word's own copy."""
    pairs = [(text[slice(*link.source)], target[slice(*link.target)]) for link in links]
    copied = {
        link.source.start for link, (one, other) in zip(links, pairs, strict=True) if one == other
    }
    return [
        link
        for link, (one, other) in zip(links, pairs, strict=True)
        if one == other
        or not (link.source.start in copied or (is_word(one) and _SIGNS.fullmatch(other)))
    ]


def _words(text: str, span: Span) -> Iterator[re.Match[str]]:
    return _WORD.finditer(text, *span)


def _add_words(units: list[Unit], target: str, start: int, end: int) -> None:
    for match in _WORD.finditer(target, start, end):
        units.append(Unit(Span(*match.span()), []))


def _refined(text: str, target: str, link: Link) -> list[Unit]:
    """A link as links of words: of equal parts by their places, else by relative position."""
    words = [Span(*match.span()) for match in _WORD.finditer(target, *link.target)]
    if len(words) < 2:
        return [Unit(word, [link.source]) for word in words]
    if _is_copy(text[slice(*link.source)], target[slice(*link.target)]):
        shift = link.source.start - link.target.start
        return [Unit(word, [Span(word.start + shift, word.end + shift)]) for word in words]
    sources = [Span(*match.span()) for match in _WORD.finditer(text, *link.source)]
    if not sources:
        return [Unit(word, []) for word in words]
    ratio = len(sources) / len(words)
    return [Unit(word, [sources[int((i + 0.5) * ratio)]]) for i, word in enumerate(words)]


def _is_copy(source: str, target: str) -> bool:
    """Whether two parts are the same, but for signs such as the separators of a number."""
    return len(source) == len(target) and all(
        one == other or not (one.isalnum() or other.isalnum())
        for one, other in zip(source, target, strict=True)
    )


def _with_placeholders(tree: RunTree, target: str, units: Sequence[Unit]) -> list[Unit]:
    """The units with one for each placeholder, in place of what overlaps it."""
    nodes = {node.placeholder: node for node in tree.verbatim}
    cuts: list[Span] = []
    found: list[Unit] = []
    for match in PLACEHOLDER.finditer(target) if nodes else ():
        node = nodes.pop(match[0], None)  # the first place of each
        if node is not None:
            cuts.append(Span(*match.span()))
            found.append(Unit(cuts[-1], [Span(node.start, node.end)], is_placeholder=True))
    if not cuts:
        return list(units)
    ends = [cut.end for cut in cuts]
    for unit in units:
        start, end = unit.span
        for cut in itertools.islice(cuts, bisect_right(ends, start), None):
            if cut.start >= end:
                break
            if start < cut.start:
                found.append(Unit(Span(start, cut.start), unit.sources))
            start = cut.end
        if start < end:
            found.append(Unit(Span(start, end), unit.sources))
    return sorted(found, key=lambda unit: unit.span)


def is_word(text: str) -> bool:
    """Whether a unit is a word, and not punctuation."""
    return any(map(str.isalnum, text))
