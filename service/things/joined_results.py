"""Joins the results of the parts of a text, each of one or several calls, to its result."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from service.common.fairness import checkpoint
from service.domain.requests import FinishReason
from service.errors import DragomanError, InvalidArgumentError
from service.things.text_parts import TextPart
from service.things.wanted import Candidate
from service.things.windows import Window, in_windows
from service.translation.confidence import SentenceConfidence, text_confidence
from service.translation.links import LinkedText
from service.translation.results import (
    MemoryMatch,
    SentenceResult,
    TermUse,
    TextResult,
    TranslationWarning,
    joined_reason,
)

MAX_SHOWN_MATCHES = 500
"""Most matches of a translation memory in the result of a text."""

_INDEXED = re.compile(r"contents\[(\d+)\]")


@dataclass
class TranslatedPart:
    """A part of a text, and the calls for it so far.

    Attributes:
        part: the part.
        text_index: index of its text in the request.
        results: results of the translator below, each with the seconds from the request to its
            call.
        candidate: its translation; None if that failed.
        used: number of times that the translation has each term.
        warnings: flaws of the translation.
    """

    part: TextPart
    text_index: int = 0
    results: list[tuple[float, TextResult]] = field(default_factory=list)
    candidate: Candidate | None = None
    used: dict[str, int] = field(default_factory=dict)
    warnings: Sequence[TranslationWarning] = ()

    @property
    def error(self) -> DragomanError | None:
        """The reason why there is no translation."""
        return None if self.candidate else self.results[0][1].error

    def take(self, result: TextResult, seconds: float) -> None:
        """Add a result, which is the translation if the part needs no care."""
        self.results.append((seconds, result))
        if self.part.sentence is None and result.error is None:
            self.candidate = Candidate(result.text, result.links)
            self.warnings = result.warnings


class JoinedText:
    """The result of a text, from its parts."""

    def __init__(self) -> None:
        self._whole: TranslatedPart | None = None  # if it is the only part
        self._error: DragomanError | None = None
        self._texts: list[str] = []
        self._linked = LinkedText()
        self._reasons: set[FinishReason | None] = set()
        self._num_source_tokens = self._num_target_tokens = self._num_cached_characters = 0
        self._was_split = False
        self._begun, self._ended = math.inf, -math.inf
        self._sentences: list[SentenceResult] = []
        self._terms: dict[str, TermUse] = {}
        self._confidences: list[SentenceConfidence] = []
        self._warnings: list[TranslationWarning] = []
        self._memory_matches: list[MemoryMatch] = []
        self._num_memory_matches = 0
        self._alternatives: list[MemoryMatch] = []

    def add(self, part: TranslatedPart) -> None:
        """Add the next part, which is translated or has failed."""
        first, self._whole = self._whole, None
        if first is not None:
            self._join(first)
        elif part.part.is_whole and not self._reasons:
            self._whole = part
            return
        self._join(part)

    def _join(self, part: TranslatedPart) -> None:
        first, last = part.results[0][1], part.results[-1][1]
        for seconds, result in part.results:
            begun = seconds + result.queue_seconds
            self._begun = min(self._begun, begun)
            self._ended = max(self._ended, begun + result.compute_seconds)
            self._num_source_tokens += result.num_source_tokens
            self._num_target_tokens += result.num_target_tokens
        # Of a part that was tried in several ways, all have to be cached.
        self._num_cached_characters += min(
            result.num_cached_characters for _, result in part.results
        )
        self._reasons.add(last.finish_reason)
        self._was_split |= first.was_split
        self._sentences += first.sentences
        if last.confidence is not None:
            self._confidences.append(SentenceConfidence(last.confidence, last.num_target_tokens))
        self._count_terms(part)
        self._warnings += part.warnings
        room = MAX_SHOWN_MATCHES - len(self._memory_matches)
        self._memory_matches += last.memory_matches[:room]
        self._num_memory_matches += last.num_memory_matches
        self._alternatives += last.alternatives
        self._error = self._error or part.error
        if self._error is None:
            assert part.candidate is not None, "no part failed"
            self._linked.copy(part.part.separator)
            self._linked.add(len(part.part.text), len(part.candidate.text), part.candidate.links)
            self._texts += (part.part.separator, part.candidate.text)

    def _count_terms(self, part: TranslatedPart) -> None:
        uses = self._terms
        for match in part.part.sentence.terms if part.part.sentence else ():
            entry = match.entry
            before = uses.get(entry.source, TermUse(entry.source, entry.forms[0], 0, 0))
            uses[entry.source] = replace(before, count=before.count + 1)
        for use in part.results[-1][1].terms:  # of a stage below that applies the glossary
            before = uses.get(use.source, replace(use, count=0, num_applied=0))
            count, num_applied = before.count + use.count, before.num_applied + use.num_applied
            uses[use.source] = replace(use, count=count, num_applied=num_applied)
        for source, count in part.used.items():
            use = uses[source]
            uses[source] = replace(use, num_applied=use.num_applied + count)

    def result(self, text_field: str) -> TextResult:
        """The result, once all parts are added; `text_field` is of the request, for errors."""
        if self._whole is not None:
            [(_, result)] = self._whole.results
            return with_field(result, text_field)
        error = None if self._error is None else renamed(self._error, text_field)
        return TextResult(
            text="" if error else "".join(self._texts),
            finish_reason=None if None in self._reasons else joined_reason(self._reasons),
            num_source_tokens=self._num_source_tokens,
            num_target_tokens=self._num_target_tokens,
            was_split=self._was_split,
            error=error,
            queue_seconds=self._begun,
            compute_seconds=self._ended - self._begun,
            sentences=() if error else self._sentences,
            links=() if error else self._linked.links,
            terms=() if error else list(self._terms.values()),
            confidence=None if error else text_confidence(self._confidences),
            warnings=() if error else self._warnings,
            num_cached_characters=0 if error else self._num_cached_characters,
            memory_matches=() if error else self._memory_matches,
            num_memory_matches=0 if error else self._num_memory_matches,
            alternatives=() if error else self._alternatives,
        )


async def translated_in_windows(
    windows: AsyncIterator[Window],
    translate: Callable[[Window], Coroutine[Any, Any, Sequence[TranslatedPart]]],
    names: Sequence[str],
) -> list[TextResult]:
    """The results of texts whose parts are translated some at a time.

    Args:
        windows: parts that are translated together, in the order of the texts.
        translate: translates a window, and returns its parts.
        names: fields of the texts, for errors.
    """
    joined: list[JoinedText] = []
    for _ in names:
        await checkpoint()
        joined.append(JoinedText())
    async with contextlib.aclosing(in_windows(windows, translate)) as translated:
        async for parts in translated:
            for part in parts:
                await checkpoint()
                joined[part.text_index].add(part)
    results = []
    for text, name in zip(joined, names, strict=True):
        await checkpoint()
        results.append(text.result(name))
    return results


def with_field(result: TextResult, text_field: str) -> TextResult:
    """A result of a call to the translator below, its error with the field of the request."""
    if result.error is None:
        return result
    return replace(result, error=renamed(result.error, text_field))


def renamed(error: DragomanError, text_field: str) -> DragomanError:
    """An error of a call to the translator below, with the field of the request."""
    if isinstance(error, InvalidArgumentError) and _INDEXED.fullmatch(error.field):
        return InvalidArgumentError(text_field, error.description)
    return error


def index_in(error: InvalidArgumentError) -> int | None:
    """The index of the text that an error is about."""
    match = _INDEXED.fullmatch(error.field)
    return int(match.group(1)) if match else None
