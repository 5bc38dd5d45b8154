"""Clients of a Dragoman server: `Client` for threads, `AsyncClient` for asyncio.

    from dragoman.client import Client

    with Client("127.0.0.1:50051") as client:
        batch = client.translate(["A dog is running."], source="en", target="de")
        print(batch.translations[0].text)

An argument of the wrong type raises TypeError, and one that no server accepts raises ValueError.

Both retry within the timeout: calls that failed with UNAVAILABLE, with backoff, and calls that an
overloaded server refused, after the time that it gives. They balance their calls over every address
that the name resolves to (`dns:///dragoman.example:50051`). Every other failure is a
`TranslationError`.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Generator, Sequence
from typing import Unpack

from dragoman.arguments import (
    AttentionArguments,
    RequestArguments,
    ScoreArguments,
    TextArguments,
    TranslateArguments,
)
from dragoman.memories import MemoryImport, MemoryInfo, MemoryMatch
from dragoman.memory_methods import AsyncMemoryMethods, MemoryMethods
from dragoman.models import LanguageGroup, ModelInfo, ModelLimits
from dragoman.options import Glossary, Sampling, Search, VerbatimKinds
from dragoman.results import (
    Alignment,
    AttentionMap,
    AttentionView,
    DetectedLanguage,
    DocumentTranslation,
    FinishReason,
    Hypothesis,
    PairScore,
    ScoreBatch,
    Sentence,
    SourceToken,
    StreamEnd,
    TermUse,
    Token,
    Translation,
    TranslationBatch,
    TranslationError,
    TranslationWarning,
)
from dragoman.tls import Tls

__all__ = [
    "Alignment",
    "AsyncClient",
    "AttentionMap",
    "AttentionView",
    "Client",
    "DetectedLanguage",
    "DocumentTranslation",
    "FinishReason",
    "Glossary",
    "Hypothesis",
    "LanguageGroup",
    "MemoryImport",
    "MemoryInfo",
    "MemoryMatch",
    "ModelInfo",
    "ModelLimits",
    "PairScore",
    "Sampling",
    "ScoreBatch",
    "Search",
    "Sentence",
    "SourceToken",
    "StreamEnd",
    "TermUse",
    "Tls",
    "Token",
    "Translation",
    "TranslationBatch",
    "TranslationError",
    "TranslationWarning",
    "VerbatimKinds",
]


class Client(MemoryMethods):
    """A client for threaded programs. All threads may share one.

    Args:
        server: "HOST:PORT", or any name that gRPC resolves, such as "dns:///HOST:PORT".
        timeout: seconds for a call, unless the call has a timeout of its own; None for no limit.
        client_id: names the client: clients get equal shares of a busy server. By default a client
            is its address. With an API key, which names the client, ids divide the key's share.
        patient: whether to retry, within the timeout, calls that an overloaded server refused.
        api_key: an API key, or a token, for a server that needs one. There is a warning
            (UserWarning) if it goes to another machine without `tls`.
        tls: TLS options for a server that speaks TLS; None for plain text.
    """

    def translate(
        self, texts: Sequence[str], **arguments: Unpack[TranslateArguments]
    ) -> TranslationBatch:
        """Translate `texts`. The server chooses the arguments that are left out.

        A bad text does not fail the others: check each translation's `error`. The same holds for a
        text that is not Unicode (with a lone surrogate), which the client can't send.

        Args:
            texts: each a word, a sentence, or pages.
            arguments: see `TranslateArguments`.

        Raises:
            TranslationError: the whole call failed.
        """
        return self._make(self._translate_call(texts, arguments))

    def stream(
        self, text: str, **arguments: Unpack[TextArguments]
    ) -> Generator[str | StreamEnd, None, None]:
        """Translate one text, and yield its pieces as they are made, then a `StreamEnd`.

        Closing the iterator cancels the call.

        Args:
            text: a word, a sentence, or pages.
            arguments: see `TextArguments`.

        Raises:
            TranslationError: the call failed, perhaps after some pieces.
        """
        yield from self._events(self._stream_call(text, arguments))

    def score(
        self, pairs: Sequence[tuple[str, str]], **arguments: Unpack[ScoreArguments]
    ) -> ScoreBatch:
        """Compute how probable given translations are.

        A bad pair does not fail the others: check each score's `error`.

        Args:
            pairs: texts and their translations; each passed to the model in one piece.
            arguments: see `ScoreArguments`.

        Raises:
            TranslationError: the whole call failed.
        """
        return self._make(self._score_call(pairs, arguments))

    def attention(
        self, source_text: str, translation: str = "", **arguments: Unpack[AttentionArguments]
    ) -> AttentionView:
        """Fetch the attention weights of a text and its translation.

        Args:
            source_text: passed to the model in one piece.
            translation: passed in one piece, too; "" to have the model translate.
            arguments: see `AttentionArguments`.

        Raises:
            TranslationError: the call failed.
        """
        return self._make(self._attention_call(source_text, translation, arguments))

    def translate_document(
        self, content: bytes, file_name: str, **arguments: Unpack[TextArguments]
    ) -> DocumentTranslation:
        """Translate a document, whose structure is kept.

        Args:
            content: the file.
            file_name: its name, with the extension that gives the format.
            arguments: see `TextArguments`.

        Raises:
            TranslationError: the call failed, because of a part of the document perhaps.
        """
        return self._make(self._document_call(content, file_name, arguments))

    def detect(
        self, texts: Sequence[str], **arguments: Unpack[RequestArguments]
    ) -> list[tuple[DetectedLanguage, ...]]:
        """Detect the languages of `texts`, whether the server translates from them or not.

        Args:
            texts: each a word, a sentence, or pages.
            arguments: see `RequestArguments`.

        Returns:
            For each text, at most five languages, the likeliest first; none if the text shows
            nothing of its language.

        Raises:
            TranslationError: the call failed.
        """
        return self._make(self._detect_call(texts, arguments))

    def list_models(self, *, timeout: float | None = None) -> list[ModelInfo]:
        """The server's models, the preferred one first.

        Raises:
            TranslationError: the call failed.
        """
        return self._make(self._list_models_call(timeout))

    def list_languages(self, *, timeout: float | None = None) -> list[LanguageGroup]:
        """The server's directions, those between the same languages together.

        Raises:
            TranslationError: the call failed.
        """
        return self._make(self._list_languages_call(timeout))

    def get_model(self, name: str, *, timeout: float | None = None) -> ModelInfo:
        """The description of one model.

        Raises:
            TranslationError: NOT_FOUND, or the call failed.
        """
        return self._make(self._get_model_call(name, timeout))

    def close(self) -> None:
        """Close the connection; calls in progress are cancelled."""
        self._channel.close()

    def __enter__(self) -> Client:
        """The client itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close."""
        self.close()


class AsyncClient(AsyncMemoryMethods):
    """A client for asyncio. Arguments and methods are those of `Client`."""

    async def translate(
        self, texts: Sequence[str], **arguments: Unpack[TranslateArguments]
    ) -> TranslationBatch:
        """See `Client.translate`. Cancelling the task cancels the call.

        Raises:
            TranslationError: the whole call failed.
        """
        return await self._make(self._translate_call(texts, arguments))

    async def stream(
        self, text: str, **arguments: Unpack[TextArguments]
    ) -> AsyncGenerator[str | StreamEnd, None]:
        """See `Client.stream`.

        Raises:
            TranslationError: the call failed, perhaps after some pieces.
        """
        events = self._events(self._stream_call(text, arguments))
        async with contextlib.aclosing(events):
            async for event in events:
                yield event

    async def score(
        self, pairs: Sequence[tuple[str, str]], **arguments: Unpack[ScoreArguments]
    ) -> ScoreBatch:
        """See `Client.score`. Cancelling the task cancels the call.

        Raises:
            TranslationError: the whole call failed.
        """
        return await self._make(self._score_call(pairs, arguments))

    async def attention(
        self, source_text: str, translation: str = "", **arguments: Unpack[AttentionArguments]
    ) -> AttentionView:
        """See `Client.attention`. Cancelling the task cancels the call.

        Raises:
            TranslationError: the call failed.
        """
        return await self._make(self._attention_call(source_text, translation, arguments))

    async def translate_document(
        self, content: bytes, file_name: str, **arguments: Unpack[TextArguments]
    ) -> DocumentTranslation:
        """See `Client.translate_document`.

        Raises:
            TranslationError: the call failed.
        """
        return await self._make(self._document_call(content, file_name, arguments))

    async def detect(
        self, texts: Sequence[str], **arguments: Unpack[RequestArguments]
    ) -> list[tuple[DetectedLanguage, ...]]:
        """See `Client.detect`.

        Raises:
            TranslationError: the call failed.
        """
        return await self._make(self._detect_call(texts, arguments))

    async def list_models(self, *, timeout: float | None = None) -> list[ModelInfo]:
        """See `Client.list_models`.

        Raises:
            TranslationError: the call failed.
        """
        return await self._make(self._list_models_call(timeout))

    async def list_languages(self, *, timeout: float | None = None) -> list[LanguageGroup]:
        """See `Client.list_languages`.

        Raises:
            TranslationError: the call failed.
        """
        return await self._make(self._list_languages_call(timeout))

    async def get_model(self, name: str, *, timeout: float | None = None) -> ModelInfo:
        """See `Client.get_model`.

        Raises:
            TranslationError: NOT_FOUND, or the call failed.
        """
        return await self._make(self._get_model_call(name, timeout))

    async def close(self) -> None:
        """Close the connection; calls in progress are cancelled."""
        await self._channel.close()

    async def __aenter__(self) -> AsyncClient:
        """The client itself."""
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close."""
        await self.close()
