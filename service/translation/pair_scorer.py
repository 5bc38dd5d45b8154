"""Scores the pairs of a request: the probabilities of given translations."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Unpack

from model.bundle.tokenizer import Tokenizer
from service.common.fairness import checkpoint
from service.domain.requests import AlignmentKind, Priority, SearchOptions
from service.engine.generation import Generation
from service.engine.interface import ServableEngine
from service.errors import DragomanError, InvalidArgumentError
from service.translation.alignments import (
    Alignment,
    SoftWeights,
    SourceToken,
    TargetToken,
    alignment_of,
    check_can_align,
    given_tokens,
    source_tokens,
)
from service.translation.engine_call import CallArguments, EngineCall, result_of
from service.translation.options import TranslatorLimits
from service.translation.preparation import TextError, TextPreparer

# A number, not a time, so that the engine gets the pairs of a usual request together.
_SIDES = ("source_text", "translated_text")

# The tokens of both sides, or the error of the pair.
TokenizedPair = tuple[tuple[int, ...], tuple[int, ...]] | InvalidArgumentError


@dataclass(frozen=True)
class ScoreOptions:
    """Options of scoring, and of its results.

    Attributes:
        priority: share of the model under load.
        return_tokens: whether to return the translation's tokens.
        return_alignments: kind of alignment to return, with the tokens of both sides; None for
            none.
    """

    priority: Priority = Priority.NORMAL
    return_tokens: bool = False
    return_alignments: AlignmentKind | None = None


@dataclass(frozen=True)
class PairResult:
    """The result of one pair.

    Attributes:
        log_probability: natural logarithm of the translation's probability, EOS included.
        num_source_tokens, num_target_tokens: number of tokens of each side, without EOS.
        tokens, source_tokens, alignment: tokens and alignment, if requested.
        error: reason why there is no score, or None; does not affect other pairs of the request.
        queue_seconds: time from the call until the model began to score the pair.
        compute_seconds: time from then until the score.
    """

    log_probability: float = 0.0
    num_source_tokens: int = 0
    num_target_tokens: int = 0
    tokens: Sequence[TargetToken] = ()
    source_tokens: Sequence[SourceToken] = ()
    alignment: Alignment | None = None
    error: DragomanError | None = None
    queue_seconds: float = 0.0
    compute_seconds: float = 0.0


class PairScorer:
    """Scores translations with one model.

    Args:
        engine: runs the model.
        tokenizer: the model's tokenizer.
        preparer: tokenizes texts.
        limits: limits of requests.
        can_align: whether the model has alignments.
    """

    def __init__(
        self,
        engine: ServableEngine,
        tokenizer: Tokenizer,
        preparer: TextPreparer,
        limits: TranslatorLimits,
        can_align: bool = True,
    ) -> None:
        self._can_align = can_align
        self._engine = engine
        self._tokenizer = tokenizer
        self._preparer = preparer
        self._limits = limits
        # Number of language tokens at the beginning of both sides, which don't count.
        self._num_hidden = tokenizer.num_hidden

    async def score(
        self,
        pairs: Sequence[tuple[str, str]],
        options: ScoreOptions | None = None,
        **shared: Unpack[CallArguments],
    ) -> list[PairResult]:
        """Score all pairs. Cancelling the awaiting task drops unfinished pairs.

        Args:
            pairs: texts and their translations, each as one sequence.
            options: options of scoring and of its results.
            shared: deadline, request id and client.

        Returns:
            A result for each pair, in order. A bad pair does not affect the others.

        Raises:
            InvalidArgumentError: too many pairs or characters, or soft alignments that are too
                large together; names the field.
            FailedPreconditionError: the model can't score, or can't align if that is requested.
            ResourceExhaustedError: the engine is full.
            DeadlineExceededError: the deadline passed first.
            UnavailableError: the engine does not serve.
        """
        options = options or ScoreOptions()
        if options.return_alignments:
            check_can_align(self._can_align)
        self._limits.check_count("pairs", len(pairs), "pairs")
        names = [f"pairs[{index}].{side}" for index in range(len(pairs)) for side in _SIDES]
        texts = [text for pair in pairs for text in pair]
        await self._preparer.check_lengths(self._limits, "pairs", names, texts)
        await self._engine.prepare_scoring()
        call = EngineCall(
            self._engine, SearchOptions(), options.priority, self._tokenizer, **shared
        )
        try:
            submitted: list[Generation | InvalidArgumentError] = []
            tokenized = self.tokenized(names, texts)
            if options.return_alignments == "soft":
                tokenized = _limit_weights(tokenized, self._num_hidden)
            async for item in tokenized:
                await checkpoint()
                if isinstance(item, InvalidArgumentError):
                    submitted.append(item)
                else:
                    request = call.score_request(*item, options.return_alignments)
                    submitted.append(await call.submit_score(request))
            results: list[PairResult] = []
            for pair, scoring in zip(pairs, submitted, strict=True):
                await checkpoint()
                results.append(await self._result(pair, scoring, options, call.started_at))
            return results
        finally:
            call.close()

    async def _result(
        self,
        pair: tuple[str, str],
        scoring: Generation | InvalidArgumentError,
        options: ScoreOptions,
        started_at: float,
    ) -> PairResult:
        if isinstance(scoring, InvalidArgumentError):
            return PairResult(error=scoring)
        result = await result_of(scoring)
        if result.error is not None:
            return PairResult(error=result.error)
        [scored] = result.hypotheses
        kind = options.return_alignments
        shows_tokens = options.return_tokens or kind is not None
        return PairResult(
            log_probability=scored.log_probability,
            num_source_tokens=len(scoring.request.source_ids) - self._num_hidden[0] - 1,
            num_target_tokens=len(scored.token_ids),
            tokens=given_tokens(pair[1], scored, self._tokenizer.target) if shows_tokens else (),
            source_tokens=source_tokens(pair[0], self._tokenizer) if kind else (),
            alignment=alignment_of(scored) if kind else None,
            queue_seconds=scoring.submitted_at - started_at + result.queue_seconds,
            compute_seconds=result.compute_seconds,
        )

    async def tokenized(
        self, names: Sequence[str], texts: Sequence[str]
    ) -> AsyncIterator[TokenizedPair]:
        """Yield the tokens of both sides of each pair, with EOS, or the error of the pair.

        Args:
            names: fields of the texts, for errors.
            texts: a text, its translation, the next text, and so on.
        """
        limits = self._engine.limits
        most = (limits.max_source_positions, limits.max_target_positions)
        sides: list[tuple[int, ...]] = []
        error: InvalidArgumentError | None = None
        number = 0
        async for ids in self._preparer.encode_pairs(texts):
            side = number % 2
            try:
                sides.append(self._checked(ids, is_source=side == 0, most=most[side]))
            except TextError as exc:
                error = error or InvalidArgumentError(names[number], str(exc))
            number += 1
            if side == 1:
                yield error or (sides[0], sides[1])
                sides, error = [], None

    def _checked(
        self, ids: Sequence[int] | TextError, *, is_source: bool, most: int
    ) -> tuple[int, ...]:
        """Check the tokens of one side, and add language tokens and EOS.

        Raises:
            TextError: the text has an error, is blank or has too many tokens.
        """
        if isinstance(ids, TextError):
            raise ids
        if is_source and not ids:
            raise TextError("is blank: there is nothing to compare a translation with")
        start = () if is_source else self._tokenizer.target.start_ids
        hidden = self._num_hidden[0] if is_source else self._num_hidden[1]
        length = len(start) + len(ids) + 1 - hidden
        if length > most - hidden:
            raise TextError(
                f"{length:,} tokens, end-of-sentence included; the model's limit is "
                f"{most - hidden:,}"
            )
        return (*start, *ids, self._tokenizer.eos_id)


async def _limit_weights(
    pairs: AsyncIterator[TokenizedPair], num_hidden: tuple[int, int]
) -> AsyncIterator[TokenizedPair]:
    """Yield the same pairs after checking the limit of soft alignments for all of them."""
    items: list[TokenizedPair] = []
    weights = SoftWeights()
    async for item in pairs:
        if not isinstance(item, InvalidArgumentError):
            weights.add(len(item[0]) - num_hidden[0], len(item[1]) - num_hidden[1])
        items.append(item)
    for item in items:
        yield item
