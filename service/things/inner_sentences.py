"""Parts of a sentence that are translated by themselves: branches of messages, quotations."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Protocol

from model.bundle.spans import Span
from service.things.attempts import Attempt, Repair
from service.things.edits import Edit, EditedText
from service.things.messages import MAX_BRANCHES, branches_of
from service.things.quotes import quoted_pairs
from service.things.scanned import ScannedSentence
from service.things.things import Form, Thing
from service.things.wanted import Candidate
from service.translation.blank_retries import has_word
from service.translation.results import TextResult, TranslationWarning, WarningKind

_MAX_QUOTED = 3


class InnerRepair(Protocol):
    """The repair of a part of a sentence."""

    warnings: list[TranslationWarning]

    def run(self) -> Repair:
        """See `SentenceRepair.run`."""
        ...


class MakeInner(Protocol):
    """Makes the repair of a part of a sentence."""

    def __call__(self, text: str, *, is_plural: bool = False) -> InnerRepair:
        """Make the repair of a text; in a plural, # is the number."""
        ...


def translated_messages(
    sentence: ScannedSentence, make_inner: MakeInner | None, untranslated: list[str]
) -> Generator[Attempt, TextResult | None, dict[Span, str]]:
    """The ICU messages of a sentence with translated branches, by their places.

    Args:
        sentence: the sentence.
        make_inner: makes the repair of a branch; None if no message is translated.
        untranslated: gets the messages, and parts of them, that stay as they are.
    """
    built: dict[Span, str] = {}
    for thing in sentence.things:
        if thing.form is not Form.MESSAGE:
            continue
        if make_inner is None:
            untranslated.append(thing.text)
        else:
            built[thing.span], kept = yield from _translated_message(thing.text, make_inner)
            untranslated += kept
    return built


def _translated_message(
    message: str, make_inner: MakeInner
) -> Generator[Attempt, TextResult | None, tuple[str, list[str]]]:
    """A message with translated branches, and the parts that stand in it as they were.

    The whole message does if it has too many branches, or if a translation has other flaws.
    """
    edits: list[Edit] = []
    untranslated: list[str] = []
    branches = branches_of(message)
    if len(branches) > MAX_BRANCHES:
        return message, [message]
    for span in branches:
        branch = message[slice(*span)]
        text = branch.strip()
        if not has_word(text):
            continue
        inner = make_inner(text, is_plural=True)
        candidate = yield from inner.run()
        kept = [each for each in inner.warnings if each.kind is WarningKind.UNTRANSLATED]
        if kept != inner.warnings or candidate.text.count("{") != text.count("{"):
            return message, [message]
        untranslated += [each.text or text for each in kept]
        start = span.start + branch.index(text)
        edits.append(Edit(Span(start, start + len(text)), candidate.text))
    return EditedText(message, edits).text, untranslated


def with_number_signs(sentence: ScannedSentence) -> ScannedSentence:
    """The sentence, a branch of a plural, with each # as a thing."""
    taken = [thing.span for thing in sentence.things]
    signs = [
        Thing(Form.PLACEHOLDER, Span(index, index + 1), "#")
        for index, character in enumerate(sentence.text)
        if character == "#" and not any(span.start <= index < span.end for span in taken)
    ]
    things = sorted([*sentence.things, *signs], key=lambda thing: thing.span)
    return replace(sentence, things=tuple(things))


def translated_quotes(
    sentence: ScannedSentence, make_inner: MakeInner
) -> Generator[Attempt, TextResult | None, dict[Span, str]]:
    """The translation of each quotation by itself, with its marks, by the quotation's place.

    There are none if the marks are not in pairs, if there are too many, or if one has flaws.
    """
    pairs = quoted_pairs(sentence.quotes)
    if not 0 < len(pairs) <= _MAX_QUOTED:
        return {}
    built: dict[Span, str] = {}
    for opening, closing in pairs:
        text = sentence.text[opening.span.end : closing.span.start]
        inner = make_inner(text.strip())
        said = (yield from inner.run()) if has_word(text) else Candidate(text)
        if inner.warnings:
            return {}
        span = Span(opening.span.start, closing.span.end)
        built[span] = opening.text + said.text + closing.text
    return built


def with_quoted(sentence: ScannedSentence, built: Mapping[Span, str]) -> ScannedSentence:
    """The sentence with its quotations as things."""

    def is_outside(thing: Thing) -> bool:
        return not any(span.start <= thing.span.start < span.end for span in built)

    quoted = [Thing(Form.PLACEHOLDER, span, sentence.text[slice(*span)]) for span in built]
    things = sorted([*filter(is_outside, sentence.things), *quoted], key=lambda thing: thing.span)
    return replace(sentence, things=tuple(things), quotes=())
