"""Translates the texts of a request: segment, tokenize, submit, collect, detokenize."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from typing import Unpack

from model.bundle.calibration import Calibration
from model.bundle.carriers import DEFAULT_CARRIERS, Carrier
from model.bundle.directions import Directions
from model.bundle.piece_tokenizer import PieceTokenizer
from model.bundle.tokenizer import Tokenizer
from service.cache.response_cache import ModelCache
from service.common.fairness import checkpoint
from service.domain.attention import AttentionShape
from service.domain.requests import AlignmentKind, SearchOptions
from service.engine.interface import ServableEngine
from service.errors import InvalidArgumentError
from service.translation.alignments import check_can_align
from service.translation.attention import AttentionExtractor
from service.translation.blank_retries import BlankRetries
from service.translation.engine_call import CallArguments, EngineCall, SubmittedSentence
from service.translation.look_ups import look_up, looked_up
from service.translation.options import NORMALISED, TranslateOptions, TranslatorLimits
from service.translation.pair_scorer import PairScorer
from service.translation.preparation import (
    PreparedText,
    TextError,
    TextPreparer,
    are_long,
    normalised_lengths,
)
from service.translation.result_collector import ResultCollector
from service.translation.results import PendingText, TextResult

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
        cache: results of the model; None without a cache.

    Attributes:
        limits: limits of requests.
        carriers: strings that the model copies, best first.
        default_options: options of requests without options.
        stream_options: options of streams without options: greedy search, so that tokens can be
            sent as they are generated.
        tokenizer: the model's tokenizer for this direction.
        preparer: segments and tokenizes texts for the model.
        collector: collects results of sentences.
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
        cache: ModelCache | None = None,
    ) -> None:
        self._cache = cache
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
        self.collector = ResultCollector(tokenizer, calibration)
        self.scorer = PairScorer(engine, tokenizer, self.preparer, self.limits, can_align)
        self.attention = AttentionExtractor(
            engine,
            tokenizer,
            self.preparer,
            self.limits,
            attention,
            self.scorer.tokenized,
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
            cache=self._cache,
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
            prepared_texts = self.preparer.prepare_all(
                texts, split_sentences=options.split_sentences
            )
            async for prepared in looked_up(prepared_texts, call):
                if isinstance(prepared, PreparedText):
                    submitted = await self.submit(prepared, call)
                    pending.append(PendingText(prepared, submitted, call.started_at))
                else:
                    pending.append(prepared)
            if kind:
                most = None if options.return_alignments else 1
                await self.collector.submit_alignments(pending, call, kind, most)
            retries = self.retries(call, pending)
            return [
                await self.collector.finish(text, f"contents[{index}]", options, retries)
                for index, text in enumerate(pending)
            ]
        finally:
            call.close()

    async def stream(
        self,
        text: str,
        options: TranslateOptions | None = None,
        **shared: Unpack[CallArguments],
    ) -> AsyncGenerator[StreamDelta | TextResult, None]:
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
            await look_up([prepared], call)
            pending = PendingText(prepared, [], call.started_at)
            deltas, retries = [], self.retries(call)
            async for submitted in call.submit_ahead(prepared):
                pending.submitted.append(submitted)
                async for delta in self.collector.deltas(submitted, pending, retries):
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
        """Raise InvalidArgumentError if the text of a stream is too long."""
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

    def call(self, options: TranslateOptions, shared: CallArguments) -> EngineCall:
        """The engine call of a request. Raises InvalidArgumentError for invalid options."""
        search = self._search_options(options)
        return EngineCall(
            self._engine, search, options.priority, self.tokenizer, self._cache, **shared
        )

    def retries(
        self, call: EngineCall, texts: Sequence[PendingText | TextError] = ()
    ) -> BlankRetries:
        """Second attempts for sentences with a translation without words."""
        return BlankRetries(self.tokenizer, self.preparer, call, texts)
