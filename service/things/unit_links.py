"""Links from things and terms to their places in a translation, each as one piece."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from model.bundle.spans import Span
from service.glossaries.glossary import TermMatch
from service.things.wanted import Candidate, Needs, overlap, paired
from service.translation.links import Link


def with_units(candidate: Candidate, matches: Sequence[TermMatch], terms: Needs) -> Candidate:
    """The candidate with a link from each term to its translation, as one piece.

    Args:
        candidate: a candidate with links of words.
        matches: the terms of the sentence.
        terms: the needs of these terms.
    """
    units: list[Link] = []
    for source, places in terms.found(candidate).items():
        same = [match for match in matches if match.entry.source == source]
        pairs = paired(same, places, candidate) or [(same[0], place) for place in places]
        units += (Link(match.span, place, is_unit=True) for match, place in pairs)
    others = [
        link
        for link in candidate.links
        if not any(overlap(link.target, unit.target) for unit in units)
    ]
    return replace(candidate, links=sorted([*others, *units], key=lambda link: link.target))


def with_things(candidate: Candidate, things: Needs, skipped: Collection[Span]) -> Candidate:
    """The candidate with a link from each thing to its place, and none from it to other words.

    Args:
        candidate: a candidate with links of words.
        things: the needs of the sentence's things.
        skipped: places of things with words in them, whose links stay.
    """
    units: list[Link] = []
    for spans, places in things.places(candidate):
        if len(spans) == len(places) and not any(span in skipped for span in spans):
            linked = [candidate.linked(span) for span in spans]
            places = sorted(places)
            order = sorted(range(len(spans)), key=lambda i: linked[i][:1] or [places[i]])
            pairs = zip(order, places, strict=True)
            units += (Link(spans[i], there, is_unit=True) for i, there in pairs)
    whole = [link for link in candidate.links if any(_is_around(link, unit) for unit in units)]
    units = [unit for unit in units if not any(_is_around(link, unit) for link in whole)]
    sources = [unit.source for unit in units] + [link.source for link in whole]
    others = [
        link
        for link in candidate.links
        if link in whole
        or not (
            any(overlap(link.target, unit.target) for unit in units)
            or any(s.start <= link.source.start and link.source.end <= s.end for s in sources)
        )
    ]
    return replace(candidate, links=sorted([*others, *units], key=lambda link: link.target))


def _is_around(link: Link, unit: Link) -> bool:
    """Whether a link is one of the whole thing, or of a copy that contains it."""
    (start, end), (first, last) = unit.source, unit.target
    source, target = link.source, link.target
    is_copy = source.end - source.start == target.end - target.start
    return (
        is_copy
        and source.start <= start < end <= source.end
        and (target.start <= first < last <= target.end)
    )
