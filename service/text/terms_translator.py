"""The stage that keeps things, applies glossaries and reads CAPITALS: over a translator of texts.

A text without a sentence that needs care passes through. Otherwise, each such sentence is a text of
its own for the translator below, and so is what stands between two of them. All sentences that need
another attempt are translated together.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, Unpack

from service.errors import (
    DeadlineExceededError,
    InvalidArgumentError,
    ResourceExhaustedError,
)
from service.text.interface import LinkedTranslator
from service.text.joined_results import TranslatedPart, index_in, joined, renamed
from service.text.sentence_repair import Attempt, Repair, SentenceRepair, TermRules
from service.text.text_parts import TextPart, may_need_care, parts_of
from service.translation.engine_call import CallArguments
from service.translation.fairness import CooperativeYield, FairExecutor
from service.translation.options import TranslateOptions, TranslatorLimits
from service.translation.results import TextResult
from service.translation.translator import StreamDelta

MAX_ATTEMPTS = 1024
"""Further translations of sentences in one request."""
# Sentences of a stream that are translated before their turn.
_AHEAD = 8
# Smaller requests are divided on the event loop.
_SMALL_CHARACTERS = 4000
_SCAN_CHARACTERS = 200_000

_T = TypeVar("_T")
_executor = FairExecutor("terms")


class TermsTranslator:
    """Translates texts, with care for things, terms and letter case.

    Args:
        below: translates what is left.
        rules: of the request.
        limits: of the translator below.
    """

    def __init__(self, below: LinkedTranslator, rules: TermRules, limits: TranslatorLimits) -> None:
        self._below = below
        self._rules = rules
        self._limits = limits

    async def translate(
        self,
        texts: Sequence[str],
        options: TranslateOptions | None = None,
        **shared: Unpack[CallArguments],
    ) -> list[TextResult]:
        """Translate all texts; as `LinkedTranslator.translate`."""
        options = options or TranslateOptions()
        rules = _fitting(self._rules, options)
        size = sum(map(len, texts))
        scanned = size > _SCAN_CHARACTERS or any(may_need_care(text, rules) for text in texts)
        if not scanned or size > self._limits.max_request_characters:
            return await self._below.translate(texts, options, **shared)
        for index, text in enumerate(texts):
            self._limits.check_length(f"contents[{index}]", len(text))
        parts = await self._parts(texts, rules, options, shared)
        call = _Call(self._below, rules, options, shared, self._limits.max_texts)
        await call.translate(parts)
        grouped = itertools.groupby(parts, key=lambda part: part.text_index)
        yielder, results = CooperativeYield(), []
        for index, group in grouped:
            await yielder.checkpoint()
            results.append(joined(list(group), text_field=f"contents[{index}]"))
        return results

    async def stream(
        self,
        text: str,
        options: TranslateOptions | None = None,
        **shared: Unpack[CallArguments],
    ) -> AsyncIterator[StreamDelta | TextResult]:
        """Translate one text as a stream; as `LinkedTranslator.stream`.

        A sentence that needs care is one delta.
        """
        options = options or TranslateOptions()
        options.check_streamable()
        rules = _fitting(self._rules, options)
        self._limits.check_length("content", len(text))
        [*parts] = await self._parts([text], rules, options, shared)
        if len(parts) == 1 and parts[0].part.is_whole:
            async for event in self._below.stream(text, options, **shared):
                yield event
            return
        call = _Call(self._below, rules, options, shared, self._limits.max_texts)
        ahead: deque[asyncio.Task[None]] = deque()
        waiting = deque(part for part in parts if part.part.sentence)
        try:
            for part in parts:
                while waiting and len(ahead) < _AHEAD:
                    ahead.append(asyncio.create_task(call.translate([waiting.popleft()])))
                if part.part.sentence is None:
                    if part.part.separator:
                        yield StreamDelta(part.part.separator)
                    async for delta in call.deltas(part):
                        yield delta
                    continue
                await ahead.popleft()
                if part.error is not None:
                    raise renamed(part.error, "content")
                assert part.candidate is not None, "it did not fail"
                yield StreamDelta(part.part.separator + part.candidate.text)
            yield joined(parts, text_field="content")
        except InvalidArgumentError as exc:
            raise renamed(exc, "content") from exc
        finally:
            await _cancelled(ahead)

    async def _parts(
        self,
        texts: Sequence[str],
        rules: TermRules,
        options: TranslateOptions,
        shared: CallArguments,
    ) -> list[TranslatedPart]:
        """The parts of all texts."""

        def divide(index: int) -> Sequence[TextPart]:
            return parts_of(texts[index], rules, split_sentences=options.split_sentences)

        divided: list[Sequence[TextPart]] = []
        on_loop = sum(map(len, texts)) <= _SMALL_CHARACTERS
        for indices in _portions(texts):
            if on_loop:
                divided += map(divide, indices)
            else:
                divided += await _executor.run(
                    lambda indices=indices: list(map(divide, indices)),  # type: ignore[misc]
                    shared.get("client", ""),
                )
        return [TranslatedPart(part, i) for i, parts in enumerate(divided) for part in parts]


def _fitting(rules: TermRules, options: TranslateOptions) -> TermRules:
    """The rules as far as the options leave room for them.

    Where the tokens of the model are shown, sentences stay in their letter case. A translation with
    a given beginning is the model's own.
    """
    if options.target_prefix:
        return TermRules(rules.source, rules.target, frozenset(), letter_case=False)
    return replace(rules, letter_case=False) if options.returns_sentences else rules


def _portions(texts: Sequence[str]) -> list[list[int]]:
    """Indices of texts, in portions of work that is short."""
    portions: list[list[int]] = []
    size = _SMALL_CHARACTERS
    for index, text in enumerate(texts):
        if size >= _SMALL_CHARACTERS:
            portions.append([])
            size = 0
        portions[-1].append(index)
        size += len(text)
    return portions


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
        self._left = MAX_ATTEMPTS

    async def translate(self, parts: Sequence[TranslatedPart]) -> None:
        """Translate parts of texts: those between together, then all sentences in rounds."""
        plain = [part for part in parts if part.part.sentence is None]
        jobs = [self._job(part) for part in parts if part.part.sentence is not None]
        # Without tasks where one of the two is all there is, as for most texts.
        calls = [self._translate_plain(plain)] if plain else []
        if jobs:
            calls.append(self._repair(jobs))
        await _together(calls)

    async def deltas(self, part: TranslatedPart) -> AsyncIterator[StreamDelta]:
        """Stream a part without a sentence that needs care."""
        seconds = self._seconds
        async for event in self._below.stream(part.part.text, self._options, **self._shared):
            if isinstance(event, TextResult):
                part.take(event, seconds)
            else:
                yield event

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._started_at

    def _job(self, part: TranslatedPart) -> _Job:
        assert part.part.sentence is not None, "it needs care"
        repair = SentenceRepair(part.part.sentence, self._rules, links=self._options.links)
        run = repair.run()
        return _Job(part, repair, run, next(run))

    async def _translate_plain(self, parts: Sequence[TranslatedPart]) -> None:
        for start in range(0, len(parts), self._max_texts):
            portion = parts[start : start + self._max_texts]
            results = await self._called(portion, [p.part.text for p in portion], self._options)
            for part, (seconds, result) in zip(portion, results, strict=True):
                part.take(result, seconds)

    async def _repair(self, jobs: Sequence[_Job]) -> None:
        """Advance all jobs together, until each has its translation or has failed."""
        is_first, yielder = True, CooperativeYield()
        while jobs:
            results = await self._attempted(jobs, is_first=is_first)
            open_jobs = []
            for job, result in zip(jobs, results, strict=True):
                await yielder.checkpoint()
                if result is not None:
                    job.part.results.append(result)
                    if is_first and result[1].error is not None:
                        continue
                answer = None if result is None or result[1].error else result[1]
                try:
                    job.attempt = job.run.send(answer)
                    open_jobs.append(job)
                except StopIteration as end:
                    job.part.candidate = end.value
                    job.part.used = job.repair.used(end.value)
            jobs, is_first = open_jobs, False

    async def _attempted(
        self, jobs: Sequence[_Job], *, is_first: bool
    ) -> list[tuple[float, TextResult] | None]:
        """The result of each job's attempt; None where there is no room for one."""
        groups: dict[Attempt, list[int]] = {}
        for index, job in enumerate(jobs):
            if is_first or self._left > 0:
                self._left -= not is_first
                groups.setdefault(replace(job.attempt, text=""), []).append(index)
        portions = [
            (like, indices[start : start + self._max_texts])
            for like, indices in groups.items()
            for start in range(0, len(indices), self._max_texts)
        ]
        calls = [
            self._tried([jobs[i] for i in indices], self._options_of(like, is_first), is_first)
            for like, indices in portions
        ]
        results: list[tuple[float, TextResult] | None] = [None] * len(jobs)
        for (_, indices), found in zip(portions, await _together(calls), strict=True):
            for index, result in zip(indices, found, strict=True):
                results[index] = result
        return results

    async def _tried(
        self, jobs: Sequence[_Job], options: TranslateOptions, is_first: bool
    ) -> Sequence[tuple[float, TextResult] | None]:
        """The results of attempts. None of them, if the model is too busy for a second look."""
        try:
            parts = [job.part for job in jobs]
            return await self._called(parts, [job.attempt.text for job in jobs], options)
        except (ResourceExhaustedError, DeadlineExceededError):
            deadline = self._shared.get("deadline")
            if is_first or (deadline is not None and time.monotonic() >= deadline):
                raise
            return [None] * len(jobs)

    async def _called(
        self, parts: Sequence[TranslatedPart], texts: Sequence[str], options: TranslateOptions
    ) -> list[tuple[float, TextResult]]:
        seconds = self._seconds
        try:
            results = await self._below.translate(texts, options, **self._shared)
        except InvalidArgumentError as exc:
            index = index_in(exc)
            if index is None:
                raise
            raise renamed(exc, f"contents[{parts[index].text_index}]") from exc
        return [(seconds, result) for result in results]

    def _options_of(self, attempt: Attempt, is_first: bool) -> TranslateOptions:
        """The request's options, for attempts like this one."""
        options = replace(
            self._options,
            split_sentences=False,
            links=attempt.links or self._options.links,
            target_prefix=attempt.prefix,
        )
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
        await _cancelled(tasks)


async def _cancelled(tasks: Sequence[asyncio.Task[Any]] | deque[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
