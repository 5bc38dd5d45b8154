"""Puts things into sentences and their translations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from model.bundle.carriers import DEFAULT_CARRIERS, Carrier
from model.bundle.spans import Span
from service.things.carrying import invented, numbered
from service.things.edits import Edit, EditedText
from service.things.wanted import Candidate, Needs, overlap
from service.translation.links import Link

_DOTS = re.compile(r"\.{3}(?!\.)")
_STRAY = re.compile(r"(?<=\S)[ ]+(?=[,.](?!\S))|(?<=\S[ ])[ ]+")
_QUOTE_AND_STOP = re.compile(r"[\"”“»]\.\s*\Z")
_STOP_AND_QUOTE = re.compile(r"(\.)([\"”“»])(?=\s*\Z)")
_DOUBLE_COMMA = re.compile(r",(?=[\"”“»'’‘‹],)")
_ENDS = ".!?…。！？:;\"'”»)"


def with_tokens(
    text: str,
    places: Mapping[Span, str],
    carriers: Sequence[Carrier],
    forms: str,
    others: Iterable[Edit] = (),
) -> tuple[EditedText, dict[str, str]]:
    """The sentence with tokens in place of some parts; parts side by side share a token.

    Args:
        text: the sentence.
        places: the string that the translation gets for each part, by the part's place.
        carriers: forms of tokens, best first. The first with enough tokens is used; without one,
            no part gets a token.
        forms: the translations of the sentence's terms; no token may be part of them.
        others: further edits; those of parts that get a token are left out.

    Returns:
        The edited sentence, and the string that the translation gets for each token.
    """
    groups: list[tuple[Span, str]] = []
    for span, put in sorted(places.items()):
        if groups and groups[-1][0].end == span.start:
            (start, _), before = groups.pop()
            span, put = Span(start, span.end), before + put
        groups.append((span, put))
    found = (numbered(carrier, len(groups), text, forms) for carrier in carriers)
    tokens = next((tokens for tokens in found if tokens is not None), None)
    if tokens is None:
        tokens, groups = [], []
    edits = [Edit(span, token) for (span, _), token in zip(groups, tokens, strict=True)]
    edits += (edit for edit in others if not any(overlap(edit.span, span) for span, _ in groups))
    puts = {token: put for (_, put), token in zip(groups, tokens, strict=True)}
    return EditedText(text, edits), puts


def edited(candidate: Candidate, edits: Sequence[Edit], source: Span | None = None) -> Candidate:
    """The candidate after edits.

    Args:
        candidate: the candidate.
        edits: edits of the translation; a single one if there is a `source`.
        source: the part of the sentence that the edit is linked to; None for no such link.
    """
    if not edits:
        return candidate
    changed = EditedText(candidate.text, edits)
    moved = (link._replace(target=changed.after(link.target)) for link in candidate.links)
    links = [link for link in dict.fromkeys(moved) if link.target.start < link.target.end]
    if source is not None:
        links = [link for link in links if not overlap(link.target, changed.spans[0])]
        links.append(Link(source, changed.spans[0]))
        links.sort(key=lambda link: link.target)
    return replace(candidate, text=changed.text, links=links)


def appended(text: str, put: str) -> Edit:
    """An edit that puts a string at the end of a text, before the punctuation."""
    end = len(text.rstrip().rstrip(_ENDS))
    before = " " if end and not text[end - 1].isspace() else ""
    after = " " if text[end : end + 1].isalnum() else ""
    return Edit(Span(end, end), before + put + after)


def copied(text: str) -> Candidate:
    """The sentence in place of its translation."""
    whole = Span(0, len(text))
    return Candidate(text, [Link(whole, whole)], is_source=True)


def _without_space(text: str, span: Span) -> Edit:
    """An edit that removes a part of a text, with the space before it."""
    has_space = text[span.start - 1 : span.start] == " "
    return Edit(Span(span.start - has_space, span.end), "")


def without_carriers(
    candidate: Candidate, carriers: Sequence[Carrier], known: Iterable[str]
) -> tuple[Candidate, list[str]]:
    """The candidate without carriers that the model made up, and these.

    Args:
        candidate: a candidate.
        carriers: the model's carriers, beside the default ones.
        known: strings that may have carriers of their own.
    """
    spans = invented(candidate.text, (*carriers, *DEFAULT_CARRIERS), *known)
    edits = [_without_space(candidate.text, span) for span in spans]
    return edited(candidate, edits), [candidate.text[slice(*span)] for span in spans]


def tidied(source: str, candidate: Candidate) -> Candidate:
    """The candidate with an ellipsis, spaces and a full stop as the sentence writes them."""
    text = candidate.text
    edits = []
    if "…" in source and "..." not in source:
        edits += [Edit(Span(*match.span()), "…") for match in _DOTS.finditer(text)]
    if not _STRAY.search(source):
        edits += [Edit(Span(*match.span()), "") for match in _STRAY.finditer(text)]
    if not _DOUBLE_COMMA.search(source):
        edits += [Edit(Span(*match.span()), "") for match in _DOUBLE_COMMA.finditer(text)]
    if _QUOTE_AND_STOP.search(source) and (match := _STOP_AND_QUOTE.search(text)):
        edits.append(Edit(Span(*match.span()), match[2] + match[1]))
    return edited(candidate, edits)


def spaced(text: str, span: Span, put: str) -> Edit:
    """An edit that puts a string over a part of a text, with spaces between it and other words."""
    before = text[: span.start][-1:].isalnum() and put[:1].isalnum()
    after = text[span.end : span.end + 1].isalnum() and put[-1:].isalnum()
    return Edit(span, " " * before + put + " " * after)


def place(candidate: Candidate, source: Span, put: str, *kept: Needs) -> Span | None:
    """The place of the words that translate a part of the sentence; None if it is not clear.

    Args:
        candidate: the translation.
        source: the place of the part in the sentence.
        put: the string that is to replace the words.
        kept: needs that the words must not meet, because they would be lost.
    """
    place = linked_place(candidate, source, len(put))
    if place is None:
        return None
    taken = (span for needs in kept for spans in needs.found(candidate).values() for span in spans)
    return None if any(overlap(place, span) for span in taken) else place


def linked_place(candidate: Candidate, source: Span, length: int) -> Span | None:
    """The place of the words that translate a part of the sentence, if they are few and together.

    Args:
        candidate: the translation.
        source: the place of the part in the sentence.
        length: characters of the string that is to replace the words.
    """
    parts = candidate.linked(source)
    if not parts:
        return None
    place = Span(parts[0].start, max(part.end for part in parts))
    others = sum(
        link.target.end - link.target.start
        for link in candidate.links
        if link.target not in parts and overlap(link.target, place)
    )
    is_whole = place.end - place.start > max(40, 4 * length)
    return None if is_whole or others > length else place
