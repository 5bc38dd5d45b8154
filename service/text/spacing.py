"""Spaces beside the tags and codes of a plain text: none that its translation invents."""

from __future__ import annotations

import re
from collections.abc import Iterator

from model.bundle.spans import Span
from service.text.things.edits import Edit
from service.text.things.placing import edited
from service.text.things.wanted import Candidate

# <b>, </b>, <br/>, [b], [/b], and codes of subtitles such as {\an8}.
_TAG = re.compile(
    r"""
      <(?P<end>/)?(?P<name>[A-Za-z][\w:.-]{0,40}+)(?:\s[^<>\n]{0,300}+)?/?>
    | \[(?P<end2>/)?[A-Za-z]{1,12}(?:=[^\[\]\s]{1,200})?\]
    | \{\\[^{}\n]{1,100}\}
    """,
    re.VERBOSE,
)
_PUNCTUATION, _OPENING = ".,;:!?)", "<[{"


def without_invented_spaces(source: str, candidate: Candidate) -> Candidate:
    """A translation of a sentence without the spaces beside tags that the sentence lacks."""
    return edited(candidate, invented_spaces(source, candidate.text))


def invented_spaces(source: str, target: str) -> list[Edit]:
    """The spaces beside tags of a translation that its source lacks, as edits that remove them.

    Args:
        source: a sentence.
        target: its translation. Tags are compared by their order among equal ones.
    """
    places: dict[str, list[re.Match[str]]] = {}
    for match in _TAG.finditer(target):
        places.setdefault(match[0], []).append(match)
    if not places:
        return []
    spaces: set[Span] = set()
    for match in _TAG.finditer(source):
        others = places.get(match[0])
        if others:
            spaces.update(_beside(source, match, target, others.pop(0)))
    return [Edit(span, "") for span in sorted(spaces)]


def _beside(source: str, tag: re.Match[str], target: str, other: re.Match[str]) -> Iterator[Span]:
    """The spaces before and after a tag that are to go."""
    ends = bool(tag["end"] or tag["end2"])
    is_empty = tag[0].endswith("/>") or (tag["name"] or "").lower() == "br"
    before, after = source[max(0, tag.start() - 1) : tag.start()], source[tag.end() : tag.end() + 1]
    first, last = other.span()
    while first and target[first - 1] == " ":
        first -= 1
    while target[last : last + 1] == " ":
        last += 1
    # A tag that begins something stands at what follows; one that ends something, at what precedes.
    if (ends or is_empty) and before.strip() and first and first < other.start():
        yield Span(first, other.start())
    following = target[last : last + 1]
    has_sign = following in _PUNCTUATION and after in _PUNCTUATION
    has_sign |= following == after and after in _OPENING
    if (not ends or has_sign) and after.strip() and last < len(target) and other.end() < last:
        yield Span(other.end(), last)
