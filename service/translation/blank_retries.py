"""Translates a sentence again whose translation has no word: with a capital first letter.

Some models have read few short words alone in lower case, such as "on", and write nothing for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from model.bundle.tokenizer import Tokenizer
from service.common.fairness import checkpoint
from service.domain.requests import FinishReason, GenerationResult
from service.engine.generation import Generation
from service.translation.engine_call import EngineCall, result_of
from service.translation.preparation import TextError, TextPreparer
from service.translation.results import PendingText


@dataclass(frozen=True)
class Retry:
    """A second translation of a sentence.

    Attributes:
        generation: of its tokens.
        result: its result, without what every translation begins with.
        text: the translation; without a word if that is blank too.
    """

    generation: Generation
    result: GenerationResult
    text: str

    @property
    def is_better(self) -> bool:
        """Whether it takes the place of the first translation; so does its error."""
        return self.result.error is not None or has_word(self.text)


def has_word(text: str) -> bool:
    """Whether there is a letter or a digit: usually the first character is one."""
    return any(map(str.isalnum, text))


def capitalised(text: str) -> str:
    """The text with its first letter as a capital."""
    for index, character in enumerate(text):
        if character.isalpha():
            return text[:index] + character.title() + text[index + 1 :]
    return text


class BlankRetries:
    """The second translations of a request's sentences.

    With the first sentence that needs one, those of all texts are submitted, so that they share the
    batch. A request without such a sentence costs nothing.

    Args:
        tokenizer: the model's, for one direction.
        preparer: tokenizes for the model.
        call: of the request.
        texts: whose pieces are all submitted; none of a stream.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        preparer: TextPreparer,
        call: EngineCall,
        texts: Sequence[PendingText | TextError] = (),
    ) -> None:
        self._tokenizer = tokenizer
        self._preparer = preparer
        self._call = call
        self._texts = texts
        # By the identity of the first translation's generation.
        self._submitted: dict[int, Generation | None] = {}

    def is_due(self, generation: Generation, result: GenerationResult, text: str) -> bool:
        """Whether a sentence is to be translated again.

        Args:
            generation: of its translation. What begins as the client said is the model's own.
            result: of it, without what every translation begins with.
            text: the translation.
        """
        return (
            not has_word(text)
            and result.finish_reason is FinishReason.EOS
            and not self.has_prefix(generation)
        )

    def has_prefix(self, generation: Generation) -> bool:
        """Whether the beginning of a translation was given."""
        return len(generation.request.options.prefix_ids) > self._tokenizer.num_hidden[1]

    async def of(self, generation: Generation) -> Retry | None:
        """The second translation of a sentence; None if it begins with a capital already.

        Args:
            generation: of the first one, which is due.
        """
        if id(generation) not in self._submitted:
            await self._submit_all()
        if id(generation) not in self._submitted:
            await self._submit(generation)
        second = self._submitted[id(generation)]
        if second is None:
            return None
        result = await self._result(second)
        return Retry(second, result, self._text(result))

    async def _submit_all(self) -> None:
        texts, self._texts = self._texts, ()
        for text in texts:
            for submitted in text.pieces if isinstance(text, PendingText) else ():
                await checkpoint()
                if (generation := submitted.generation) is None:
                    continue
                result = await self._result(generation)
                if self.is_due(generation, result, self._text(result)):
                    await self._submit(generation)

    async def _submit(self, generation: Generation) -> None:
        # What the model read: with a third language, that is not the text's own sentence.
        hidden = self._tokenizer.num_hidden[0]
        text = self._tokenizer.decode(generation.request.source_ids[hidden:])
        self._submitted[id(generation)] = None
        if (changed := capitalised(text)) == text:
            return
        pieces = self._preparer.prepare_sentence("", changed).pieces
        if len(pieces) == 1:
            self._submitted[id(generation)] = (await self._call.submit(pieces[0])).generation

    async def _result(self, generation: Generation) -> GenerationResult:
        return (await result_of(generation)).without(self._tokenizer.num_hidden[1])

    def _text(self, result: GenerationResult) -> str:
        return self._tokenizer.target.decode(result.token_ids)
