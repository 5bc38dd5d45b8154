"""Translates the texts of a request: segment, tokenize, submit, collect, detokenize."""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Unpack

from model.tokenizer import Tokenizer
from service.decoding.requests import AlignmentKind
from service.engine.interface import ServableEngine
from service.errors import DragomanError, InvalidArgumentError
from service.translation.alignments import SoftWeights, check_can_align
from service.translation.detokenizer import Detokenizer
from service.translation.engine_call import CallArguments, EngineCall, SubmittedPiece, result_of
from service.translation.fairness import CooperativeYield
from service.translation.options import NORMALISED, TranslateOptions, TranslatorLimits
from service.translation.pair_scorer import PairScorer
from service.translation.preparation import PreparedText, TextError, TextPreparer
from service.translation.results import PendingText, TextResult, sentence_result

# By number, not by time: the engine should see the sentences of a usual request at once.
_PIECES_PER_YIELD = 256
# Most requests have the same options, and checking them takes as long as tokenizing a sentence.
_MAX_OPTIONS_KEPT = 64


@dataclass(frozen=True)
class StreamDelta:
    """The next part of a translation. All deltas of a stream, joined, are its text."""

    text: str


class Translator:
    """Translates texts from one language with one model.

    Args:
        engine: runs the model.
        tokenizer: the model's.
        source_language: BCP-47 code of the texts: decides how they are segmented, and what is not
            translated.
        limits: the largest request that is accepted.
        can_align: whether the model has alignments.

    Attributes:
        limits: the largest request that is accepted.
        scorer: scores translations with the same model.
    """

    def __init__(
        self,
        engine: ServableEngine,
        tokenizer: Tokenizer,
        *,
        source_language: str = "en",
        limits: TranslatorLimits | None = None,
        can_align: bool = True,
    ) -> None:
        self._can_align = can_align
        self.limits = limits or TranslatorLimits()
        self._engine = engine
        self._tokenizer = tokenizer
        self._preparer = TextPreparer(
            tokenizer, source_language, engine.limits.max_source_positions
        )
        self._detokenizer = Detokenizer(tokenizer.target)
        self._search_options = functools.lru_cache(_MAX_OPTIONS_KEPT)(
            functools.partial(
                TranslateOptions.search_options, limits=engine.widest, tokenizer=tokenizer.target
            )
        )
        self.scorer = PairScorer(engine, tokenizer, self._preparer, self.limits, can_align)

    async def translate(
        self,
        texts: Sequence[str],
        options: TranslateOptions | None = None,
        **shared: Unpack[CallArguments],
    ) -> list[TextResult]:
        """Translate all texts. Cancelling the awaiting task frees all rows of the request.

        Args:
            texts: the texts; those with nothing to translate are returned unchanged
                (`service.translation.verbatim`).
            options: how to translate.
            shared: deadline, request id and client.

        Returns:
            A result for each text, in order. A bad text (NUL, broken Unicode) or a failed sentence
            does not affect the other texts.

        Raises:
            InvalidArgumentError: too many texts or characters, a bad option, or soft alignments
                that are too large together; names the field.
            FailedPreconditionError: alignments are requested, and the model can't score or align.
            ResourceExhaustedError: the engine is full.
            DeadlineExceededError: the deadline passed first.
            UnavailableError: the engine does not serve.
        """
        options, client = options or TranslateOptions(), shared.get("client", "")
        self.limits.check_count("contents", len(texts), "texts")
        names = [f"contents[{index}]" for index in range(len(texts))]
        await self._preparer.check_lengths(self.limits, "contents", names, texts, client)
        if options.return_alignments:
            check_can_align(self._can_align)
        call = self._call(options, shared)
        if options.return_alignments:
            await self._engine.prepare_scoring()
        try:
            pending: list[PendingText | TextError] = []
            async for prepared in self._preparer.prepare_all(
                texts, split_sentences=options.split_sentences, client=client
            ):
                if isinstance(prepared, PreparedText):
                    pieces = await self._submit(prepared, call)
                    pending.append(PendingText(prepared, pieces, call.started_at))
                else:
                    pending.append(prepared)
            if options.return_alignments:
                await self._submit_alignments(pending, call, options.return_alignments)
            yielder = CooperativeYield()
            return [
                await self._finish(text, f"contents[{index}]", options, yielder)
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

        Its sentences are translated in parallel and streamed in order. Arguments as for
        `translate`. Closing the iterator frees all rows of the request.

        Yields:
            Deltas, which joined are exactly the text that `translate` returns; then the result.

        Raises:
            InternalError: the model failed.
            InvalidArgumentError: the text is bad or too long, or an option is; names the field.
            ResourceExhaustedError, DeadlineExceededError, UnavailableError: as `translate`.
        """
        options, client = options or TranslateOptions(), shared.get("client", "")
        options.check_streamable()
        self.limits.check_length("content", len(text))
        [length] = await self._preparer.lengths([text], client=client)
        self.limits.check_length("content", length, NORMALISED)
        call = self._call(options, shared)
        try:
            prepared = await self._preparer.prepare_one(
                text, split_sentences=options.split_sentences, client=client
            )
            pending = PendingText(prepared, [], call.started_at)
            deltas = []
            async for delta in self._deltas(call, pending):
                deltas.append(delta)
                yield StreamDelta(delta)
            yield pending.result("".join(deltas))
        except TextError as exc:
            raise InvalidArgumentError("content", str(exc)) from exc
        finally:
            call.close()

    async def _submit(self, prepared: PreparedText, call: EngineCall) -> list[SubmittedPiece]:
        """Submit every piece of a text."""
        submitted: list[SubmittedPiece] = []
        opening = prepared.opening
        for number, piece in enumerate(prepared.pieces, 1):
            if number % _PIECES_PER_YIELD == 0:
                await asyncio.sleep(0)
            submitted.append(await call.submit(piece, opens=piece is opening))
        return submitted

    async def _submit_alignments(
        self, pending: Sequence[PendingText | TextError], call: EngineCall, kind: AlignmentKind
    ) -> None:
        """Submit each hypothesis for scoring when its search ends, while other searches run."""
        weights = SoftWeights()
        for text in pending:
            for submitted in text.pieces if isinstance(text, PendingText) else ():
                if submitted.generation is None:
                    continue
                result = await submitted.generation.result()
                source_ids = submitted.generation.request.source_ids
                for hypothesis in result.hypotheses if result.error is None else ():
                    end = (self._tokenizer.eos_id,) if hypothesis.ended else ()
                    target_ids = (*hypothesis.token_ids, *end)
                    if kind == "soft":
                        weights.add(len(source_ids), len(target_ids))
                    submitted.scorings.append(await call.score(source_ids, target_ids, kind))

    def _call(self, options: TranslateOptions, shared: CallArguments) -> EngineCall:
        """The engine call of a request. Raises InvalidArgumentError for bad options."""
        search = self._search_options(options)
        start_ids = self._tokenizer.target.start_ids
        return EngineCall(self._engine, search, options.priority, start_ids, **shared)

    async def _deltas(self, call: EngineCall, pending: PendingText) -> AsyncIterator[str]:
        """Submit the pieces of a text, and yield their translations in order as they are made."""
        waiting, opening = deque(pending.prepared.pieces), pending.prepared.opening
        in_flight: deque[SubmittedPiece] = deque()
        while waiting or in_flight:
            while waiting:
                submitted = call.try_submit(waiting[0], opens=waiting[0] is opening)
                if submitted is None:
                    break
                in_flight.append(submitted)
                waiting.popleft()
            submitted = in_flight.popleft()
            if copied := submitted.copied:
                yield copied
            generation = submitted.generation
            if generation is None:
                continue
            text = self._detokenizer.stream()
            async for token_ids in generation:
                if delta := text.add(token_ids):
                    yield delta
            result = await generation.result()
            if result.error is not None:
                raise result.error
            pending.generated.append((generation, result))
            if delta := text.finish():
                yield delta

    async def _finish(
        self,
        pending: PendingText | TextError,
        field: str,
        options: TranslateOptions,
        yielder: CooperativeYield,
    ) -> TextResult:
        """Wait for all pieces of a text, and join them."""
        if isinstance(pending, TextError):
            return TextResult("", None, error=InvalidArgumentError(field, str(pending)))
        texts = []
        error: DragomanError | None = None
        for submitted in pending.pieces:
            await yielder.checkpoint()
            texts.append(submitted.copied)
            if submitted.generation is None:
                continue
            result = await result_of(submitted.generation)
            pending.generated.append((submitted.generation, result))
            scores = [await result_of(scoring) for scoring in submitted.scorings]
            for failed in (result, *scores):
                error = failed.error or error
            if error is None and options.returns_sentences:
                scored = [hypothesis for score in scores for hypothesis in score.hypotheses]
                pending.sentences.append(
                    sentence_result(submitted.piece, result, self._tokenizer, options, scored)
                )
            texts.append(self._tokenizer.target.decode(result.token_ids))
        return pending.result("" if error else "".join(texts), error)
