"""Quotation marks of a sentence and of its translation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from model.bundle.spans import Span
from service.things.edits import Edit

_SINGLE = re.compile(
    r"(?P<inner>(?<=\w)(?:\\'|&apos;|&rsquo;|&\#0?39;|&\#8217;|&\#x27;)(?=\w))|\\'|&apos;|&\#0?39;"
)
ESCAPED_QUOTE = r"\\[\"']|&quot;|&apos;|&\#0?3[49];"
_QUOTE = re.compile(
    rf"""(?P<escaped>{ESCAPED_QUOTE}) | (?P<double>["“”„«»‟＂]|''(?!'))
      | (?P<opening>(?<![\w'‘’])['‘‚‹’](?=[^\s'’])) | (?P<closing>(?<=[^\s'‘‚])['’‘›](?![\w'’]))""",
    re.VERBOSE,
)
_UNESCAPED = re.compile(r"(?<!\\)'")
_CLOSING = {"“": "”", "„": "“", "«": "»", "‹": "›", "‘": "’", "‚": "‘"}
_MAY_BE = re.compile(r"""["“”„«»‟＂‚‹]|&(?:quot|apos|\#0?3[49]);|\\'|(?<!\w)['‘’]""")


class Quote(NamedTuple):
    r"""A quotation mark.

    Attributes:
        span: the place of the mark.
        text: the mark.
        is_escaped: whether the mark is escaped for a program, as \" or &quot;.
    """

    span: Span
    text: str
    is_escaped: bool


def may_have_quotes(text: str) -> bool:
    """Whether a text may have quotation marks: a fast scan."""
    if text.isascii():
        return '"' in text or " '" in text or text[:1] == "'" or "&" in text or "\\'" in text
    return _MAY_BE.search(text) is not None


def apostrophes_of(text: str) -> list[Span]:
    """The places of escaped single marks that quote nothing: It&#39;s the users&#39; file."""
    if "\\'" not in text and "&" not in text:
        return []
    found, opened = [], None
    for match in _SINGLE.finditer(text):
        span = Span(*match.span())
        if match["inner"] is not None:
            found.append(span)
        elif opened is not None:
            opened = None
        elif text[span.start - 1 : span.start].isalnum():
            found.append(span)
        else:
            opened = span
    # One by itself beside a word begins or ends a quotation of several sentences.
    is_alone = opened is not None and f" {text} "[opened.start : opened.end + 2] == r" \' "
    return sorted([*found, opened] if opened is not None and is_alone else found)


def quoted_pairs(quotes: Iterable[Quote]) -> list[tuple[Quote, Quote]]:
    """The outermost pairs of marks, in order; none if a mark has no partner."""
    found: list[tuple[Quote, Quote]] = []
    opened: list[Quote] = []
    for quote in quotes:
        closing = _CLOSING.get(opened[-1].text, opened[-1].text) if opened else ""
        if quote.text == closing:
            start = opened.pop()
            if not opened:
                found.append((start, quote))
        else:
            opened.append(quote)
    return [] if opened else found


def quotes_of(text: str, things: Iterable[Span] = ()) -> list[Quote]:
    """The quotation marks of a text, in order; single ones only in pairs.

    Args:
        text: a sentence or its translation.
        things: places of parts whose marks don't count.
    """
    if not may_have_quotes(text):
        return []
    text = _masked(text, (*things, *apostrophes_of(text)))
    found, opened = [], None
    for match in _QUOTE.finditer(text):
        quote = Quote(Span(*match.span()), match.group(), match["escaped"] is not None)
        if match["opening"] is not None:
            opened = opened or quote
        elif match["closing"] is not None:
            if opened is not None:
                found += [opened, quote]
                opened = None
        else:
            found.append(quote)
    return sorted(found)


def as_escaped(
    source: str, quotes: Sequence[Quote], text: str, things: Iterable[Span]
) -> list[Edit]:
    """Edits that escape the marks and apostrophes of a translation as in its sentence.

    Quotation marks stay as they are if sentence and translation have different numbers of them.

    Args:
        source: the sentence.
        quotes: its quotation marks.
        text: the translation.
        things: places of parts of the translation that stay as they are.
    """
    if not may_have_quotes(source):
        return []
    masked = _masked(text, things)
    found = quotes_of(masked)
    pairs = zip(quotes, found, strict=True) if len(quotes) == len(found) else ()
    edits = [Edit(there.span, quote.text) for quote, there in pairs if quote.is_escaped]
    escapes = {match[0] for match in _SINGLE.finditer(source)}
    if len(escapes) == 1 and _UNESCAPED.search(source) is None:
        marks = {quote.span for quote in found}
        spans = (Span(*match.span()) for match in _UNESCAPED.finditer(text))
        edits += [
            Edit(span, *escapes)
            for span in spans
            if span not in marks and masked[slice(*span)] == "'"
        ]
    return edits


def _masked(text: str, spans: Iterable[Span]) -> str:
    for span in spans:
        text = text[: span.start] + "x" * (span.end - span.start) + text[span.end :]
    return text
