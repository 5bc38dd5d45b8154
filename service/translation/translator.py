"""Translates the texts of a request: segment, tokenize, submit, collect, detokenize."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Unpack

from model.bundle.calibration import Calibration
from model.bundle.carriers import DEFAULT_CARRIERS, Carrier
from model.bundle.directions import Directions
from model.bundle.piece_tokenizer import PieceTokenizer
from model.bundle.tokenizer import Tokenizer
from service.common.fairness import checkpoint
from service.domain.attention import AttentionShape
from service.domain.requests import AlignmentKind, GenerationResult, SearchOptions
from service.engine.generation import Generation
from service.engine.interface import ServableEngine
from service.errors import DragomanError, InvalidArgumentError
from service.translation.alignments import SoftWeights, check_can_align
from service.translation.attention import AttentionExtractor
from service.translation.blank_retries import BlankRetries, has_word
from service.translation.confidence import SentenceConfidence, sentence_confidence
from service.translation.detokenizer import Detokenizer
from service.translation.engine_call import CallArguments, EngineCall, SubmittedSentence, result_of
from service.translation.options import NORMALISED, TranslateOptions, TranslatorLimits
from service.translation.pair_scorer import PairScorer
from service.translation.preparation import (
    PreparedText,
    TextError,
    TextPreparer,
    are_long,
    normalised_lengths,
)
from service.translation.results import PendingText, TextResult, sentence_result

# Some milliseconds of work. A number, not a time, so that the engine gets the sentences of a usual
# request together.
_PIECES_PER_YIELD = 128
# Cached checked options: most requests have the same, and checking takes as long as tokenizing a
# sentence.
_MAX_OPTIONS_KEPT = 64
# Cached directions; making another one takes less than a tenth of a millisecond.
_MAX_DIRECTIONS_KEPT = 256


@dataclass(frozen=True)
class StreamDelta:
    """The next part of a translation. All deltas of a stream, joined, are its text."""

    text: str


class Translator:
    """Translates texts from one language into another with one model.

    Args:
        engine: runs the model.
        tokenizer: the model's tokenizer for this direction.
        source_language: BCP-47 code of the texts, which determines how they are segmented and which
            sentences are copied.
        limits: limits of requests.
        directions: directions of a multilingual model; None if this is the only one.
        default_search: search for requests that don't choose another.
        can_align: whether the model has alignments.
        attention: the model's attentions; None without an attention graph.
        calibration: converts log-probabilities to expected quality, for one direction; None without
            one.
        carriers: strings that the model copies, best first.

    Attributes:
        limits: limits of requests.
        carriers: strings that the model copies, best first.
        default_options: options of requests without options.
        stream_options: options of streams without options: greedy search, so that tokens can be
            sent as they are generated.
        tokenizer: the model's tokenizer for this direction.
        preparer: segments and tokenizes texts for the model.
        scorer: scores translations with the same model.
        attention: computes attention weights of the model.
    """

    def __init__(
        self,
        engine: ServableEngine,
        tokenizer: Tokenizer,
        *,
        source_language: str = "en",
        limits: TranslatorLimits | None = None,
        directions: Directions | None = None,
        default_search: SearchOptions | None = None,
        can_align: bool = True,
        attention: AttentionShape | None = None,
        calibration: Calibration | None = None,
        carriers: Sequence[Carrier] = DEFAULT_CARRIERS,
    ) -> None:
        self.carriers = tuple(carriers)
        self._calibration = calibration
        self._can_align = can_align
        self._attention = attention
        self.limits = limits or TranslatorLimits()
        self.tokenizer = tokenizer
        search = default_search or SearchOptions()
        self.default_options = TranslateOptions(search=search)
        self.stream_options = TranslateOptions(search=replace(search, beam_size=1))
        self._engine = engine
        self._directions = directions
        self._between = functools.lru_cache(_MAX_DIRECTIONS_KEPT)(self._make_between)
        self.preparer = TextPreparer(tokenizer, source_language, engine.limits.max_source_positions)
        self._num_hidden = tokenizer.num_hidden
        self._search_options = functools.lru_cache(_MAX_OPTIONS_KEPT)(
            functools.partial(
                TranslateOptions.search_options, limits=engine.widest, tokenizer=tokenizer.target
            )
        )
        self.scorer = PairScorer(engine, tokenizer, self.preparer, self.limits, can_align)
        self.attention = AttentionExtractor(
            engine,
            tokenizer,
            self.preparer,
            self.limits,
            attention,
            self.scorer.checked,
            self.call,
        )

    @property
    def max_source_tokens(self) -> int:
        """Longest source in tokens, with EOS and without language tokens."""
        return self._engine.limits.max_source_positions - self._num_hidden[0]

    @property
    def max_target_tokens(self) -> int:
        """Longest target in tokens, with EOS and without language tokens."""
        return self._engine.limits.max_target_positions - self._num_hidden[1]

    def between(self, source: str, target: str) -> Translator:
        """The translator for a direction of the same model.

        Args:
            source: BCP-47 code of the texts, by the rules of `Directions.choose`.
            target: BCP-47 code of the translations, by the same rules.

        Raises:
            DirectionError: the model has no such direction, or several.
        """
        return self if self._directions is None else self._between(source, target)

    def _make_between(self, source: str, target: str) -> Translator:
        assert self._directions is not None
        source, target = self._directions.choose(source, target)
        assert isinstance(self.tokenizer, PieceTokenizer), "no other knows languages"
        tokenizer = self.tokenizer.between(
            self._directions.prefix_ids(source, target), self._directions.start_ids(target)
        )
        measured = self._calibration
        if measured is not None and (measured.source, measured.target) != (source, target):
            measured = None
        return Translator(
            self._engine,
            tokenizer,
            source_language=source,
            limits=self.limits,
            directions=self._directions,
            default_search=self.default_options.search,
            can_align=self._can_align,
            attention=self._attention,
            calibration=measured,
            carriers=self.carriers,
        )

    async def translate(
        self,
        texts: Sequence[str],
        options: TranslateOptions | None = None,
        **shared: Unpack[CallArguments],
    ) -> list[TextResult]:
        """Translate all texts. Cancelling the awaiting task frees all rows of the request.

        Args:
            texts: texts to translate; those with nothing to translate are returned unchanged
                (`service.translation.verbatim`).
            options: options of the translation; None for the model's defaults.
            shared: deadline, request id and client.

        Returns:
            A result for each text, in order. A bad text (NUL, broken Unicode) or a failed sentence
            does not affect the other texts.

        Raises:
            InvalidArgumentError: there are too many texts or characters, an option is invalid, or
                soft alignments are too large together; names the field.
            FailedPreconditionError: alignments are requested, and the model can't score or align.
            ResourceExhaustedError: the engine is full.
            DeadlineExceededError: the deadline passed first.
            UnavailableError: the engine does not serve.
        """
        options = options or self.default_options
        await self.check_texts(texts)
        if options.return_alignments:
            check_can_align(self._can_align)
        kind = self._alignment_kind(options)
        call = self.call(options, shared)
        if kind:
            await self._engine.prepare_scoring()
        try:
            if are_long(texts):
                await call.enter()
            pending: list[PendingText | TextError] = []
            async for prepared in self.preparer.prepare_all(
                texts, split_sentences=options.split_sentences
            ):
                if isinstance(prepared, PreparedText):
                    submitted = await self.submit(prepared, call)
                    pending.append(PendingText(prepared, submitted, call.started_at))
                else:
                    pending.append(prepared)
            if kind:
                most = None if options.return_alignments else 1
                await self._submit_alignments(pending, call, kind, most)
            retries = self.retries(call, pending)
            return [
                await self.finish(text, f"contents[{index}]", options, retries)
                for index, text in enumerate(pending)
            ]
        finally:
            call.close()

    async def stream(
        self,
        text: str,
        options: TranslateOptions | None = None,
        **shared: Unpack[CallArguments],
    ) -> AsyncIterator[StreamDelta | TextResult]:
        """Translate one text as a stream.

        Sentences are translated in parallel and streamed in order. The arguments are those of
        `translate`. Closing the iterator frees all rows of the request.

        Yields:
            Deltas, which joined are exactly the text that `translate` returns; then the result.

        Raises:
            InternalError: the model failed.
            InvalidArgumentError: the text is invalid or too long, or an option is invalid; names
                the field.
            ResourceExhaustedError, DeadlineExceededError, UnavailableError: for the same reasons as
                in `translate`.
        """
        options = options or self.stream_options
        options.check_streamable()
        await self.check_text(text)
        call = self.call(options, shared)
        try:
            if are_long([text]):
                await call.enter()
            prepared = await self.preparer.prepare_one(
                text, split_sentences=options.split_sentences
            )
            pending = PendingText(prepared, [], call.started_at)
            deltas, retries = [], self.retries(call)
            async for submitted in call.submit_ahead(prepared):
                async for delta in self.deltas(submitted, pending, retries):
                    deltas.append(delta)
                    yield StreamDelta(delta)
            yield pending.result("".join(deltas))
        except TextError as exc:
            raise InvalidArgumentError("content", str(exc)) from exc
        finally:
            call.close()

    async def enter(
        self, options: TranslateOptions | None = None, **shared: Unpack[CallArguments]
    ) -> None:
        """Begin a call with an admission for all its parts, before long texts are parsed.

        Raises the engine's errors of `translate`.
        """
        await self.call(options or self.default_options, shared).enter()

    async def check_texts(self, texts: Sequence[str]) -> None:
        """Raise InvalidArgumentError, which names the field, for too many texts or characters."""
        self.limits.check_count("contents", len(texts), "texts")
        names = [f"contents[{index}]" for index in range(len(texts))]
        await self.preparer.check_lengths(self.limits, "contents", names, texts)

    async def check_text(self, text: str) -> None:
        """The same for the single text of a stream."""
        self.limits.check_length("content", len(text))
        [length] = await normalised_lengths([text])
        self.limits.check_length("content", length, NORMALISED)

    async def submit(self, prepared: PreparedText, call: EngineCall) -> list[SubmittedSentence]:
        """Submit every sentence of a text."""
        submitted: list[SubmittedSentence] = []
        await checkpoint()
        opening = prepared.opening
        for number, sentence in enumerate(prepared.sentences, 1):
            if number % _PIECES_PER_YIELD == 0:
                await checkpoint()
            submitted.append(await call.submit(sentence, opens=sentence is opening))
        return submitted

    def _alignment_kind(self, options: TranslateOptions) -> AlignmentKind | None:
        """The kind of alignment to compute, for the answer or for links; None for none."""
        can_link = self._can_align and self._engine.can_score
        return options.return_alignments or ("hard" if options.links and can_link else None)

    async def _submit_alignments(
        self,
        pending: Sequence[PendingText | TextError],
        call: EngineCall,
        kind: AlignmentKind,
        most: int | None,
    ) -> None:
        """Submit hypotheses for scoring when their search ends, while other searches run.

        Args:
            pending: texts of the request.
            call: engine call of the request.
            kind: kind of the alignments.
            most: most hypotheses of each sentence, best first; None for all.
        """
        weights = SoftWeights()
        hidden_source, hidden_target = self._num_hidden
        for text in pending:
            for submitted in text.submitted if isinstance(text, PendingText) else ():
                if submitted.generation is None:
                    continue
                result = await submitted.generation.result()
                source_ids = submitted.generation.request.source_ids
                for hypothesis in () if result.error else result.hypotheses[:most]:
                    end = (self.tokenizer.eos_id,) if hypothesis.ended else ()
                    target_ids = (*hypothesis.token_ids, *end)
                    if kind == "soft":
                        weights.add(
                            len(source_ids) - hidden_source, len(target_ids) - hidden_target
                        )
                    submitted.scorings.append(await call.score(source_ids, target_ids, kind))

    def call(self, options: TranslateOptions, shared: CallArguments) -> EngineCall:
        """The engine call of a request. Raises InvalidArgumentError for invalid options."""
        search = self._search_options(options)
        return EngineCall(self._engine, search, options.priority, self.tokenizer, **shared)

    def retries(
        self, call: EngineCall, texts: Sequence[PendingText | TextError] = ()
    ) -> BlankRetries:
        """Second attempts for sentences with a translation without words."""
        return BlankRetries(self.tokenizer, self.preparer, call, texts)

    async def deltas(
        self, submitted: SubmittedSentence, pending: PendingText, retries: BlankRetries
    ) -> AsyncIterator[str]:
        """Yield the translation of a sentence as it is generated, and add its result to the text.

        Nothing is yielded before the first word: without words, the sentence is translated again.
        """
        if copied := submitted.copied:
            yield copied
        generation = submitted.generation
        if generation is None:
            return
        text = Detokenizer(self.tokenizer.target)
        held, is_shown = "", retries.has_prefix(generation)
        async for token_ids in generation:
            if delta := text.add(token_ids):
                held += delta
                is_shown = is_shown or has_word(held)
                if is_shown:
                    yield held
                    held = ""
        result = await self.result_of(generation)
        if result.error is not None:
            raise result.error
        held += text.finish()
        if not is_shown and retries.is_due(generation, result, held):
            retry = await retries.of(generation)
            pending.add(generation, result)
            if retry is None or not retry.is_better:
                yield submitted.sentence.text
                return
            if retry.result.error is not None:
                raise retry.result.error
            generation, result, held = retry.generation, retry.result, retry.text
        self._add(pending, generation, result)
        if held:
            yield held

    async def result_of(self, generation: Generation) -> GenerationResult:
        """The result of a sentence, without the language tokens at the beginning."""
        return (await result_of(generation)).without(self._num_hidden[1])

    def _add(
        self, pending: PendingText, generation: Generation, result: GenerationResult
    ) -> SentenceConfidence | None:
        """Add the result of a sentence to its text, and return its confidence."""
        pending.add(generation, result)
        num_given = len(generation.request.options.prefix_ids) - self._num_hidden[1]
        confidence = sentence_confidence(self._calibration, result, num_given)
        if confidence is not None:
            pending.confidences.append(confidence)
        return confidence

    async def finish(
        self,
        pending: PendingText | TextError,
        field: str,
        options: TranslateOptions,
        retries: BlankRetries,
    ) -> TextResult:
        """Wait for all sentences of a text, and join them."""
        if isinstance(pending, TextError):
            return TextResult("", None, error=InvalidArgumentError(field, str(pending)))
        error: DragomanError | None = None
        for submitted in pending.submitted:
            await checkpoint()
            if options.links:
                pending.linked.copy(submitted.copied)
            if submitted.generation is None:
                pending.outputs.append(submitted.copied)
                continue
            generation, scorings = submitted.generation, submitted.scorings
            result = await self.result_of(generation)
            output = self.tokenizer.target.decode(result.token_ids)
            # Not with alignments, which are for the sentence's own tokens and first translation.
            if retries.is_due(generation, result, output) and not options.return_alignments:
                retry = await retries.of(generation)
                if retry is not None and retry.is_better:
                    pending.add(generation, result)
                    generation, result, output = retry.generation, retry.result, retry.text
                    scorings = []
                elif not options.returns_sentences:
                    pending.add(generation, result)
                    pending.outputs.append(submitted.copied + submitted.sentence.text)
                    pending.linked.copy(submitted.sentence.text if options.links else "")
                    continue
            confidence = self._add(pending, generation, result)
            scores = [await result_of(scoring) for scoring in scorings]
            for failed in (result, *scores):
                error = failed.error or error
            pending.outputs.append(submitted.copied + output)
            if error is not None:
                continue
            scored = [hypothesis for score in scores for hypothesis in score.hypotheses]
            if options.links:
                pending.link(submitted.sentence, output, result, scored, self.tokenizer)
            if options.returns_sentences:
                value = confidence.value if confidence else None
                pending.sentences.append(
                    sentence_result(
                        submitted.sentence, result, self.tokenizer, options, scored, value
                    )
                )
        return pending.result("" if error else "".join(pending.outputs), error)
