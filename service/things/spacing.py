"""Spaces of translations: those beside tags and codes, and those that better forms bring.

The model reads a space between a tag and a word that it is glued to (`gaps_of`): it would not
translate the word.
"""

from __future__ import annotations

import html
import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from model.bundle.spans import Span
from service.things.date_style import corrected, ordered
from service.things.edits import Edit
from service.things.estimates import estimated
from service.things.placing import edited
from service.things.quotes import quotes_of
from service.things.scanned import ScannedSentence
from service.things.things import Form, Thing
from service.things.wanted import Candidate, Needs, overlap

# <b>, </b>, <br/>, [b], [/b], and codes of subtitles such as {\an8}.
_TAG = re.compile(
    r"""
      <(?P<end>/)?(?P<name>[A-Za-z\d][\w:.-]{0,40}+)(?:\s[^<>\n]{0,300}+)?/?>
    | \[(?P<end2>/)?[A-Za-z]{1,12}(?:=[^\[\]\s]{1,200})?\]
    | \{\\[^{}\n]{1,100}\}
    | \{(?P<end3>/)?(?P<braced>[A-Za-z]\w{0,20}+)\}
    | (?P<code> \{\{[^{}\n]{1,200}\}\} | \{%[^\n]{0,300}?%\} | <[%?][^\n]{0,300}?[%?]>
      | `[^`\n]{1,200}` | :[a-z0-9_+-]{1,50}: | &(?!apos;|rsquo;|\#0?39;|\#8217;)\#?\w{2,10}; )
    """,
    re.VERBOSE,
)
_BEFORE_TEXT = re.compile(r"</?[A-Za-z\d]|\[/?[a-z]|\{%.*%|\{\{[-#/^>e]|\{\\|<[%?]")
_BEHIND_TEXT = re.compile(r"</|\[/|<br|\{%.*%|\{\{[-/^e]|<[%?]", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]{2,}+")
_LONG_WORD = 3
_PUNCTUATION, _OPENING = ".,;:!?)", "<[{"


def without_invented_spaces(source: str, candidate: Candidate) -> Candidate:
    """A translation of a sentence without the spaces beside tags that the sentence lacks."""
    return edited(candidate, invented_spaces(source, candidate.text))


def gaps_of(text: str, things: Iterable[Thing]) -> Iterator[int]:
    """The positions in a sentence between a tag, template or code and a word that touches it.

    There is none before an ending, as in `{{x}}s`, or beside an entity that is a letter.
    """
    for thing in things:
        if thing.form not in (Form.PLACEHOLDER, Form.TEMPLATE, Form.CODE, Form.SHORTCODE):
            continue
        if thing.text[0] == "&" and not _is_sign(html.unescape(thing.text)):
            continue
        is_block = _BEFORE_TEXT.match(thing.text) is not None
        is_apart = thing.form in (Form.SHORTCODE, Form.TEMPLATE) and thing.text[0] in ":&"
        start, end = thing.span
        is_behind = is_apart or _BEHIND_TEXT.match(thing.text) is not None
        if is_behind and text[max(0, start - 1) : start].isalpha():
            yield start
        word = _WORD.match(text, end)
        if word and (is_block or is_apart or thing.form is Form.CODE or _is_before(word[0], thing)):
            yield end


def _is_before(word: str, thing: Thing) -> bool:
    return thing.text.startswith("{{") and len(word) >= _LONG_WORD


def _is_sign(text: str) -> bool:
    """Whether a text is a space, a dash or a sign, and no letter, bracket or quotation mark."""
    return unicodedata.category(text[0]) in ("Zs", "Pd", "Po", "So")


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
        if match["braced"] and f"{{/{match['braced']}}}" not in source:
            continue  # a placeholder
        if others:
            spaces.update(_beside(source, match, target, others.pop(0)))
    return [Edit(span, "") for span in sorted(spaces)]


def in_style(
    sentence: ScannedSentence, candidate: Candidate, needs: Needs, *kept: Needs
) -> Candidate:
    """A translation with the better of correct forms, and the spaces and estimates of its sentence.

    Args:
        sentence: a sentence.
        candidate: its translation.
        needs: the needs of its things.
        kept: needs whose places stay as they are.
    """
    candidate = needs.with_spaces(candidate, sentence.text)
    candidate = edited(candidate, list(needs.bettered(candidate, *kept)))
    candidate = edited(candidate, estimated(sentence.text, candidate.text, needs.target))
    languages = (needs.source, needs.target)
    for edits in (ordered, corrected):
        found = edits(sentence.text, candidate.text, languages)
        if found:
            candidate = edited(candidate, _outside(found, candidate, needs, *kept))
    things = [thing.span for thing in sentence.things]
    return edited(candidate, misplaced_spaces(sentence.text, things, candidate.text))


def _outside(edits: Sequence[Edit], candidate: Candidate, *needs: Needs) -> list[Edit]:
    """The edits of what is no other thing, no term, and not quoted."""
    places = [place for each in needs for place in each.others(candidate)]
    marks = [mark.span.start for mark in quotes_of(candidate.text, places)]
    return [
        edit
        for edit in edits
        if not any(overlap(edit.span, place) for place in places)
        and sum(mark < edit.span.start for mark in marks) % 2 == 0
    ]


def misplaced_spaces(source: str, things: Iterable[Span], target: str) -> list[Edit]:
    """The spaces that a translation has between things that touch, or within quotation marks.

    Args:
        source: a sentence.
        things: the places of its things.
        target: its translation.
    """
    touching: set[tuple[str, str]] = set()
    quoted: Counter[tuple[str, str]] = Counter()
    before = Span(0, 0)
    for span in sorted(things):
        thing = source[slice(*span)]
        if before.end == span.start > before.start:
            touching.add((source[slice(*before)], thing))
        mark = source[max(0, span.start - 1) : span.start]
        if mark and mark in "'\"" and source[span.end : span.end + 1] == mark:
            quoted[mark, thing] += 1
        before = span
    edits: dict[Span, str] = {}
    for first, thing in touching:
        gap = re.compile(rf"(?<={re.escape(first)}) ?(?={re.escape(thing)})")
        there, here = list(gap.finditer(source)), list(gap.finditer(target))
        if len(there) == len(here):
            wrong = [h for t, h in zip(there, here, strict=True) if h[0] and not t[0]]
        else:
            missing = sum(not t[0] for t in there) - sum(not h[0] for h in here)
            wrong = [h for h in here if h[0]][: max(0, missing)]
        edits |= {Span(*h.span()): "" for h in wrong}
    for (mark, thing), count in quoted.items():
        loose = re.finditer(rf"(?<=[^\W\d_]){mark} (?={re.escape(thing)}{mark})", target)
        missing = count - _count(f"{mark}{thing}{mark}", target)
        edits |= {Span(*gap.span()): f" {mark}" for gap in itertools.islice(loose, max(0, missing))}
    return [Edit(span, put) for span, put in sorted(edits.items())]


def _count(part: str, text: str) -> int:
    """How often a text has a part; places may overlap, as those of "{0}{0}" in "{0}{0}{0}"."""
    return len(re.findall(rf"(?={re.escape(part)})", text))


def _beside(source: str, tag: re.Match[str], target: str, other: re.Match[str]) -> Iterator[Span]:
    """The spaces before and after a tag that are to go."""
    ends = bool(tag["end"] or tag["end2"] or tag["end3"])
    is_empty = (
        tag[0].endswith("/>") or tag[0].startswith("{\\") or (tag["name"] or "").lower() == "br"
    )
    before, after = source[max(0, tag.start() - 1) : tag.start()], source[tag.end() : tag.end() + 1]
    first, last = other.span()
    while first and target[first - 1] == " ":
        first -= 1
    while target[last : last + 1] == " ":
        last += 1
    if tag["code"] is not None:
        if before.isalpha() and first and first < other.start():
            yield Span(first, other.start())
        if after.isalpha() and last < len(target) and other.end() < last:
            yield Span(other.end(), last)
        return
    # A tag that begins something stands at what follows; one that ends something, at what precedes.
    if (ends or is_empty) and before.strip() and first and first < other.start():
        yield Span(first, other.start())
    following = target[last : last + 1]
    has_sign = following in _PUNCTUATION and after in _PUNCTUATION
    has_sign |= (following == after and after in _OPENING) or after.isalpha()
    if (not ends or has_sign) and after.strip() and last < len(target) and other.end() < last:
        yield Span(other.end(), last)
