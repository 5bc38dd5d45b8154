"""Divides a text into sentences that need care, and the text between them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from service.text.things.letter_case import may_be_unusual
from service.text.things.sentence_repair import ScannedSentence, TermRules
from service.text.things.things import ThingKind, is_in_path, may_be_word, may_have_things
from service.translation.segmentation import segments, whole_text

# Longer sentences are more than models read in one piece.
_MAX_SENTENCE = 2000
# With more things, a sentence is a table or a log: it is left to the model.
_MAX_THINGS = 50
_MAX_TERMS = 50
# A match begins with the first of some spaces: linear time.
_ESCAPES = re.compile(r"(?<!\s)\s*+(?<!\\)(?P<escapes>\\[nrt](?:\s*+\\[nrt])*+)\s*+")


@dataclass(frozen=True)
class TextPart:
    """A part of a text.

    Attributes:
        separator: what is copied before it.
        text: what is translated.
        sentence: what it needs; None for text that the translator below takes as it is.
    """

    separator: str
    text: str
    sentence: ScannedSentence | None = None

    @property
    def is_whole(self) -> bool:
        """Whether its translation is that of the translator below, if it is the only part."""
        return self.sentence is None and not self.separator


def may_need_care(text: str, rules: TermRules) -> bool:
    """Whether a text may have a sentence that needs care: a fast scan."""
    return bool(
        rules.glossary
        or (rules.kinds and may_have_things(text))
        or (rules.letter_case and may_be_unusual(text))
    )


def parts_of(text: str, rules: TermRules, *, split_sentences: bool) -> Iterator[TextPart]:
    """The parts of a text, which joined are the text. One part if nothing in it needs care.

    Args:
        text: any text. One that the translator below refuses is one part.
        rules: of the request.
        split_sentences: whether the text is split at all.
    """
    if not may_need_care(text, rules) or not _is_valid(text):
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
    """The sentences of a text: what stands before each, the sentence, whether an escape does.

    Escapes of line breaks and tabs divide sentences as line breaks do.
    """
    if not split_sentences:
        yield from ((each.separator, each.text, False) for each in whole_text(text, rules.source))
        return
    cuts = "\\" in text and ThingKind.PLACEHOLDER in rules.kinds
    before, is_cut = "", False
    for segment in segments(text, rules.source):
        before += segment.separator
        end = 0
        for match in _ESCAPES.finditer(segment.text) if cuts else ():
            place = match.span("escapes")
            if may_be_word(segment.text, *place) or is_in_path(segment.text, place[0]):
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


def _is_manageable(sentence: ScannedSentence) -> bool:
    return len(sentence.things) <= _MAX_THINGS and len(sentence.terms) <= _MAX_TERMS


def _is_valid(text: str) -> bool:
    try:
        return "\0" not in text and bool(text.encode())
    except UnicodeEncodeError:
        return False
