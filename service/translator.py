"""One request's story: texts, pieces, tokens, the engine, tokens, texts."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from model.tokenizer import Tokenizer
from service.call import Call, Part
from service.detokenizer import Detokenizer
from service.engine import Engine
from service.errors import InternalError, InvalidArgumentError
from service.options import TranslateOptions
from service.preparation import PreparedText, TextError, TextPreparer
from service.text_results import Draft, TextResult, sentence_result

# How many pieces to submit, or to put together, before the event loop gets a turn.
_PIECES_A_TURN = 256
_NORMALISED = " after normalisation (NFKC)"


@dataclass(frozen=True)
class TranslatorLimits:
    """The largest request that is taken.

    Attributes:
        max_texts: texts in one request.
        max_characters: characters (code points) in one text; also after normalisation (NFKC), by
            which a character can become 18.
        max_request_characters: characters in all texts of one request, likewise.
    """

    max_texts: int = 1024
    max_characters: int = 100_000
    max_request_characters: int = 1_000_000


@dataclass(frozen=True)
class StreamDelta:
    """More of a translation. All deltas of a stream joined are its text."""

    text: str


class Translator:
    """Translates texts from one language with one model.

    Args:
        engine: runs the model.
        tokenizer: the model's.
        source_language: BCP-47 code of the texts, by which sentences are found.
        limits: the largest request that is taken.
    """

    def __init__(
        self,
        engine: Engine,
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
        self._detokenizer = Detokenizer(tokenizer)

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
            texts: what to translate; blank ones come back as they are.
            options: how.
            deadline: `time.monotonic()` seconds after which the answer is worthless.
            request_id: names the request in logs.
            client: who asks.

        Returns:
            A result for each text, in order. One bad text (NUL, broken Unicode) or failed
            sentence does not touch the others.

        Raises:
            InvalidArgumentError: too many texts or characters, or a bad option; names the field.
            ResourceExhaustedError: the engine is full.
            DeadlineExceededError: the deadline passed first.
            UnavailableError: the engine does not serve.
        """
        options = options or TranslateOptions()
        await self._check_texts(texts)
        call = self._call(options, deadline, request_id, client)
        try:
            drafts: list[Draft | TextError] = []
            async for prepared in self._preparer.prepare_all(
                texts, split_sentences=options.split_sentences
            ):
                if isinstance(prepared, PreparedText):
                    parts = await self._submitted(prepared, call)
                    drafts.append(Draft(prepared, parts, call.started_at))
                else:
                    drafts.append(prepared)
            return [
                await self._finished(draft, f"contents[{index}]", options)
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
        self._check_length("content", len(text))
        [length] = await self._preparer.lengths([text])
        self._check_length("content", length, _NORMALISED)
        call = self._call(options, deadline, request_id, client)
        try:
            prepared = await self._preparer.prepare_one(
                text, split_sentences=options.split_sentences
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

    async def _submitted(self, prepared: PreparedText, call: Call) -> list[Part]:
        """Submit every piece of a text."""
        parts: list[Part] = []
        opening = prepared.opening
        for number, piece in enumerate(prepared.pieces, 1):
            if number % _PIECES_A_TURN == 0:
                await asyncio.sleep(0)
            parts.append(await call.submit(piece, opens=piece is opening))
        return parts

    def _call(
        self, options: TranslateOptions, deadline: float | None, request_id: str, client: str
    ) -> Call:
        """What the sentences of one request share; refuses bad options, naming the field."""
        return Call(
            self._engine,
            options.search_options(self._engine.limits, self._tokenizer),
            deadline=deadline,
            request_id=request_id,
            client=client,
            priority=options.priority,
        )

    async def _deltas(self, prepared: PreparedText, call: Call, draft: Draft) -> AsyncIterator[str]:
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
        self, draft: Draft | TextError, field: str, options: TranslateOptions
    ) -> TextResult:
        """Wait for all parts of a text and put them together."""
        if isinstance(draft, TextError):
            return TextResult("", None, error=InvalidArgumentError(field, str(draft)))
        texts = []
        error: InternalError | None = None
        for number, part in enumerate(draft.parts, 1):
            if number % _PIECES_A_TURN == 0:
                await asyncio.sleep(0)
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
                draft.sentences.append(
                    sentence_result(
                        part.piece, result, self._tokenizer, with_tokens=options.return_tokens
                    )
                )
            texts.append(self._tokenizer.decode(result.token_ids))
        return draft.result("" if error else "".join(texts), error)

    async def _check_texts(self, texts: Sequence[str]) -> None:
        if len(texts) > self.limits.max_texts:
            raise InvalidArgumentError(
                "contents", f"{len(texts):,} texts, the limit is {self.limits.max_texts:,}"
            )
        self._check_lengths([len(text) for text in texts])  # costs nothing
        self._check_lengths(await self._preparer.lengths(texts), _NORMALISED)

    def _check_lengths(self, lengths: Sequence[int], note: str = "") -> None:
        for index, length in enumerate(lengths):
            self._check_length(f"contents[{index}]", length, note)
        total, limit = sum(lengths), self.limits.max_request_characters
        if total > limit:
            raise InvalidArgumentError(
                "contents", f"{total:,} characters{note} in all texts, the limit is {limit:,}"
            )

    def _check_length(self, field: str, length: int, note: str = "") -> None:
        limit = self.limits.max_characters
        if length > limit:
            raise InvalidArgumentError(
                field, f"{length:,} characters{note}, the limit is {limit:,}"
            )
