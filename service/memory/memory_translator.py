"""The stage that answers sentences from a translation memory, before glossaries and the model.

A line of several sentences is looked up as a whole first. A text without a match goes to the
translator below unchanged; of other texts, the parts between matches do. A line break is never part
of a match, so that documents keep theirs.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar, Unpack

from model.bundle.spans import Span
from service.domain.requests import FinishReason
from service.errors import InvalidArgumentError
from service.memory.pairs import MAX_ALTERNATIVES, MemoryUse
from service.things.interface import LinkedTranslator, Stage
from service.things.joined_results import (
    JoinedText,
    TranslatedPart,
    index_in,
    renamed,
    translated_in_windows,
)
from service.things.scanned import TermRules
from service.things.text_parts import TextPart, is_valid, whole_segments
from service.translation.engine_call import CallArguments, admitted_once
from service.translation.links import Link
from service.translation.options import NORMALISED, TranslateOptions, TranslatorLimits
from service.translation.preparation import are_long, normalised_lengths
from service.translation.results import MemoryMatch, TextResult
from service.translation.segmentation import SourceSentence, whole_text
from service.translation.translator import StreamDelta

# Time of a turn, after which it takes no further part of a text.
_TURN_SECONDS = 0.01
# Parts that are in translation together.
_WINDOW = 256
_BREAKS = frozenset("\t\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")

T = TypeVar("T")


class PairSearch(Protocol):
    """Searches of a request; `service.memory.search.MemorySearch`."""

    def exact(self, text: str) -> MemoryMatch | None:
        """The pair that translates a text; None without one."""
        ...

    def similar(self, text: str) -> list[MemoryMatch]:
        """The pairs that are similar to a text, the best first."""
        ...


class Searchable(Protocol):
    """Memories that can be searched; `service.memory.store.TranslationMemories`."""

    async def search(self, client: str, use: MemoryUse, search: Callable[[Any], T]) -> T:
        """Run a function with searches of a memory, in a thread."""
        ...


@dataclass
class LookedUpPart(TranslatedPart):
    """A part of a text: a match, which has a result, or text between matches.

    Attributes:
        similar: pairs of the memory that are similar to its sentences.
    """

    similar: list[MemoryMatch] = field(default_factory=list)


class LookUp:
    """Divides texts at the matches of a memory, some steps at a time.

    Attributes:
        is_done: whether all texts are looked up.
    """

    def __init__(
        self,
        texts: Sequence[str],
        language: str,
        *,
        splits: bool,
        links: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.is_done = False
        self._clock = clock
        self._rules = TermRules(language, "")
        self._splits = splits
        self._links = links
        self._search: PairSearch
        self._room = MAX_ALTERNATIVES
        self._steps = self._all(texts)

    def some(self, search: PairSearch) -> list[LookedUpPart]:
        """The parts that the next steps make, within a turn."""
        self._search = search
        ends = self._clock() + _TURN_SECONDS
        parts = []
        for part in self._steps:
            if part is not None:
                parts.append(part)
            if self._clock() >= ends:
                return parts
        self.is_done = True
        return parts

    def _all(self, texts: Sequence[str]) -> Iterator[LookedUpPart | None]:
        for index, text in enumerate(texts):
            for part in self._parts(text):
                if part is not None:
                    part.text_index = index
                yield part

    def _parts(self, text: str) -> Iterator[LookedUpPart | None]:
        """The parts of a text, at least one; None after a search."""
        if not is_valid(text):
            yield LookedUpPart(TextPart("", text))
            return
        between, similar, is_first = list[str](), list[MemoryMatch](), True
        for line in _lines(self._segments(text)):
            whole = "".join(itertools.chain(*((s.separator, s.text) for s in line)))
            whole = whole[len(line[0].separator) :]
            match = self._search.exact(whole) if len(line) > 1 else None
            yield None
            for sentence in line if match is None else [SourceSentence(line[0].separator, whole)]:
                found = match or (self._search.exact(sentence.text) if sentence.text else None)
                if found is None:
                    between += (sentence.separator, sentence.text)
                    similar += self._similar(sentence.text)
                    yield None
                    continue
                if any(between):
                    yield LookedUpPart(TextPart("", "".join(between)), similar=similar)
                between, similar, is_first = [], [], False
                yield self._matched(sentence, found)
        if any(between) or is_first:
            yield LookedUpPart(TextPart("", "".join(between)), similar=similar)

    def _similar(self, sentence: str) -> list[MemoryMatch]:
        if self._room <= 0 or not any(map(str.isalpha, sentence)):
            return []
        found = self._search.similar(sentence)
        self._room -= len(found)
        return found

    def _segments(self, text: str) -> Iterator[SourceSentence]:
        if self._splits:
            return whole_segments(text, self._rules)
        return iter(whole_text(text, self._rules.source))

    def _matched(self, sentence: SourceSentence, match: MemoryMatch) -> LookedUpPart:
        part = LookedUpPart(TextPart(sentence.separator, sentence.text))
        link = Link(Span(0, len(sentence.text)), Span(0, len(match.target)))
        part.take(
            TextResult(
                match.target,
                FinishReason.EOS,
                links=[link] if self._links else (),
                memory_matches=[match],
                num_memory_matches=1,
            ),
            0.0,
        )
        return part


def _lines(segments: Iterator[SourceSentence]) -> Iterator[list[SourceSentence]]:
    """The segments of each line, or cell of a table."""
    line: list[SourceSentence] = []
    for segment in segments:
        if line and not _BREAKS.isdisjoint(segment.separator):
            yield line
            line = []
        line.append(segment)
    if line:
        yield line


class MemoryTranslator(Stage):
    """Answers sentences that the memory has, and lets the stage below translate the others.

    Args:
        below: the translator below.
        store: the memories.
        use: use of the memory by the request.
        limits: the limits of the translator below.
    """

    def __init__(
        self, below: LinkedTranslator, store: Searchable, use: MemoryUse, limits: TranslatorLimits
    ) -> None:
        super().__init__(below)
        self._store = store
        self._use = use
        self._limits = limits

    async def translate(
        self,
        texts: Sequence[str],
        options: TranslateOptions | None = None,
        **shared: Unpack[CallArguments],
    ) -> list[TextResult]:
        """Translate all texts; see `LinkedTranslator.translate`."""
        options = options or TranslateOptions()
        names = [f"contents[{index}]" for index in range(len(texts))]
        self._limits.check_count("contents", len(texts), "texts")
        self._limits.check_lengths("contents", names, [len(text) for text in texts])
        lengths = await normalised_lengths(texts)  # of all: the stage below gets some at a time
        self._limits.check_lengths("contents", names, lengths, NORMALISED)
        with admitted_once(shared) as arguments:
            if are_long(texts):
                await self._below.enter(options, **arguments)
            translate = functools.partial(
                self._translated, options=options, shared=arguments, started_at=time.monotonic()
            )
            windows = self._windows(texts, options, arguments)
            return await translated_in_windows(windows, translate, names)

    async def stream(
        self,
        text: str,
        options: TranslateOptions | None = None,
        **shared: Unpack[CallArguments],
    ) -> AsyncGenerator[StreamDelta | TextResult, None]:
        """Translate one text as a stream; see `LinkedTranslator.stream`. A match is one delta."""
        options = options or TranslateOptions()
        options.check_streamable()
        self._limits.check_length("content", len(text))
        [length] = await normalised_lengths([text])  # of all: the stage below gets some at a time
        self._limits.check_length("content", length, NORMALISED)
        joined, started_at = JoinedText(), time.monotonic()
        with admitted_once(shared) as arguments:
            if are_long([text]):
                await self._below.enter(options, **arguments)
            async for window in self._windows([text], options, arguments):
                for part in window:
                    if part.part.separator:
                        yield StreamDelta(part.part.separator)
                    if part.results:
                        yield StreamDelta(part.results[0][1].text)
                    else:
                        streamed = self._streamed(part, options, arguments, started_at)
                        async with aclosing(streamed) as events:
                            async for event in events:
                                yield event
                    joined.add(part)
        yield joined.result("content")

    async def _streamed(
        self,
        part: LookedUpPart,
        options: TranslateOptions,
        shared: CallArguments,
        started_at: float,
    ) -> AsyncGenerator[StreamDelta, None]:
        seconds = time.monotonic() - started_at
        async with aclosing(self._below.stream(part.part.text, options, **shared)) as events:
            async for event in events:
                if isinstance(event, TextResult):
                    part.take(replace(event, alternatives=part.similar), seconds)
                else:
                    yield event

    async def _translated(
        self,
        parts: Sequence[LookedUpPart],
        options: TranslateOptions,
        shared: CallArguments,
        started_at: float,
    ) -> Sequence[LookedUpPart]:
        """Translate what the memory does not have."""
        others = [part for part in parts if not part.results]
        seconds = time.monotonic() - started_at
        for start in range(0, len(others), self._limits.max_texts):
            some = others[start : start + self._limits.max_texts]
            texts = [part.part.text for part in some]
            try:
                results = await self._below.translate(texts, options, **shared)
            except InvalidArgumentError as exc:
                if (index := index_in(exc)) is None:
                    raise
                raise renamed(exc, f"contents[{some[index].text_index}]") from exc
            for part, result in zip(some, results, strict=True):
                part.take(replace(result, alternatives=part.similar), seconds)
        return parts

    async def _windows(
        self, texts: Sequence[str], options: TranslateOptions, shared: CallArguments
    ) -> AsyncIterator[list[LookedUpPart]]:
        """The parts of all texts, looked up, some at a time."""
        client = shared.get("client", "")
        window: list[LookedUpPart] = []
        look_up = LookUp(
            texts, self._use.source, splits=options.split_sentences, links=options.links
        )
        while not look_up.is_done:
            window += await self._store.search(client, self._use, look_up.some)
            if len(window) >= _WINDOW:
                yield window
                window = []
        if window:
            yield window
