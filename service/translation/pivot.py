"""Translates through a third language, the pivot, with two models: sentence by sentence."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace
from typing import Unpack

from model.bundle.carriers import in_common
from service.common.fairness import checkpoint
from service.errors import DragomanError, InvalidArgumentError
from service.translation.blank_retries import BlankRetries, has_word
from service.translation.engine_call import (
    CallArguments,
    EngineCall,
    OpeningSentence,
    SubmittedSentence,
)
from service.translation.links import Link, LinkedText
from service.translation.look_ups import ended_together, look_up, looked_up
from service.translation.options import TranslateOptions
from service.translation.preparation import PreparedText, TextError, are_long
from service.translation.results import PendingText, TextResult, joined_reason, untranslated
from service.translation.segmentation import SourceSentence
from service.translation.translator import StreamDelta, Translator


class PivotTranslator:
    """Two translators in sequence, with the same methods as one.

    A text is segmented once, for the first model. The translation of each sentence is the second
    model's source. White space, line markers and copied sentences bypass both models.

    Both parts of a call have its deadline, client and priority, and both models admit or refuse it
    before anything is computed. The second model's estimate uses the length of the original
    sentence, and adds the time of a busy first model.

    Args:
        first: translator into the pivot language.
        second: translator from the pivot language.
        language: code of the pivot language, for messages.
        first_options: options of the request with the first model's defaults. Only options of the
            search are used (`TranslateOptions.into_pivot`).

    Attributes:
        limits: limits of requests.
        carriers: strings that both models copy.
    """

    def __init__(
        self,
        first: Translator,
        second: Translator,
        language: str,
        first_options: TranslateOptions | None = None,
    ) -> None:
        self.limits = first.limits
        self.carriers = in_common(first.carriers, second.carriers)
        self._first = first
        self._second = second
        self._language = language
        self._first_options = first_options or first.default_options

    async def translate(
        self,
        texts: Sequence[str],
        options: TranslateOptions | None = None,
        **shared: Unpack[CallArguments],
    ) -> list[TextResult]:
        """Translate all texts, with the results and errors of `Translator.translate`.

        Args:
            texts: texts to translate.
            options: options with the second model's defaults. Links join whole sentences.
            shared: deadline, request id and client.

        Raises:
            InvalidArgumentError: alignments are requested, or as in `Translator.translate`.
        """
        options = options or self._second.default_options
        legs = self._legs(options, shared)
        await self._first.check_texts(texts)
        try:
            if are_long(texts):
                await legs.first.enter()
            firsts: list[PendingText | TextError] = []
            prepared_texts = self._first.preparer.prepare_all(
                texts, split_sentences=options.split_sentences
            )
            async for prepared in looked_up(prepared_texts, legs.first):
                if isinstance(prepared, PreparedText):
                    legs.reserve(prepared)
                    submitted = await self._first.submit(prepared, legs.first)
                    firsts.append(PendingText(prepared, submitted, legs.first.started_at))
                else:
                    firsts.append(prepared)
            continued = [
                first if isinstance(first, TextError) else await self._continue(first, legs)
                for first in firsts
            ]
            legs.first.close()  # gives its room to other calls while the second model works
            return [
                await self._finish(text, f"contents[{index}]", options, legs)
                for index, text in enumerate(continued)
            ]
        finally:
            legs.close()

    async def stream(
        self,
        text: str,
        options: TranslateOptions | None = None,
        **shared: Unpack[CallArguments],
    ) -> AsyncGenerator[StreamDelta | TextResult, None]:
        """Translate one text as a stream, with the items and errors of `Translator.stream`.

        A sentence's deltas begin when its translation into the pivot language is complete. The
        arguments are those of `translate`.
        """
        options = options or self._second.stream_options
        options.check_streamable()
        legs = self._legs(options, shared)
        await self._first.check_text(text)
        feeding: asyncio.Task[None] | None = None
        try:
            if are_long([text]):
                await legs.first.enter()
            prepared = await self._first.preparer.prepare_one(
                text, split_sentences=options.split_sentences
            )
            legs.reserve(prepared)
            await look_up([prepared], legs.first)
            pivoted = _PivotedText(PendingText(prepared, [], legs.first.started_at))
            queue: asyncio.Queue[SubmittedSentence | None] = asyncio.Queue()
            feeding = asyncio.create_task(self._feed(pivoted, legs, queue), name="pivot")
            second, collector = pivoted.second(), self._second.collector
            deltas = []
            while (submitted := await queue.get()) is not None:
                async for delta in collector.deltas(submitted, second, legs.second_retries):
                    deltas.append(delta)
                    yield StreamDelta(delta)
            await feeding
            yield pivoted.joined(second.result("".join(deltas)))
        except TextError as exc:
            raise InvalidArgumentError("content", str(exc)) from exc
        finally:
            try:
                if feeding is not None:
                    feeding.cancel()
                    await asyncio.gather(feeding, return_exceptions=True)
            finally:
                legs.close()

    async def enter(
        self, options: TranslateOptions | None = None, **shared: Unpack[CallArguments]
    ) -> None:
        """Call `Translator.enter` of the first model."""
        await self._legs(options or self._second.default_options, shared).first.enter()

    def _legs(self, options: TranslateOptions, shared: CallArguments) -> _Legs:
        """The calls to both engines. Raises InvalidArgumentError for bad options."""
        first_options = replace(self._first_options, split_sentences=options.split_sentences)
        into_pivot = first_options.into_pivot(self._language)
        second = self._second.call(options, shared)
        first = self._first.call(into_pivot, shared)
        return _Legs(first, second, self._first.retries(first), self._second.retries(second))

    async def _continue(self, first: PendingText, legs: _Legs) -> _PivotedText:
        """Submit the sentences of a text to the second model when the first one finishes them."""
        text = _PivotedText(first)
        async for together in ended_together(first.submitted):
            await self._continue_sentences(together, text, legs)
            if text.error is not None:
                break
        return text

    async def _feed(
        self, text: _PivotedText, legs: _Legs, queue: asyncio.Queue[SubmittedSentence | None]
    ) -> None:
        """Put the sentences of a stream into a queue, as the second model gets them.

        The first model is ahead by no more than its quota.
        """
        try:
            async for submitted in legs.first.submit_ahead(text.first.prepared):
                text.first.submitted.append(submitted)
                for each in await self._continue_sentences([submitted], text, legs):
                    queue.put_nowait(each)
                if text.error is not None:
                    raise text.error
        finally:
            queue.put_nowait(None)

    async def _continue_sentences(
        self, submitted: Sequence[SubmittedSentence], text: _PivotedText, legs: _Legs
    ) -> Sequence[SubmittedSentence]:
        """Wait for the first model's translations, and submit them to the second one."""
        sentences: list[OpeningSentence] = []
        for one in submitted:
            await checkpoint()
            continued = await self._continued(one, text, legs)
            text.counts.append(len(continued))
            for each in continued:
                opens = each.source_ids is not None and not text.has_opened
                text.has_opened |= opens
                sentences.append((each, opens))
            if text.error is not None:
                return ()
        await legs.second.look_up(sentences)
        opened = [await legs.second.submit(each, opens=opens) for each, opens in sentences]
        text.submitted += opened
        return opened

    async def _continued(
        self, submitted: SubmittedSentence, text: _PivotedText, legs: _Legs
    ) -> Sequence[SourceSentence]:
        """The first model's translation of a sentence, for the second one."""
        sentence, generation = submitted.sentence, submitted.generation
        continued: Sequence[SourceSentence] = (sentence,)
        if generation is not None:
            result = await self._first.collector.result_of(generation)
            text.first.add(generation, result)
            if result.error is not None:
                text.error = result.error
                return ()
            translated = self._first.tokenizer.target.decode(result.token_ids)
            is_due = legs.first_retries.is_due(generation, result, translated)
            retry = await legs.first_retries.of(generation) if is_due else None
            if retry is not None and retry.is_better:
                text.first.add(retry.generation, retry.result)
                if retry.result.error is not None:
                    text.error = retry.result.error
                    return ()
                translated = retry.text
            if is_due and not has_word(translated):
                text.first.warnings.append(untranslated(sentence.text))
                continued = (SourceSentence(sentence.separator, sentence.text, None),)
            else:
                # A model with byte pieces can write NUL, which tokenizers can't read.
                translated = translated.replace("\0", " ").strip()
                prepared = self._second.preparer.prepare_sentence(sentence.separator, translated)
                text.was_split |= prepared.was_split
                continued = _with_source(prepared.sentences, sentence.text)
        return continued

    async def _finish(
        self,
        text: _PivotedText | TextError,
        field: str,
        options: TranslateOptions,
        legs: _Legs,
    ) -> TextResult:
        """Wait for the second model, and join the sentences of a text."""
        retries = legs.second_retries
        if isinstance(text, TextError):
            return await self._second.collector.finish(text, field, options, retries)
        if text.error is not None:
            return text.first.result("", text.error)
        second, unlinked = text.second(), replace(options, links=False)
        result = text.joined(await self._second.collector.finish(second, field, unlinked, retries))
        if options.links and result.error is None:
            result = replace(result, links=text.links(second.outputs))
        return result


@dataclass(frozen=True)
class _Legs:
    """The calls to both engines, and second attempts for translations without words."""

    first: EngineCall
    second: EngineCall
    first_retries: BlankRetries
    second_retries: BlankRetries

    def reserve(self, prepared: PreparedText) -> None:
        """Ask the second engine for admission, before the first one computes anything."""
        if prepared.opening is not None:
            self.second.reserve(prepared.opening, self.first)

    def close(self) -> None:
        """Cancel unfinished sentences, and release both admissions."""
        self.first.close()
        self.second.close()


@dataclass
class _PivotedText:
    """A text between the two models.

    Attributes:
        first: translation into the pivot language.
        submitted: sentences submitted to the second model.
        counts: number of those for each sentence of `first`.
        was_split: whether a sentence was too long for the second model.
        has_opened: whether a sentence for translation has been submitted to the second model.
        error: error of a sentence that the first model failed to translate.
    """

    first: PendingText
    submitted: list[SubmittedSentence] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    was_split: bool = False
    has_opened: bool = False
    error: DragomanError | None = None

    def second(self) -> PendingText:
        """The translation from the pivot language."""
        prepared = PreparedText([each.sentence for each in self.submitted], self.was_split)
        return PendingText(prepared, self.submitted, self.first.started_at)

    def joined(self, second: TextResult) -> TextResult:
        """The result of both models: the text of the second one, and the time of both."""
        first = self.first.result("")
        ended = max(result.queue_seconds + result.compute_seconds for result in (first, second))
        return replace(
            second,
            finish_reason=joined_reason((first.finish_reason, second.finish_reason)),
            num_source_tokens=first.num_source_tokens,
            was_split=first.was_split or self.was_split,
            queue_seconds=first.queue_seconds,
            compute_seconds=ended - first.queue_seconds,
            # The second model's confidence does not cover errors of the first model.
            confidence=None,
            warnings=[*first.warnings, *second.warnings],
            num_cached_characters=min(first.num_cached_characters, second.num_cached_characters),
            sentences=[replace(sentence, confidence=None) for sentence in second.sentences],
        )

    def links(self, outputs: Sequence[str]) -> Sequence[Link]:
        """Links of whole sentences, from the second model's translation of each sentence."""
        linked, remaining = LinkedText(), iter(outputs)
        for submitted, count in zip(self.first.submitted, self.counts, strict=True):
            output = "".join(itertools.islice(remaining, count))
            linked.copy(submitted.copied)
            if submitted.generation is not None:
                separator, text = submitted.sentence.separator, submitted.sentence.text
                linked.translate(text, output[len(separator) :])
        return linked.links


def _with_source(parts: Sequence[SourceSentence], source: str) -> Sequence[SourceSentence]:
    """A translated sentence, in parts, with the original as text of the first one.

    The original is the source of its translations in the answer; other parts have an empty source.
    """
    first = next((part for part in parts if part.source_ids is not None), None)
    return [
        part if part.source_ids is None else replace(part, text=source if part is first else "")
        for part in parts
    ]
