"""Divides a text into sentences that need care, and the text between them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from model.bundle.spans import Span
from service.common.scanning import matches
from service.things.edits import Edit, EditedText
from service.things.estimates import may_have_estimates
from service.things.letter_case import may_be_unusual
from service.things.messages import messages_of
from service.things.patterns import ATOMIC
from service.things.quotes import ESCAPED_QUOTE, may_have_quotes
from service.things.scanned import ScannedSentence, TermRules
from service.things.things import ThingKind, is_in_path, may_be_word, may_have_things
from service.translation.segmentation import SourceSentence, sentences, whole_text

# Longer sentences are more than models read in one piece.
_MAX_SENTENCE = 2000
# With more things, a sentence is a table or a log: it is left to the model.
_MAX_THINGS = 50
_MAX_TERMS = 50
_QUOTES = "\"'“”„‘’‚«»`"
_ENDS = re.compile(r"[.!?:;\n\r\v\f\x1c-\x1e\x85\u2028\u2029\"'“”„]")
_ESCAPED_QUOTE = re.compile(rf"([.!?]?)(?:{ESCAPED_QUOTE})")
# A match begins with the first of some spaces: linear time.
_ESCAPES = r"(?P<escapes>(?<!\\)\\[nrt](?:\s*+\\[nrt])*+)"
# {% if x %}, {% else %}, {{#if x}}, {{/if}}
_WORDS = (
    r"(?:if|elif|elsif|elseif|else|unless|for|foreach|each|while|case|when|switch|range|block|empty"
    r"|end\w{0,20})"
)
_BLOCK = (
    rf"(?:\{{%-?\s?{_WORDS}\b[^\n]{{0,300}}?%\}}|<%-?\s?{_WORDS}\b[^\n]{{0,300}}?%>"
    rf"|\{{\{{-?\s?(?:[#/^]|{_WORDS}\b)[^{{}}\n]{{0,200}}+\}}\}})"
)
_CUTS = re.compile(
    rf"(?<!\s)\s*+(?:{_ESCAPES}|(?P<blocks>{_BLOCK}(?:\s*+{_BLOCK})*+(?:[,;:](?=\s))?))\s*+"
)


@dataclass(frozen=True)
class TextPart:
    """A part of a text.

    Attributes:
        separator: the string before the part, which is copied.
        text: the text to translate.
        sentence: the sentence that needs care; None for text that goes to the translator below.
    """

    separator: str
    text: str
    sentence: ScannedSentence | None = None

    @property
    def is_whole(self) -> bool:
        """Whether a text with only this part can go to the translator below unchanged."""
        return self.sentence is None and not self.separator


def may_need_care(text: str, rules: TermRules) -> bool:
    """Whether a text may have a sentence that needs care: a fast scan."""
    return bool(
        rules.glossary
        or (rules.kinds and _may_have_any(text, rules.source))
        or (rules.letter_case and may_be_unusual(text))
    )


def _may_have_any(text: str, language: str) -> bool:
    has_any = may_have_things(text, language) or may_have_quotes(text) or "…" in text
    return has_any or may_have_estimates(text)


def parts_of(text: str, rules: TermRules, *, split_sentences: bool) -> Iterator[TextPart]:
    """The parts of a text, in order. Joined, they are the text.

    Args:
        text: any text. A text that needs no care, or that the translator below refuses, is one
            part.
        rules: the request's rules.
        split_sentences: whether the text is split into sentences.
    """
    if not may_need_care(text, rules) or not is_valid(text):
        yield TextPart("", text)
        return
    copied, between = "", [""]  # what stands before text without care, and that text

    def end_between() -> Iterator[TextPart]:
        nonlocal copied, between
        if copied or any(between):
            yield TextPart(copied, "".join(between))
        copied, between = "", [""]

    for separator, line, is_cut in _segments(text, rules, split_sentences):
        sentence = ScannedSentence.of(line, rules) if len(line) <= _MAX_SENTENCE else None
        if sentence is not None and _is_manageable(sentence):
            yield from end_between()
            yield TextPart(separator, line, sentence)
        elif is_cut:
            yield from end_between()
            copied, between = separator, [line]
        else:
            between += (separator, line)
    yield from end_between()


def _segments(
    text: str, rules: TermRules, split_sentences: bool
) -> Iterator[tuple[str, str, bool]]:
    """The sentences of a text: the string before each, the sentence, whether a cut is before it.

    Escapes of line breaks and tabs divide sentences as line breaks do, and so do the tags of a
    template that choose or repeat what is between them.
    """
    if not split_sentences:
        yield from ((each.separator, each.text, False) for each in whole_text(text, rules.source))
        return
    has_any = "\\" in text or "{%" in text or "{{" in text or "<%" in text
    cuts = has_any and ThingKind.PLACEHOLDER in rules.kinds
    before, is_cut = "", False
    for segment in whole_segments(text, rules):
        before += segment.separator
        end = 0
        for match in _CUTS.finditer(segment.text) if cuts else ():
            place = match.span("escapes")
            if match["escapes"] and (
                _is_quoted(segment.text, *place)
                or may_be_word(segment.text, *place)
                or is_in_path(segment.text, place[0])
            ):
                continue
            if line := segment.text[end : match.start()]:
                yield before, line, is_cut
                before = ""
            before, is_cut, end = before + match.group(), True, match.end()
        if line := segment.text[end:]:
            yield before, line, is_cut
            before, is_cut = "", False
    if before:
        yield before, "", is_cut


def _is_quoted(text: str, start: int, end: int) -> bool:
    """Whether a part stands alone between quotation marks: a sign that is spoken of."""
    before, after = text[max(0, start - 1) : start], text[end : end + 1]
    return bool(before) and bool(after) and before in _QUOTES and after in _QUOTES


def whole_segments(text: str, rules: TermRules) -> Iterator[SourceSentence]:
    """The segments of a text, none of which ends within a thing."""
    if not rules.kinds:
        yield from sentences(text, rules.source)
        return
    start = 0
    for segment in sentences(_closed(text), rules.source):
        between = start + len(segment.separator)
        end = between + len(segment.text)
        yield SourceSentence(text[start:between], text[between:end])
        start = end


def _closed(text: str) -> str:
    """The text without signs that end a sentence within a thing; it is as long as before."""
    if "\\" in text or "&" in text:
        text = _ESCAPED_QUOTE.sub(lambda match: f'{match[1]}"'.rjust(len(match[0]), "_"), text)
    edits = [Edit(Span(*m.span()), _ENDS.sub("_", m.group())) for m in matches(ATOMIC, text)]
    messages = messages_of(text)
    edits = [e for e in edits if not any(m.start <= e.span.start < m.end for m in messages)]
    edits += [Edit(span, _ENDS.sub("_", text[slice(*span)])) for span in messages]
    return EditedText(text, edits).text if edits else text


def _is_manageable(sentence: ScannedSentence) -> bool:
    return len(sentence.things) <= _MAX_THINGS and len(sentence.terms) <= _MAX_TERMS


def is_valid(text: str) -> bool:
    """Whether a text can be translated: it is Unicode, without the character NUL."""
    try:
        return "\0" not in text and bool(text.encode())
    except UnicodeEncodeError:
        return False
