"""Groups sentences, so that a shared store of results is asked for many at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

from service.translation.engine_call import EngineCall, OpeningSentence, SubmittedSentence
from service.translation.preparation import PreparedText, TextError

# Sentences in a group: one round trip takes about as long as the translation of one.
_TOGETHER = 128


def looked_up(
    texts: AsyncIterator[PreparedText | TextError], call: EngineCall
) -> AsyncIterator[PreparedText | TextError]:
    """The same texts, after the shared store was asked for their sentences, if there is one."""
    return _looked_up(texts, call) if call.asks_store else texts


async def _looked_up(
    texts: AsyncIterator[PreparedText | TextError], call: EngineCall
) -> AsyncIterator[PreparedText | TextError]:
    together: list[PreparedText | TextError] = []
    num_sentences = 0
    async for text in texts:
        together.append(text)
        num_sentences += len(text.sentences) if isinstance(text, PreparedText) else 0
        if num_sentences >= _TOGETHER:
            await look_up(together, call)
            for each in together:
                yield each
            together, num_sentences = [], 0
    await look_up(together, call)
    for each in together:
        yield each


async def look_up(texts: Iterable[PreparedText | TextError], call: EngineCall) -> None:
    """Ask the shared store for the sentences of some texts, if there is one."""
    if not call.asks_store:
        return
    sentences: list[OpeningSentence] = []
    for text in texts:
        if isinstance(text, PreparedText):
            opening = text.opening
            sentences += ((sentence, sentence is opening) for sentence in text.sentences)
    for first in range(0, len(sentences), _TOGETHER):
        await call.look_up(sentences[first : first + _TOGETHER])


async def ended_together(
    submitted: Iterable[SubmittedSentence],
) -> AsyncIterator[list[SubmittedSentence]]:
    """Yield sentences in order when they end: together, if they have ended already."""
    together: list[SubmittedSentence] = []
    for each in submitted:
        is_running = each.generation is not None and each.generation.ended_as is None
        if together and (is_running or len(together) == _TOGETHER):
            yield together
            together = []
        if each.generation is not None:
            await each.generation.result()
        together.append(each)
    if together:
        yield together
