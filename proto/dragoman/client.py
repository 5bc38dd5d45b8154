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

import asyncio
import time
from collections.abc import AsyncGenerator, Generator, Sequence
from typing import TypeVar

import grpc

from dragoman import requests
from dragoman.base_client import BaseClient, PreparedCall
from dragoman.options import Glossary, Sampling, Search, VerbatimKinds
from dragoman.results import (
    Alignment,
    AttentionMap,
    AttentionView,
    DetectedLanguage,
    DocumentTranslation,
    FinishReason,
    Hypothesis,
    LanguageGroup,
    ModelInfo,
    ModelLimits,
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
    "VerbatimKinds",
]

T = TypeVar("T")


class Client(BaseClient):
    """A client for threaded programs. All threads may share one.

    Args:
        server: "HOST:PORT", or any name that gRPC resolves, such as "dns:///HOST:PORT".
        timeout: seconds for a call, unless the call has a timeout of its own; None for no limit.
        client_id: names the client: clients get equal shares of a busy server. By default a client
            is its address. With an API key, which names the client, ids divide the key's share.
        patient: whether to retry, within the timeout, calls that an overloaded server refused.
        api_key: an API key, or a token, for a server that needs one. There is a warning
            (UserWarning) if it goes to another machine without `tls`.
        tls: how to connect to a server that speaks TLS; None for plain text.
    """

    _grpc = grpc

    def translate(
        self,
        texts: Sequence[str],
        *,
        source: str = "",
        target: str = "",
        model: str = "",
        max_new_tokens: int | None = None,
        split_sentences: bool | None = None,
        search: Search | None = None,
        priority: str | None = None,
        allow_pivot: bool | None = None,
        glossary: Glossary | None = None,
        verbatim: VerbatimKinds | None = None,
        adapt_letter_case: bool | None = None,
        num_hypotheses: int | None = None,
        return_tokens: bool = False,
        return_alignments: str | None = None,
        mime_type: str = "",
        ignore_tags: Sequence[str] = (),
        timeout: float | None = None,
        request_id: str = "",
    ) -> TranslationBatch:
        """Translate `texts`. The server chooses the arguments that are left out.

        A bad text does not fail the others: check each translation's `error`. The same holds for a
        text that is not Unicode (with a lone surrogate), which the client can't send.

        Args:
            texts: each a word, a sentence, or pages.
            source: BCP-47 code of the texts' language, such as "en"; "auto" detects the language of
                each text.
            target: BCP-47 code of the language to translate into, such as "de".
            model: a name from `list_models`.
            max_new_tokens: token limit of each sentence.
            split_sentences: False passes each text to the model in one piece.
            search: how to search; by default greedily.
            priority: "low", "normal" or "high": the share of the model while others wait.
            allow_pivot: False fails the call, with NOT_FOUND, instead of translating through a
                third language.
            glossary: terms and the translations that they are to have.
            verbatim: what the translation keeps as it is in the text; by default all kinds.
            adapt_letter_case: False leaves sentences in CAPITALS and Title Case to the model.
            num_hypotheses: number of translations of each sentence to return in `sentences`.
            return_tokens: return their tokens and the tokens' log-probabilities.
            return_alignments: "hard" returns the source token of each token, "soft" the weights
                too; with the tokens of both.
            mime_type: the format of the texts: "text/plain", "text/html", "text/xml" or
                "text/markdown".
            ignore_tags: names of elements whose content is copied, beside those of the format.
            timeout: seconds for this call.
            request_id: identifies the call in the server's log.

        Raises:
            TranslationError: the whole call failed.
        """
        options = requests.options(
            search,
            priority=priority,
            max_new_tokens=max_new_tokens,
            split_sentences=split_sentences,
            allow_pivot=allow_pivot,
            verbatim=verbatim,
            adapt_letter_case=adapt_letter_case,
            num_hypotheses=num_hypotheses,
            return_tokens=return_tokens,
            return_alignments=return_alignments,
            ignore_tags=ignore_tags,
        )
        names = (source, target, model, mime_type)
        return self._make(
            self._translate_call(texts, names, options, glossary, timeout, request_id)
        )

    def stream(
        self,
        text: str,
        *,
        source: str = "",
        target: str = "",
        model: str = "",
        max_new_tokens: int | None = None,
        split_sentences: bool | None = None,
        search: Search | None = None,
        priority: str | None = None,
        allow_pivot: bool | None = None,
        glossary: Glossary | None = None,
        verbatim: VerbatimKinds | None = None,
        adapt_letter_case: bool | None = None,
        timeout: float | None = None,
        request_id: str = "",
    ) -> Generator[str | StreamEnd, None, None]:
        """Translate one text, and yield its pieces as they are made, then a `StreamEnd`.

        Closing the iterator cancels the call. Arguments as for `translate`.

        Raises:
            TranslationError: the call failed, perhaps after some pieces.
        """
        options = requests.options(
            search,
            priority=priority,
            max_new_tokens=max_new_tokens,
            split_sentences=split_sentences,
            allow_pivot=allow_pivot,
            verbatim=verbatim,
            adapt_letter_case=adapt_letter_case,
        )
        names = (source, target, model)
        call = self._stream_call(text, names, options, glossary, timeout, request_id)
        while True:
            attempt = call.start()
            has_begun = False
            try:
                for response in attempt:
                    has_begun = True
                    yield call.result(response, ())
                return
            except grpc.RpcError as exc:
                pause = call.pause(exc, has_begun=has_begun)
            finally:
                attempt.cancel()
            time.sleep(pause)

    def score(
        self,
        pairs: Sequence[tuple[str, str]],
        *,
        source: str = "",
        target: str = "",
        model: str = "",
        priority: str | None = None,
        return_tokens: bool = False,
        return_alignments: str | None = None,
        timeout: float | None = None,
        request_id: str = "",
    ) -> ScoreBatch:
        """Compute how probable given translations are.

        A bad pair does not fail the others: check each score's `error`.

        Args:
            pairs: texts and their translations; each passed to the model in one piece.
            source: BCP-47 code of the texts' language.
            target: BCP-47 code of the translations' language.
            model: a name from `list_models`.
            priority: "low", "normal" or "high": the share of the model while others wait.
            return_tokens: return the tokens of the translations with their log-probabilities.
            return_alignments: "hard" or "soft", as for `translate`.
            timeout: seconds for this call.
            request_id: identifies the call in the server's log.

        Raises:
            TranslationError: the whole call failed.
        """
        options = requests.score_options(
            priority=priority, return_tokens=return_tokens, return_alignments=return_alignments
        )
        names = (source, target, model)
        return self._make(self._score_call(pairs, names, options, timeout, request_id))

    def attention(
        self,
        source_text: str,
        translation: str = "",
        *,
        source: str = "",
        target: str = "",
        model: str = "",
        kinds: Sequence[str] = (),
        layers: Sequence[int] = (),
        heads: Sequence[int] = (),
        average_layers: bool = False,
        average_heads: bool = False,
        max_new_tokens: int | None = None,
        search: Search | None = None,
        priority: str | None = None,
        timeout: float | None = None,
        request_id: str = "",
    ) -> AttentionView:
        """Fetch the attention weights of a text and its translation.

        Args:
            source_text: passed to the model in one piece.
            translation: likewise; "" to have the model translate.
            source: BCP-47 code of the text's language.
            target: BCP-47 code of the translation's language.
            model: a name from `list_models`.
            kinds: "cross", "encoder_self" and "decoder_self"; none for "cross".
            layers: from 0; none for all.
            heads: from 0; none for all.
            average_layers: return the mean over the layers.
            average_heads: return the mean over the heads.
            max_new_tokens: token limit of the model's translation.
            search: how the model translates.
            priority: "low", "normal" or "high": the share of the model while others wait.
            timeout: seconds for this call.
            request_id: identifies the call in the server's log.

        Raises:
            TranslationError: the call failed.
        """
        options = requests.attention_options(
            search,
            kinds=kinds,
            layers=layers,
            heads=heads,
            average_layers=average_layers,
            average_heads=average_heads,
            max_new_tokens=max_new_tokens,
            priority=priority,
        )
        names = (source, target, model)
        call = self._attention_call(source_text, translation, names, options, timeout, request_id)
        return self._make(call)

    def translate_document(
        self,
        content: bytes,
        file_name: str,
        *,
        source: str = "",
        target: str = "",
        model: str = "",
        max_new_tokens: int | None = None,
        split_sentences: bool | None = None,
        search: Search | None = None,
        priority: str | None = None,
        allow_pivot: bool | None = None,
        glossary: Glossary | None = None,
        verbatim: VerbatimKinds | None = None,
        adapt_letter_case: bool | None = None,
        timeout: float | None = None,
        request_id: str = "",
    ) -> DocumentTranslation:
        """Translate a document, whose structure is kept.

        Args:
            content: the file.
            file_name: its name, whose extension gives the format.
            source: as for `translate`; so are all others. "auto" detects the language once.
            target: BCP-47 code of the language to translate into.
            model: a name from `list_models`.
            max_new_tokens: token limit of each sentence.
            split_sentences: False passes each part to the model in one piece.
            search: how to search.
            priority: "low", "normal" or "high".
            allow_pivot: False fails the call instead of translating through a third language.
            glossary: terms and the translations that they are to have.
            verbatim: which things are kept as they are.
            adapt_letter_case: False translates CAPITALS and Title Case as they are.
            timeout: seconds for this call.
            request_id: identifies the call in the server's log.

        Raises:
            TranslationError: the call failed, because of a part of the document perhaps.
        """
        options = requests.options(
            search,
            priority=priority,
            max_new_tokens=max_new_tokens,
            split_sentences=split_sentences,
            allow_pivot=allow_pivot,
            verbatim=verbatim,
            adapt_letter_case=adapt_letter_case,
        )
        names = (source, target, model)
        call = self._document_call(
            content, file_name, names, options, glossary, timeout, request_id
        )
        return self._make(call)

    def detect(
        self, texts: Sequence[str], *, timeout: float | None = None, request_id: str = ""
    ) -> list[tuple[DetectedLanguage, ...]]:
        """Detect the languages of `texts`, whether the server translates from them or not.

        Args:
            texts: each a word, a sentence, or pages.
            timeout: seconds for this call.
            request_id: identifies the call in the server's log.

        Returns:
            For each text, at most five languages, the likeliest first; none if the text shows
            nothing of its language.

        Raises:
            TranslationError: the call failed.
        """
        return self._make(self._detect_call(texts, timeout, request_id))

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
        """One model.

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

    def _make(self, call: PreparedCall[T]) -> T:
        while True:
            try:
                response, attempt = call.start(call.method.with_call)
                return call.result(response, attempt.trailing_metadata())
            except grpc.RpcError as exc:
                pause = call.pause(exc)
            time.sleep(pause)


class AsyncClient(BaseClient):
    """A client for asyncio. Arguments and methods are those of `Client`."""

    _grpc = grpc.aio

    async def translate(
        self,
        texts: Sequence[str],
        *,
        source: str = "",
        target: str = "",
        model: str = "",
        max_new_tokens: int | None = None,
        split_sentences: bool | None = None,
        search: Search | None = None,
        priority: str | None = None,
        allow_pivot: bool | None = None,
        glossary: Glossary | None = None,
        verbatim: VerbatimKinds | None = None,
        adapt_letter_case: bool | None = None,
        num_hypotheses: int | None = None,
        return_tokens: bool = False,
        return_alignments: str | None = None,
        mime_type: str = "",
        ignore_tags: Sequence[str] = (),
        timeout: float | None = None,
        request_id: str = "",
    ) -> TranslationBatch:
        """As `Client.translate`. Cancelling the task cancels the call.

        Raises:
            TranslationError: the whole call failed.
        """
        options = requests.options(
            search,
            priority=priority,
            max_new_tokens=max_new_tokens,
            split_sentences=split_sentences,
            allow_pivot=allow_pivot,
            verbatim=verbatim,
            adapt_letter_case=adapt_letter_case,
            num_hypotheses=num_hypotheses,
            return_tokens=return_tokens,
            return_alignments=return_alignments,
            ignore_tags=ignore_tags,
        )
        names = (source, target, model, mime_type)
        return await self._make(
            self._translate_call(texts, names, options, glossary, timeout, request_id)
        )

    async def stream(
        self,
        text: str,
        *,
        source: str = "",
        target: str = "",
        model: str = "",
        max_new_tokens: int | None = None,
        split_sentences: bool | None = None,
        search: Search | None = None,
        priority: str | None = None,
        allow_pivot: bool | None = None,
        glossary: Glossary | None = None,
        verbatim: VerbatimKinds | None = None,
        adapt_letter_case: bool | None = None,
        timeout: float | None = None,
        request_id: str = "",
    ) -> AsyncGenerator[str | StreamEnd, None]:
        """As `Client.stream`.

        Raises:
            TranslationError: the call failed, perhaps after some pieces.
        """
        options = requests.options(
            search,
            priority=priority,
            max_new_tokens=max_new_tokens,
            split_sentences=split_sentences,
            allow_pivot=allow_pivot,
            verbatim=verbatim,
            adapt_letter_case=adapt_letter_case,
        )
        names = (source, target, model)
        call = self._stream_call(text, names, options, glossary, timeout, request_id)
        while True:
            attempt = call.start()
            has_begun = False
            try:
                async for response in attempt:
                    has_begun = True
                    yield call.result(response, ())
                return
            except grpc.aio.AioRpcError as exc:
                pause = call.pause(exc, has_begun=has_begun)
            finally:
                attempt.cancel()
            await asyncio.sleep(pause)

    async def score(
        self,
        pairs: Sequence[tuple[str, str]],
        *,
        source: str = "",
        target: str = "",
        model: str = "",
        priority: str | None = None,
        return_tokens: bool = False,
        return_alignments: str | None = None,
        timeout: float | None = None,
        request_id: str = "",
    ) -> ScoreBatch:
        """As `Client.score`. Cancelling the task cancels the call.

        Raises:
            TranslationError: the whole call failed.
        """
        options = requests.score_options(
            priority=priority, return_tokens=return_tokens, return_alignments=return_alignments
        )
        names = (source, target, model)
        return await self._make(self._score_call(pairs, names, options, timeout, request_id))

    async def attention(
        self,
        source_text: str,
        translation: str = "",
        *,
        source: str = "",
        target: str = "",
        model: str = "",
        kinds: Sequence[str] = (),
        layers: Sequence[int] = (),
        heads: Sequence[int] = (),
        average_layers: bool = False,
        average_heads: bool = False,
        max_new_tokens: int | None = None,
        search: Search | None = None,
        priority: str | None = None,
        timeout: float | None = None,
        request_id: str = "",
    ) -> AttentionView:
        """As `Client.attention`. Cancelling the task cancels the call.

        Raises:
            TranslationError: the call failed.
        """
        options = requests.attention_options(
            search,
            kinds=kinds,
            layers=layers,
            heads=heads,
            average_layers=average_layers,
            average_heads=average_heads,
            max_new_tokens=max_new_tokens,
            priority=priority,
        )
        names = (source, target, model)
        call = self._attention_call(source_text, translation, names, options, timeout, request_id)
        return await self._make(call)

    async def translate_document(
        self,
        content: bytes,
        file_name: str,
        *,
        source: str = "",
        target: str = "",
        model: str = "",
        max_new_tokens: int | None = None,
        split_sentences: bool | None = None,
        search: Search | None = None,
        priority: str | None = None,
        allow_pivot: bool | None = None,
        glossary: Glossary | None = None,
        verbatim: VerbatimKinds | None = None,
        adapt_letter_case: bool | None = None,
        timeout: float | None = None,
        request_id: str = "",
    ) -> DocumentTranslation:
        """As `Client.translate_document`.

        Raises:
            TranslationError: the call failed.
        """
        options = requests.options(
            search,
            priority=priority,
            max_new_tokens=max_new_tokens,
            split_sentences=split_sentences,
            allow_pivot=allow_pivot,
            verbatim=verbatim,
            adapt_letter_case=adapt_letter_case,
        )
        names = (source, target, model)
        call = self._document_call(
            content, file_name, names, options, glossary, timeout, request_id
        )
        return await self._make(call)

    async def detect(
        self, texts: Sequence[str], *, timeout: float | None = None, request_id: str = ""
    ) -> list[tuple[DetectedLanguage, ...]]:
        """As `Client.detect`.

        Raises:
            TranslationError: the call failed.
        """
        return await self._make(self._detect_call(texts, timeout, request_id))

    async def list_models(self, *, timeout: float | None = None) -> list[ModelInfo]:
        """As `Client.list_models`.

        Raises:
            TranslationError: the call failed.
        """
        return await self._make(self._list_models_call(timeout))

    async def list_languages(self, *, timeout: float | None = None) -> list[LanguageGroup]:
        """As `Client.list_languages`.

        Raises:
            TranslationError: the call failed.
        """
        return await self._make(self._list_languages_call(timeout))

    async def get_model(self, name: str, *, timeout: float | None = None) -> ModelInfo:
        """As `Client.get_model`.

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

    async def _make(self, call: PreparedCall[T]) -> T:
        while True:
            attempt = call.start()
            try:
                return call.result(await attempt, await attempt.trailing_metadata())
            except grpc.aio.AioRpcError as exc:
                pause = call.pause(exc)
            await asyncio.sleep(pause)
