"""One request's story: texts, pieces, tokens, the engine, tokens, texts."""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from model.tokenizer import Tokenizer
from service.decoding.requests import AlignmentKind, Hypothesis
from service.engine.interface import ServableEngine
from service.errors import InternalError, InvalidArgumentError
from service.translation.alignments import SoftWeights
from service.translation.cooperative_yield import CooperativeYield
from service.translation.detokenizer import Detokenizer
from service.translation.engine_call import EngineCall, Part
from service.translation.limits import NORMALISED, TranslatorLimits
from service.translation.options import TranslateOptions
from service.translation.pair_scorer import PairScorer
from service.translation.preparation import PreparedText, TextError, TextPreparer
from service.translation.results import Draft, TextResult, sentence_result

# How many pieces to submit before the event loop gets a turn.
_PIECES_A_TURN = 256
# Most requests have the same options, and to check them takes as long as to tokenize a sentence.
_MAX_OPTIONS_KEPT = 64


@dataclass(frozen=True)
class StreamDelta:
    """More of a translation. All deltas of a stream joined are its text."""

    text: str


class Translator:
    """Translates texts from one language with one model.

    Args:
        engine: runs the model.
        tokenizer: the model's.
        source_language: BCP-47 code of the texts, by which sentences are found, and what is no
            sentence of it.
        limits: the largest request that is taken.

    Attributes:
        limits: the largest request that is taken.
        scorer: scores translations with the same model.
    """

    def __init__(
        self,
        engine: ServableEngine,
        tokenizer: Tokenizer,
        *,
        source_language: str = "en",
        limits: TranslatorLimits | None = None,
    ) -> None:
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
        self.scorer = PairScorer(engine, tokenizer, self._preparer, self.limits)

    async def translate(
        self,
        texts: Sequence[str],
        options: TranslateOptions | None = None,
        *,
        deadline: float | None = None,
        request_id: str = "",
        client: str = "",
    ) -> list[TextResult]:
        """Translate every text. Cancelling the task that waits here frees all its slots.

        Args:
            texts: what to translate; those in which there is nothing to translate come back as they
                are (`service.translation.verbatim`).
            options: how.
            deadline: `time.monotonic()` seconds after which the answer is worthless.
            request_id: names the request in logs.
            client: who asks.

        Returns:
            A result for each text, in order. One bad text (NUL, broken Unicode) or failed
            sentence does not touch the others.

        Raises:
            InvalidArgumentError: too many texts or characters, a bad option, or soft alignments
                that turn out too large altogether; names the field.
            FailedPreconditionError: alignments are asked for, and the model can't score.
            ResourceExhaustedError: the engine is full.
            DeadlineExceededError: the deadline passed first.
            UnavailableError: the engine does not serve.
        """
        options = options or TranslateOptions()
        await self._check_texts(texts, client)
        call = self._call(options, deadline, request_id, client)
        if options.return_alignments:
            await self._engine.prepare_scoring()
        try:
            drafts: list[Draft | TextError] = []
            async for prepared in self._preparer.prepare_all(
                texts, split_sentences=options.split_sentences, client=client
            ):
                if isinstance(prepared, PreparedText):
                    parts = await self._submitted(prepared, call)
                    drafts.append(Draft(prepared, parts, call.started_at))
                else:
                    drafts.append(prepared)
            if options.return_alignments:
                await self._submit_alignments(drafts, call, options.return_alignments)
            turns = CooperativeYield()
            return [
                await self._finished(draft, f"contents[{index}]", options, turns)
                for index, draft in enumerate(drafts)
            ]
        finally:
            call.close()

    async def stream(
        self,
        text: str,
        options: TranslateOptions | None = None,
        *,
        deadline: float | None = None,
        request_id: str = "",
        client: str = "",
    ) -> AsyncIterator[StreamDelta | TextResult]:
        """Translate one text and give it out while it grows.

        Its sentences are translated at the same time and given out in order. Arguments as for
        `translate`. Closing the iterator frees all slots.

        Yields:
            Deltas, which joined are exactly the text that `translate` returns, then the result.

        Raises:
            InternalError: the model failed.
            InvalidArgumentError: the text is bad or too long, or an option is; names the field.
            ResourceExhaustedError, DeadlineExceededError, UnavailableError: as `translate`.
        """
        options = options or TranslateOptions()
        options.check_streamable()
        self.limits.check_length("content", len(text))
        [length] = await self._preparer.lengths([text], client=client)
        self.limits.check_length("content", length, NORMALISED)
        call = self._call(options, deadline, request_id, client)
        try:
            prepared = await self._preparer.prepare_one(
                text, split_sentences=options.split_sentences, client=client
            )
            draft = Draft(prepared, [], call.started_at)
            deltas = []
            async for delta in self._deltas(prepared, call, draft):
                deltas.append(delta)
                yield StreamDelta(delta)
            yield draft.result("".join(deltas))
        except TextError as exc:
            raise InvalidArgumentError("content", str(exc)) from exc
        finally:
            call.close()

    async def _submitted(self, prepared: PreparedText, call: EngineCall) -> list[Part]:
        """Submit every piece of a text."""
        parts: list[Part] = []
        opening = prepared.opening
        for number, piece in enumerate(prepared.pieces, 1):
            if number % _PIECES_A_TURN == 0:
                await asyncio.sleep(0)
            parts.append(await call.submit(piece, opens=piece is opening))
        return parts

    async def _submit_alignments(
        self, drafts: Sequence[Draft | TextError], call: EngineCall, kind: AlignmentKind
    ) -> None:
        """Have each hypothesis scored once its search has ended, and beside the other searches."""
        weights = SoftWeights()
        for draft in drafts:
            for part in draft.parts if isinstance(draft, Draft) else ():
                if part.generation is None:
                    continue
                result = await part.generation.result()
                source_ids = part.generation.request.source_ids
                for hypothesis in result.hypotheses if result.error is None else ():
                    end = (self._tokenizer.eos_id,) if hypothesis.ended else ()
                    target_ids = (*hypothesis.token_ids, *end)
                    if kind == "soft":
                        weights.add(len(source_ids), len(target_ids))
                    part.scorings.append(await call.score(source_ids, target_ids, kind))

    def _call(
        self, options: TranslateOptions, deadline: float | None, request_id: str, client: str
    ) -> EngineCall:
        """What the sentences of one request share; refuses bad options, naming the field."""
        return EngineCall(
            self._engine,
            self._search_options(options),
            deadline=deadline,
            request_id=request_id,
            client=client,
            priority=options.priority,
            start_ids=self._tokenizer.target.start_ids,
        )

    async def _deltas(
        self, prepared: PreparedText, call: EngineCall, draft: Draft
    ) -> AsyncIterator[str]:
        """The text while it grows; fills `draft` with what is known about it."""
        waiting, opening = deque(prepared.pieces), prepared.opening
        in_flight: deque[Part] = deque()
        while waiting or in_flight:
            while waiting:
                part = call.try_submit(waiting[0], opens=waiting[0] is opening)
                if part is None:
                    break
                in_flight.append(part)
                waiting.popleft()
            part = in_flight.popleft()
            kept = part.piece.separator
            if part.generation is None:
                kept += part.piece.text
            if kept:
                yield kept
            if part.generation is None:
                continue
            text = self._detokenizer.stream()
            async for token_ids in part.generation:
                if delta := text.add(token_ids):
                    yield delta
            result = await part.generation.result()
            if result.error is not None:
                raise result.error
            draft.generated.append((part.generation, result))
            if delta := text.finish():
                yield delta

    async def _finished(
        self,
        draft: Draft | TextError,
        field: str,
        options: TranslateOptions,
        turns: CooperativeYield,
    ) -> TextResult:
        """Wait for all parts of a text and put them together."""
        if isinstance(draft, TextError):
            return TextResult("", None, error=InvalidArgumentError(field, str(draft)))
        texts = []
        error: InternalError | None = None
        for part in draft.parts:
            await turns.offer()
            texts.append(part.piece.separator)
            if part.generation is None:
                texts.append(part.piece.text)
                continue
            result = await part.generation.result()
            draft.generated.append((part.generation, result))
            if isinstance(result.error, InternalError):
                error = result.error
            elif result.error is not None:
                raise result.error
            elif options.returns_sentences:
                scored, error = await _scored(part, error)
                if error is None:
                    draft.sentences.append(
                        sentence_result(part.piece, result, self._tokenizer, options, scored)
                    )
            texts.append(self._tokenizer.target.decode(result.token_ids))
        return draft.result("" if error else "".join(texts), error)

    async def _check_texts(self, texts: Sequence[str], client: str) -> None:
        self.limits.check_count("contents", len(texts), "texts")
        names = [f"contents[{index}]" for index in range(len(texts))]
        self.limits.check_lengths("contents", names, [len(text) for text in texts])  # costs nothing
        lengths = await self._preparer.lengths(texts, client=client)
        self.limits.check_lengths("contents", names, lengths, NORMALISED)


async def _scored(
    part: Part, error: InternalError | None
) -> tuple[list[Hypothesis], InternalError | None]:
    """What scoring a part's hypotheses brought, and the error that the text has so far."""
    scored = []
    for scoring in part.scorings:
        result = await scoring.result()
        if isinstance(result.error, InternalError):
            error = result.error
        elif result.error is not None:
            raise result.error
        scored += result.hypotheses
    return scored, error
