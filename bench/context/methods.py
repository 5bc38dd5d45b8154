"""Ways to translate a sentence with the ones before it, through a server's public interface."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sentencex

from dragoman import AsyncClient, Search, Translation

Document = Sequence[str]

# Calls in flight: two lanes' rows.
_MAX_CALLS = 64


@dataclass(frozen=True)
class ContextRun:
    """Documents translated in one way.

    Attributes:
        documents: the translation of each sentence of each document.
        num_fallbacks: sentences with others before them that were translated alone: the joint
            translation could not be cut, or nothing fitted beside them.
        num_source_tokens: encoded, contexts included.
        num_steps: of the decoder, forced tokens included.
        seconds: of the whole run.
    """

    documents: list[list[str]]
    num_fallbacks: int
    num_source_tokens: int
    num_steps: int
    seconds: float


class ContextMethods:
    """Translates documents in several ways.

    Args:
        client: of a server.
        source, target: language codes.
    """

    def __init__(self, client: AsyncClient, source: str, target: str) -> None:
        self._client = client
        self._names: dict[str, Any] = {"source": source, "target": target}
        self._target = target
        self._calls = asyncio.Semaphore(_MAX_CALLS)
        self._num_fallbacks = self._num_source_tokens = self._num_steps = 0

    async def alone(self, documents: Sequence[Document]) -> ContextRun:
        """Each sentence without the others."""

        async def translate(document: Document) -> list[str]:
            return list(await asyncio.gather(*map(self._single, document)))

        return await self._each(translate, documents)

    async def joint(self, documents: Sequence[Document], count: int) -> ContextRun:
        """Each sentence with up to `count` before it in one piece; the translation is cut.

        It is cut where as many German sentences end as there are English ones before. Where the
        numbers of sentences differ, the sentence is translated alone.
        """

        async def translate(document: Document) -> list[str]:
            sentences = range(len(document))
            return list(await asyncio.gather(*(self._cut(document, i, count) for i in sentences)))

        return await self._each(translate, documents)

    async def prefix(self, documents: Sequence[Document], count: int) -> ContextRun:
        """Each sentence with up to `count` before it, whose translations are given as a prefix."""

        async def translate(document: Document) -> list[str]:
            done: list[str] = []
            for index in range(len(document)):
                done.append(await self._after(document, done, index, count))
            return done

        return await self._each(translate, documents)

    async def _each(
        self, translate: Callable[[Document], Awaitable[list[str]]], documents: Sequence[Document]
    ) -> ContextRun:
        self._num_fallbacks = self._num_source_tokens = self._num_steps = 0
        begun = time.perf_counter()
        translated = await asyncio.gather(*map(translate, documents))
        return ContextRun(
            list(translated),
            self._num_fallbacks,
            self._num_source_tokens,
            self._num_steps,
            time.perf_counter() - begun,
        )

    async def _after(self, document: Document, done: Sequence[str], index: int, count: int) -> str:
        for first in range(max(0, index - count), index):
            before = " ".join(done[first:index])
            translation = await self._whole(" ".join(document[first : index + 1]), before)
            if translation is not None and translation.startswith(before):
                return translation[len(before) :].strip()
        return await self._fallback(document, index, count)

    async def _cut(self, document: Document, index: int, count: int) -> str:
        own = self._num_sentences(document[index])
        for first in range(max(0, index - count), index):
            translation = await self._whole(" ".join(document[first : index + 1]))
            if translation is None:
                continue
            found = _sentences(translation, self._target)
            if len(found) == own + sum(map(self._num_sentences, document[first:index])):
                return " ".join(found[-own:])
            break
        return await self._fallback(document, index, count)

    async def _fallback(self, document: Document, index: int, count: int) -> str:
        if index and count:
            self._num_fallbacks += 1
        return await self._single(document[index])

    async def _single(self, text: str) -> str:
        return (await self._translate(text)).text

    async def _whole(self, text: str, prefix: str = "") -> str | None:
        """A text in one piece; None if the model can't read it at once."""
        translation = await self._translate(text, prefix)
        return None if translation.was_split else translation.text

    async def _translate(self, text: str, prefix: str = "") -> Translation:
        search = Search(beam_size=1, target_prefix=prefix or None)
        async with self._calls:
            batch = await self._client.translate(
                [text], split_sentences=False, search=search, **self._names
            )
        [translation] = batch.translations
        if translation.error is not None:
            raise translation.error
        self._num_source_tokens += translation.num_source_tokens
        self._num_steps += translation.num_target_tokens
        return translation

    def _num_sentences(self, text: str) -> int:
        return len(_sentences(text, self._names["source"]))


def _sentences(text: str, language: str) -> list[str]:
    return [each.strip() for each in sentencex.segment(language, text) if each.strip()]
