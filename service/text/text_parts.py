"""Divides a text into sentences that need care, and the text between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from service.text.letter_case import may_be_unusual
from service.text.sentence_repair import ScannedSentence, TermRules
from service.text.things import may_have_things
from service.translation.segmentation import split_text, whole_text

# Longer sentences are more than models read in one piece.
_MAX_SENTENCE = 2000
# With more things, a sentence is a table or a log: it is left to the model.
_MAX_THINGS = 50
_MAX_TERMS = 50


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


def may_need_care(text: str, rules: TermRules) -> bool:
    """Whether a text may have a sentence that needs care: a fast scan."""
    return bool(
        rules.glossary
        or (rules.kinds and may_have_things(text))
        or (rules.letter_case and may_be_unusual(text))
    )


def parts_of(text: str, rules: TermRules, *, split_sentences: bool) -> Sequence[TextPart]:
    """The parts of a text, which joined are the text. One part if no sentence needs care.

    Args:
        text: any text. One that the translator below refuses is one part.
        rules: of the request.
        split_sentences: whether the text is split at all.
    """
    whole = [TextPart("", text)]
    if not may_need_care(text, rules) or not _is_valid(text):
        return whole
    parts: list[TextPart] = []
    between: list[str] = []
    for segment in (split_text if split_sentences else whole_text)(text, rules.source):
        sentence = (
            ScannedSentence.of(segment.text, rules) if len(segment.text) <= _MAX_SENTENCE else None
        )
        if sentence is None or not _is_manageable(sentence):
            between += (segment.separator, segment.text)
            continue
        if between:
            parts.append(TextPart("", "".join(between)))
            between = []
        parts.append(TextPart(segment.separator, segment.text, sentence))
    if between and parts:
        parts.append(TextPart("", "".join(between)))
    return parts or whole


def _is_manageable(sentence: ScannedSentence) -> bool:
    return len(sentence.things) <= _MAX_THINGS and len(sentence.terms) <= _MAX_TERMS


def _is_valid(text: str) -> bool:
    try:
        return "\0" not in text and bool(text.encode())
    except UnicodeEncodeError:
        return False
