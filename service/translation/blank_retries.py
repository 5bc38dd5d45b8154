"""Second attempts for sentences with a translation without words: with a capital first letter.

Some models were trained on few single words in lower case, such as "on", and write nothing for
them.
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
        generation: generation of its tokens.
        result: its result, without the language tokens at the beginning.
        text: the translation, which may have no words either.
    """

    generation: Generation
    result: GenerationResult
    text: str

    @property
    def is_better(self) -> bool:
        """Whether it replaces the first translation, either by its text or by its error."""
        return self.result.error is not None or has_word(self.text)


def has_word(text: str) -> bool:
    """Whether a text has a letter or a digit."""
    return any(map(str.isalnum, text))


def capitalised(text: str) -> str:
    """The text with a capital first letter."""
    for index, character in enumerate(text):
        if character.isalpha():
            return text[:index] + character.title() + text[index + 1 :]
    return text


class BlankRetries:
    """The second translations of a request's sentences.

    When the first sentence needs one, those of all texts are submitted, so that they share the
    batch. A request without such a sentence costs nothing.

    Args:
        tokenizer: the model's tokenizer for one direction.
        preparer: tokenizes texts for the model.
        call: engine call of the request.
        texts: texts with all sentences submitted; empty for a stream.
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
        """Whether a sentence has to be translated again.

        Args:
            generation: generation of its translation. With a prefix of the client, it is never due.
            result: its result, without the language tokens at the beginning.
            text: the translation.
        """
        return (
            not has_word(text)
            and result.finish_reason is FinishReason.EOS
            and not self.has_prefix(generation)
        )

    def has_prefix(self, generation: Generation) -> bool:
        """Whether the request gave the beginning of a translation."""
        return len(generation.request.options.prefix_ids) > self._tokenizer.num_hidden[1]

    async def of(self, generation: Generation) -> Retry | None:
        """The second translation of a sentence; None if the sentence begins with a capital.

        Args:
            generation: generation of the first translation, which is due.
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
            for submitted in text.submitted if isinstance(text, PendingText) else ():
                await checkpoint()
                if (generation := submitted.generation) is None:
                    continue
                result = await self._result(generation)
                if self.is_due(generation, result, self._text(result)):
                    await self._submit(generation)

    async def _submit(self, generation: Generation) -> None:
        # The tokens that the model read: with a pivot language, not those of the original sentence.
        hidden = self._tokenizer.num_hidden[0]
        text = self._tokenizer.decode(generation.request.source_ids[hidden:])
        self._submitted[id(generation)] = None
        if (changed := capitalised(text)) == text:
            return
        sentences = self._preparer.prepare_sentence("", changed).sentences
        if len(sentences) == 1:
            self._submitted[id(generation)] = (await self._call.submit(sentences[0])).generation

    async def _result(self, generation: Generation) -> GenerationResult:
        return (await result_of(generation)).without(self._tokenizer.num_hidden[1])

    def _text(self, result: GenerationResult) -> str:
        return self._tokenizer.target.decode(result.token_ids)
