"""The stage above a translator of texts that keeps things, applies glossaries and handles CAPITALS.

A text in which no sentence needs care passes through. Otherwise, each sentence that needs care goes
to the translator below as a text of its own, and so does the text between two of them. All
sentences that need another attempt are translated together.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, Unpack

from service.common.fairness import checkpoint
from service.errors import InvalidArgumentError
from service.glossaries.glossary import NO_GLOSSARY
from service.things.attempts import Attempt, Repair
from service.things.interface import LinkedTranslator, Stage
from service.things.joined_results import (
    JoinedText,
    TranslatedPart,
    index_in,
    renamed,
    translated_in_windows,
)
from service.things.part_windows import windows_of
from service.things.plain_checks import with_warnings, without_privates
from service.things.prepared import prepare
from service.things.scanned import TermRules
from service.things.sentence_repair import SentenceRepair
from service.things.spacing import without_invented_spaces
from service.things.text_parts import may_need_care
from service.things.windows import cancelled
from service.translation.engine_call import CallArguments, admitted_once
from service.translation.options import NORMALISED, TranslateOptions, TranslatorLimits
from service.translation.preparation import are_long, normalised_lengths
from service.translation.results import TextResult
from service.translation.translator import StreamDelta

# Sentences of a stream that are translated before their turn.
_AHEAD = 8
# Characters that are checked for things within some milliseconds.
_SCAN_CHARACTERS = 20_000
# No sequence of this many tokens occurs twice in a translation that must not repeat itself.
_NO_REPEAT = 3

_T = TypeVar("_T")


class TermsTranslator(Stage):
    """Translates texts, with care for things, terms and letter case.

    Args:
        below: the translator below, which translates the texts that this stage makes.
        rules: the request's rules.
        limits: the limits of the translator below.
    """

    def __init__(self, below: LinkedTranslator, rules: TermRules, limits: TranslatorLimits) -> None:
        super().__init__(below)
        self._rules = rules
        self._limits = limits

    async def translate(
        self,
        texts: Sequence[str],
        options: TranslateOptions | None = None,
        **shared: Unpack[CallArguments],
    ) -> list[TextResult]:
        """Translate all texts; see `LinkedTranslator.translate`."""
        options = options or TranslateOptions()
        rules = _fitting(self._rules, options)
        await prepare(rules.source, rules.target)
        size = sum(map(len, texts))
        scanned = size > _SCAN_CHARACTERS or await _any_may_need_care(texts, rules)
        if not scanned or size > self._limits.max_request_characters:
            results = await self._below.translate(texts, options, **shared)
            return [
                await with_warnings(text, result, rules)
                for text, result in zip(texts, results, strict=True)
            ]
        names = [f"contents[{index}]" for index in range(len(texts))]
        self._limits.check_lengths("contents", names, [len(text) for text in texts])
        lengths = await normalised_lengths(texts)  # of all: the stage below gets some at a time
        self._limits.check_lengths("contents", names, lengths, NORMALISED)
        with admitted_once(shared) as arguments:
            if are_long(texts):
                await self._below.enter(options, **arguments)
            call = _Call(self._below, rules, options, arguments, self._limits.max_texts)
            windows = windows_of(texts, rules, options)
            return await translated_in_windows(windows, call.translate, names)

    async def stream(
        self,
        text: str,
        options: TranslateOptions | None = None,
        **shared: Unpack[CallArguments],
    ) -> AsyncGenerator[StreamDelta | TextResult, None]:
        """Translate one text as a stream; see `LinkedTranslator.stream`.

        The translation of a sentence that needs care is one delta.
        """
        options = options or TranslateOptions()
        options.check_streamable()
        rules = _fitting(self._rules, options)
        await prepare(rules.source, rules.target)
        self._limits.check_length("content", len(text))
        [length] = await normalised_lengths([text])  # of all: the stage below gets some at a time
        self._limits.check_length("content", length, NORMALISED)
        try:
            with admitted_once(shared) as arguments:
                if are_long([text]):
                    await self._below.enter(options, **arguments)
                call = _Call(self._below, rules, options, arguments, self._limits.max_texts)
                windows = windows_of([text], rules, options)
                async with contextlib.aclosing(_streamed(windows, call)) as events:
                    async for event in events:
                        yield event
        except InvalidArgumentError as exc:
            raise renamed(exc, "content") from exc


async def _streamed(
    windows: AsyncIterator[Sequence[TranslatedPart]], call: _Call
) -> AsyncGenerator[StreamDelta | TextResult, None]:
    """The events of a text, some of whose sentences are translated before their turn."""
    waiting = deque(await anext(windows))
    if len(waiting) == 1 and waiting[0].part.is_whole:
        async with contextlib.aclosing(call.stream(waiting[0])) as events:
            async for event in events:
                yield event
        return
    joined = JoinedText()
    ahead: deque[tuple[TranslatedPart, asyncio.Task[Any] | None]] = deque()
    try:
        while True:
            while len(ahead) < _AHEAD:
                if not waiting:
                    waiting.extend(await anext(windows, []))
                if not waiting:
                    break
                part = waiting.popleft()
                needs_care = part.part.sentence is not None
                task = asyncio.create_task(call.translate([part])) if needs_care else None
                ahead.append((part, task))
            if not ahead:
                break
            part, task = ahead.popleft()
            if task is None:
                if part.part.separator:
                    yield StreamDelta(part.part.separator)
                async with contextlib.aclosing(call.stream(part)) as events:
                    async for event in events:
                        if isinstance(event, StreamDelta):
                            yield event
            else:
                await task
                if part.error is not None:
                    raise part.error
                assert part.candidate is not None, "it did not fail"
                yield StreamDelta(part.part.separator + part.candidate.text)
            joined.add(part)
        yield joined.result("content")
    finally:
        await cancelled(task for _, task in ahead if task is not None)


async def _any_may_need_care(texts: Sequence[str], rules: TermRules) -> bool:
    for text in texts:
        await checkpoint()
        if may_need_care(text, rules):
            return True
    return False


def _fitting(rules: TermRules, options: TranslateOptions) -> TermRules:
    """The rules as far as the options leave room for them.

    Where the tokens of the model are shown, sentences stay in their letter case. A translation with
    a given beginning is the model's own.
    """
    if options.target_prefix:
        return replace(rules, kinds=frozenset(), letter_case=False, glossary=NO_GLOSSARY)
    return replace(rules, letter_case=False) if options.returns_sentences else rules


@dataclass
class _Job:
    """A sentence in translation."""

    part: TranslatedPart
    repair: SentenceRepair
    run: Repair
    attempt: Attempt


class _Call:
    """A request's calls to the translator below."""

    def __init__(
        self,
        below: LinkedTranslator,
        rules: TermRules,
        options: TranslateOptions,
        shared: CallArguments,
        max_texts: int,
    ) -> None:
        self._below = below
        self._rules = rules
        self._options = options
        self._shared = shared
        self._max_texts = max_texts
        self._started_at = time.monotonic()

    async def translate(self, parts: Sequence[TranslatedPart]) -> Sequence[TranslatedPart]:
        """Translate parts of texts: those between together, then all sentences in rounds."""
        plain = [part for part in parts if part.part.sentence is None]
        jobs = []
        for part in parts:
            if part.part.sentence is not None:
                await checkpoint()
                jobs.append(self._job(part))
        # Without tasks where one of the two is all there is, as for most texts.
        calls = [self._translate_plain(plain)] if plain else []
        if jobs:
            calls.append(self._repair(jobs))
        await _together(calls)
        return parts

    async def stream(self, part: TranslatedPart) -> AsyncGenerator[StreamDelta | TextResult, None]:
        """Stream a part without a sentence that needs care."""
        seconds, text = self._seconds, part.part.text
        async with contextlib.aclosing(
            self._below.stream(text, self._options, **self._shared)
        ) as events:
            async for event in events:
                if isinstance(event, TextResult):
                    event = await with_warnings(text, event, self._rules)
                    part.take(event, seconds)
                else:
                    event = StreamDelta(without_privates(event.text, text))
                yield event

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._started_at

    def _job(self, part: TranslatedPart) -> _Job:
        assert part.part.sentence is not None, "it needs care"
        options = self._options
        repair = SentenceRepair(
            part.part.sentence,
            self._rules,
            links=options.links,
            is_shown=options.returns_sentences,
        )
        run = repair.run()
        return _Job(part, repair, run, next(run))

    async def _translate_plain(self, parts: Sequence[TranslatedPart]) -> None:
        for start in range(0, len(parts), self._max_texts):
            portion = parts[start : start + self._max_texts]
            texts = [part.part.text for part in portion]
            results = await self._called(portion, texts, self._options)
            for part, (seconds, result) in zip(portion, results, strict=True):
                part.take(await with_warnings(part.part.text, result, self._rules), seconds)

    async def _repair(self, jobs: Sequence[_Job]) -> None:
        """Advance all jobs together, until each has its translation or has failed."""
        is_first = True
        while jobs:
            results = await self._attempted(jobs, is_first=is_first)
            open_jobs = []
            for job, result in zip(jobs, results, strict=True):
                await checkpoint()
                job.part.results.append(result)
                if is_first and result[1].error is not None:
                    continue
                answer = None if result[1].error else result[1]
                try:
                    job.attempt = job.run.send(answer)
                    open_jobs.append(job)
                except StopIteration as end:
                    job.part.candidate = without_invented_spaces(job.part.part.text, end.value)
                    job.part.used = job.repair.used(end.value)
                    job.part.warnings = job.repair.warnings
            jobs, is_first = open_jobs, False

    async def _attempted(
        self, jobs: Sequence[_Job], *, is_first: bool
    ) -> list[tuple[float, TextResult]]:
        """The result of each job's attempt."""
        groups: dict[tuple[Attempt, str], list[int]] = {}
        for index, job in enumerate(jobs):
            like = replace(job.attempt, text=""), job.repair.forms
            groups.setdefault(like, []).append(index)
        portions = [
            (like, indices[start : start + self._max_texts])
            for like, indices in groups.items()
            for start in range(0, len(indices), self._max_texts)
        ]
        calls = [
            self._called(
                [jobs[i].part for i in indices],
                [jobs[i].attempt.text for i in indices],
                self._options_of(*like, is_first),
            )
            for like, indices in portions
        ]
        results: dict[int, tuple[float, TextResult]] = {}
        for (_, indices), found in zip(portions, await _together(calls), strict=True):
            results.update(zip(indices, found, strict=True))
        return [results[index] for index in range(len(jobs))]

    async def _called(
        self,
        parts: Sequence[TranslatedPart],
        texts: Sequence[str],
        options: TranslateOptions,
    ) -> list[tuple[float, TextResult]]:
        seconds = self._seconds
        try:
            # With the admission of the request: a further attempt may wait, but is never refused.
            # So a busy server answers what an idle one does.
            results = await self._below.translate(texts, options, **self._shared)
        except InvalidArgumentError as exc:
            index = index_in(exc)
            if index is None:
                raise
            raise renamed(exc, f"contents[{parts[index].text_index}]") from exc
        return [(seconds, result) for result in results]

    def _options_of(self, attempt: Attempt, forms: str, is_first: bool) -> TranslateOptions:
        """The request's options, for attempts like this one of sentences with these terms."""
        options = replace(
            self._options,
            split_sentences=False,
            links=attempt.links or self._options.links,
            target_prefix=attempt.prefix,
            listed_text=forms,
        )
        if not attempt.repeats:
            size = options.search.no_repeat_ngram_size or _NO_REPEAT
            options = replace(options, search=replace(options.search, no_repeat_ngram_size=size))
        if not is_first or attempt.scores:
            shown = 1 if attempt.scores else None
            options = replace(
                options, num_hypotheses=shown, return_tokens=False, return_alignments=None
            )
        return options


async def _together(calls: Sequence[Coroutine[Any, Any, _T]]) -> list[_T]:
    """The results of all; if one fails, the others are cancelled."""
    if len(calls) == 1:
        return [await calls[0]]
    tasks = [asyncio.create_task(call) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await cancelled(tasks)
