"""Joins the results of the parts of a text, each of one or several calls, to its result."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from service.decoding.requests import FinishReason
from service.errors import DragomanError, InvalidArgumentError
from service.text.text_parts import TextPart
from service.text.wanted import Candidate
from service.translation.confidence import SentenceConfidence, text_confidence
from service.translation.links import LinkedPieces
from service.translation.results import TermUse, TextResult

_INDEXED = re.compile(r"contents\[(\d+)\]")


@dataclass
class TranslatedPart:
    """A part of a text, and the calls for it so far.

    Attributes:
        part: the part.
        text_index: which text of the request it is of.
        results: of the translator below, each with the seconds from the request to its call.
        candidate: its translation; None if that failed.
        used: how often the translation has each term.
    """

    part: TextPart
    text_index: int = 0
    results: list[tuple[float, TextResult]] = field(default_factory=list)
    candidate: Candidate | None = None
    used: dict[str, int] = field(default_factory=dict)

    @property
    def error(self) -> DragomanError | None:
        """Why there is no translation."""
        return None if self.candidate else self.results[0][1].error

    def take(self, result: TextResult, seconds: float) -> None:
        """Add a result, which is the translation if the part needs no care."""
        self.results.append((seconds, result))
        if self.part.sentence is None and result.error is None:
            self.candidate = Candidate(result.text, result.links)


def joined(parts: Sequence[TranslatedPart], *, text_field: str) -> TextResult:
    """The result of a text.

    Args:
        parts: of the text, all translated or failed.
        text_field: of the request, for errors.
    """
    if len(parts) == 1 and parts[0].part.is_whole:
        [(_, result)] = parts[0].results
        return result if result.error is None else replace(result, error=named(result, text_field))
    error = next((part.error for part in parts if part.error), None)
    texts: list[str] = []
    linked = LinkedPieces()
    for part in () if error else parts:
        assert part.candidate is not None, "no part failed"
        linked.copy(part.part.separator)
        linked.add(len(part.part.text), len(part.candidate.text), part.candidate.links)
        texts += (part.part.separator, part.candidate.text)
    results = [pair for part in parts for pair in part.results]
    begun = min(seconds + result.queue_seconds for seconds, result in results)
    ended = max(s + result.queue_seconds + result.compute_seconds for s, result in results)
    reasons = [part.results[-1][1].finish_reason for part in parts]
    order = (None, FinishReason.ERROR, FinishReason.LENGTH)
    return TextResult(
        text="".join(texts),
        finish_reason=next((r for r in order if r in reasons), FinishReason.EOS),
        num_source_tokens=sum(result.num_source_tokens for _, result in results),
        num_target_tokens=sum(result.num_target_tokens for _, result in results),
        was_split=any(part.results[0][1].was_split for part in parts),
        error=None if error is None else renamed(error, text_field),
        queue_seconds=begun,
        compute_seconds=ended - begun,
        sentences=() if error else [s for part in parts for s in part.results[0][1].sentences],
        links=linked.links,
        terms=() if error else term_uses(parts),
        confidence=None if error else _confidence(parts),
    )


def _confidence(parts: Sequence[TranslatedPart]) -> float | None:
    """The confidence of a text, by the last translation of each part."""
    results = [part.results[-1][1] for part in parts]
    return text_confidence(
        [
            SentenceConfidence(result.confidence, result.num_target_tokens)
            for result in results
            if result.confidence is not None
        ]
    )


def term_uses(parts: Sequence[TranslatedPart]) -> list[TermUse]:
    """The terms of a text, in order of their first place."""
    uses: dict[str, TermUse] = {}
    for part in parts:
        for match in part.part.sentence.terms if part.part.sentence else ():
            entry = match.entry
            before = uses.get(entry.source, TermUse(entry.source, entry.forms[0], 0, 0))
            uses[entry.source] = replace(before, count=before.count + 1)
        for source, count in part.used.items():
            use = uses[source]
            uses[source] = replace(use, num_applied=use.num_applied + count)
    return list(uses.values())


def named(result: TextResult, text_field: str) -> DragomanError | None:
    """The error of a result, with the field of the request."""
    return result.error and renamed(result.error, text_field)


def renamed(error: DragomanError, text_field: str) -> DragomanError:
    """An error of a call to the translator below, with the field of the request."""
    if isinstance(error, InvalidArgumentError) and _INDEXED.fullmatch(error.field):
        return InvalidArgumentError(text_field, error.description)
    return error


def index_in(error: InvalidArgumentError) -> int | None:
    """The index of the text that an error is about."""
    match = _INDEXED.fullmatch(error.field)
    return int(match.group(1)) if match else None
