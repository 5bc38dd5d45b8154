"""The second translations of sentences: when they are submitted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from model.bundle.tokenizer import Tokenizer
from service.domain.requests import (
    FinishReason,
    GenerationRequest,
    GenerationResult,
)
from service.translation.blank_retries import BlankRetries
from service.translation.engine_call import SubmittedSentence
from service.translation.preparation import PreparedText, TextPreparer
from service.translation.results import PendingText
from service.translation.segmentation import SourceSentence


@dataclass
class FakeGeneration:
    """A generation that ends when the test says so."""

    request: GenerationRequest
    ended: asyncio.Future[GenerationResult]

    async def result(self) -> GenerationResult:
        return await self.ended


class FakeCall:
    """Collects what is submitted; all of it ends together, with the source as its translation."""

    def __init__(self, num_expected: int) -> None:
        self.generations: list[FakeGeneration] = []
        self._num_expected = num_expected

    async def submit(self, piece: SourceSentence) -> SubmittedSentence:
        assert piece.source_ids is not None
        generation = generation_of(piece.source_ids)
        self.generations.append(generation)
        if len(self.generations) == self._num_expected:
            for each in self.generations:
                each.ended.set_result(result([*each.request.source_ids[:-1]]))
        return SubmittedSentence(piece, cast(Any, generation))


def generation_of(source_ids: Sequence[int]) -> FakeGeneration:
    request = GenerationRequest(tuple(source_ids))
    return FakeGeneration(request, asyncio.get_running_loop().create_future())


def result(token_ids: list[int]) -> GenerationResult:
    return GenerationResult(token_ids, FinishReason.EOS)


async def test_those_of_all_texts_are_submitted_before_one_has_ended(tokenizer: Tokenizer) -> None:
    """So that they share the batch; otherwise the first would be waited for without an end."""
    preparer = TextPreparer(tokenizer, "en", 64)
    texts = []
    for word in ("on", "Fine.", "of", "at"):
        [piece] = preparer.prepare(word, split_sentences=True).sentences
        assert piece.source_ids is not None
        first = generation_of(piece.source_ids)
        # The model has written something for one of them only.
        first.ended.set_result(result([*piece.source_ids[:-1]] if word == "Fine." else []))
        pieces = [SubmittedSentence(piece, cast(Any, first))]
        texts.append(PendingText(PreparedText([piece], False), pieces, 0.0))
    call = FakeCall(num_expected=3)
    retries = BlankRetries(tokenizer, preparer, cast(Any, call), texts)
    first_blank = texts[0].submitted[0].generation
    assert first_blank is not None
    async with asyncio.timeout(60):
        retry = await retries.of(first_blank)
    assert retry is not None
    assert (retry.text, retry.is_better) == ("On", True)
    assert len(call.generations) == 3
