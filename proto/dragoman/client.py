"""Clients of a Dragoman server: `Client` for threads, `AsyncClient` for asyncio.

    from dragoman.client import Client

    with Client("127.0.0.1:50051") as client:
        batch = client.translate(["A dog is running."], source="en", target="de")
        print(batch.translations[0].text)

An argument of the wrong type raises TypeError, one that no server takes ValueError, with its name.

Both retry within the timeout: what failed with UNAVAILABLE, with backoff, and what an overloaded
server refused, when it says that there will be room. They spread their calls over every address
that the name gives (`dns:///dragoman.example:50051`). Every other failure is a
`TranslationError`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Generator, Sequence
from types import TracebackType
from typing import Any

import grpc

from dragoman import conversions, requests
from dragoman.addresses import DEFAULT_SERVER
from dragoman.patience import Patience
from dragoman.results import (
    Alignment,
    FinishReason,
    Hypothesis,
    ModelInfo,
    ModelLimits,
    PairScore,
    Sampling,
    ScoreBatch,
    Search,
    Sentence,
    SourceToken,
    StreamEnd,
    Token,
    Translation,
    TranslationBatch,
    TranslationError,
)
from dragoman.v1 import translation_pb2 as pb
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub

__all__ = [
    "Alignment",
    "AsyncClient",
    "Client",
    "FinishReason",
    "Hypothesis",
    "ModelInfo",
    "ModelLimits",
    "PairScore",
    "Sampling",
    "ScoreBatch",
    "Search",
    "Sentence",
    "SourceToken",
    "StreamEnd",
    "Token",
    "Translation",
    "TranslationBatch",
    "TranslationError",
]


class Client:
    """A client for ordinary (threaded) programs. One may be shared by all threads.

    Args:
        server: "HOST:PORT", or any name that gRPC resolves, such as "dns:///HOST:PORT".
        timeout: seconds that a call may take unless it says otherwise; None for ever.
        client_id: who asks: clients get equal shares of a busy server. By default the address.
        patient: whether to try again, within the timeout, what an overloaded server refused.
    """

    def __init__(
        self,
        server: str = DEFAULT_SERVER,
        *,
        timeout: float | None = 60.0,
        client_id: str = "",
        patient: bool = True,
    ) -> None:
        server = requests.server(server)
        requests.metadata("", client_id)  # for its checks
        self._timeout = requests.seconds("timeout", timeout)
        self._client_id = client_id
        self._patient = patient
        self._channel = grpc.insecure_channel(server, options=conversions.channel_options())
        self._stub = TranslationServiceStub(self._channel)

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
        num_hypotheses: int | None = None,
        return_tokens: bool = False,
        return_alignments: str | None = None,
        timeout: float | None = None,
        request_id: str = "",
    ) -> TranslationBatch:
        """Translate `texts`. Arguments left out are the server's choice.

        One bad text does not fail the others: look at each translation's `error`. That goes for one
        that is not Unicode (a lone surrogate) too, which the client can't send.

        Args:
            texts: each a word, a sentence, or pages.
            source: BCP-47 code of the texts' language, such as "en".
            target: BCP-47 code of the language to translate into, such as "de".
            model: a name from `list_models`.
            max_new_tokens: the most tokens to generate for each sentence.
            split_sentences: False hands each text to the model in one piece.
            search: beams and the like; by default greedy.
            priority: "low", "normal" or "high": the share of the model while others wait.
            num_hypotheses: return so many translations of each sentence in `sentences`.
            return_tokens: return their tokens and the tokens' log-probabilities.
            return_alignments: "hard" returns which tokens of the source theirs come from, "soft"
                the weights, too; with the tokens of both.
            timeout: seconds for this call.
            request_id: names the call in the server's log.

        Raises:
            TranslationError: the whole call failed.
        """
        options = requests.options(
            search,
            priority=priority,
            max_new_tokens=max_new_tokens,
            split_sentences=split_sentences,
            num_hypotheses=num_hypotheses,
            return_tokens=return_tokens,
            return_alignments=return_alignments,
        )
        request, unsent = requests.translate_request(texts, source, target, model, options)
        response, trailing = self._unary(self._stub.Translate, request, timeout, request_id)
        return conversions.batch(response, trailing, unsent)

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
        timeout: float | None = None,
        request_id: str = "",
    ) -> Generator[str | StreamEnd, None, None]:
        """Translate one text and give its pieces as they come; the last item is a `StreamEnd`.

        Closing the iterator cancels the call. Arguments as for `translate`.

        Raises:
            TranslationError: the call failed; pieces may have come before.
        """
        options = requests.options(
            search,
            priority=priority,
            max_new_tokens=max_new_tokens,
            split_sentences=split_sentences,
        )
        request = requests.stream_request(text, source, target, model, options)
        patience = self._patience(timeout)
        metadata = requests.metadata(request_id, self._client_id)
        while True:
            call = self._stub.StreamTranslate(request, timeout=patience.left(), metadata=metadata)
            has_begun = False
            try:
                for response in call:
                    has_begun = True
                    yield _event(response)
                return
            except grpc.RpcError as exc:
                if has_begun:
                    raise _error(exc) from exc
                failure = exc
            finally:
                call.cancel()
            time.sleep(_pause(patience, failure))

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
        """How probable given translations are, without translating.

        One bad pair does not fail the others: look at each score's `error`.

        Args:
            pairs: texts and their translations; each goes to the model in one piece.
            source: BCP-47 code of the texts' language.
            target: BCP-47 code of the translations' language.
            model: a name from `list_models`.
            priority: "low", "normal" or "high": the share of the model while others wait.
            return_tokens: return the translations' tokens with their log-probabilities.
            return_alignments: "hard" or "soft", as for `translate`.
            timeout: seconds for this call.
            request_id: names the call in the server's log.

        Raises:
            TranslationError: the whole call failed.
        """
        options = requests.score_options(
            priority=priority, return_tokens=return_tokens, return_alignments=return_alignments
        )
        request, unsent = requests.score_request(pairs, source, target, model, options)
        response, trailing = self._unary(self._stub.Score, request, timeout, request_id)
        return conversions.score_batch(response, trailing, unsent)

    def list_models(self, *, timeout: float | None = None) -> list[ModelInfo]:
        """The server's models, the preferred one first.

        Raises:
            TranslationError: the call failed.
        """
        response, _ = self._unary(self._stub.ListModels, pb.ListModelsRequest(), timeout, "")
        return [conversions.model_info(model) for model in response.models]

    def get_model(self, name: str, *, timeout: float | None = None) -> ModelInfo:
        """One model.

        Raises:
            TranslationError: NOT_FOUND, or the call failed.
        """
        response, _ = self._unary(
            self._stub.GetModel, requests.get_model_request(name), timeout, ""
        )
        return conversions.model_info(response)

    def close(self) -> None:
        """Close the connection; calls in progress are cancelled."""
        self._channel.close()

    def __enter__(self) -> Client:
        """The client itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()

    def _patience(self, timeout: float | None) -> Patience:
        given = requests.seconds("timeout", timeout)
        return Patience(self._timeout if given is None else given, self._patient)

    def _unary(
        self, method: Any, request: Any, timeout: float | None, request_id: str
    ) -> tuple[Any, conversions.Metadata]:
        patience = self._patience(timeout)
        metadata = requests.metadata(request_id, self._client_id)
        while True:
            try:
                response, call = method.with_call(
                    request, timeout=patience.left(), metadata=metadata
                )
            except grpc.RpcError as exc:
                failure = exc
            else:
                return response, tuple(call.trailing_metadata() or ())
            time.sleep(_pause(patience, failure))


class AsyncClient:
    """A client for asyncio. Its methods mean what `Client`'s do.

    Args:
        server: "HOST:PORT", or any name that gRPC resolves, such as "dns:///HOST:PORT".
        timeout: seconds that a call may take unless it says otherwise; None for ever.
        client_id: who asks: clients get equal shares of a busy server. By default the address.
        patient: whether to try again, within the timeout, what an overloaded server refused.
    """

    def __init__(
        self,
        server: str = DEFAULT_SERVER,
        *,
        timeout: float | None = 60.0,
        client_id: str = "",
        patient: bool = True,
    ) -> None:
        server = requests.server(server)
        requests.metadata("", client_id)  # for its checks
        self._timeout = requests.seconds("timeout", timeout)
        self._client_id = client_id
        self._patient = patient
        self._channel = grpc.aio.insecure_channel(server, options=conversions.channel_options())
        self._stub = TranslationServiceStub(self._channel)

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
        num_hypotheses: int | None = None,
        return_tokens: bool = False,
        return_alignments: str | None = None,
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
            num_hypotheses=num_hypotheses,
            return_tokens=return_tokens,
            return_alignments=return_alignments,
        )
        request, unsent = requests.translate_request(texts, source, target, model, options)
        response, trailing = await self._unary(self._stub.Translate, request, timeout, request_id)
        return conversions.batch(response, trailing, unsent)

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
        timeout: float | None = None,
        request_id: str = "",
    ) -> AsyncGenerator[str | StreamEnd, None]:
        """As `Client.stream`.

        Raises:
            TranslationError: the call failed; pieces may have come before.
        """
        options = requests.options(
            search,
            priority=priority,
            max_new_tokens=max_new_tokens,
            split_sentences=split_sentences,
        )
        request = requests.stream_request(text, source, target, model, options)
        patience = self._patience(timeout)
        metadata = requests.metadata(request_id, self._client_id)
        while True:
            call = self._stub.StreamTranslate(request, timeout=patience.left(), metadata=metadata)
            has_begun = False
            try:
                async for response in call:
                    has_begun = True
                    yield _event(response)
                return
            except grpc.aio.AioRpcError as exc:
                if has_begun:
                    raise _error(exc) from exc
                failure = exc
            finally:
                call.cancel()
            await asyncio.sleep(_pause(patience, failure))

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
        request, unsent = requests.score_request(pairs, source, target, model, options)
        response, trailing = await self._unary(self._stub.Score, request, timeout, request_id)
        return conversions.score_batch(response, trailing, unsent)

    async def list_models(self, *, timeout: float | None = None) -> list[ModelInfo]:
        """As `Client.list_models`.

        Raises:
            TranslationError: the call failed.
        """
        response, _ = await self._unary(self._stub.ListModels, pb.ListModelsRequest(), timeout, "")
        return [conversions.model_info(model) for model in response.models]

    async def get_model(self, name: str, *, timeout: float | None = None) -> ModelInfo:
        """As `Client.get_model`.

        Raises:
            TranslationError: NOT_FOUND, or the call failed.
        """
        response, _ = await self._unary(
            self._stub.GetModel, requests.get_model_request(name), timeout, ""
        )
        return conversions.model_info(response)

    async def close(self) -> None:
        """Close the connection; calls in progress are cancelled."""
        await self._channel.close()

    async def __aenter__(self) -> AsyncClient:
        """The client itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close."""
        await self.close()

    def _patience(self, timeout: float | None) -> Patience:
        given = requests.seconds("timeout", timeout)
        return Patience(self._timeout if given is None else given, self._patient)

    async def _unary(
        self, method: Any, request: Any, timeout: float | None, request_id: str
    ) -> tuple[Any, conversions.Metadata]:
        patience = self._patience(timeout)
        metadata = requests.metadata(request_id, self._client_id)
        while True:
            call = method(request, timeout=patience.left(), metadata=metadata)
            try:
                response = await call
                trailing = await call.trailing_metadata()
            except grpc.aio.AioRpcError as exc:
                failure = exc
            else:
                return response, tuple(trailing or ())
            await asyncio.sleep(_pause(patience, failure))


def _event(response: pb.StreamTranslateResponse) -> str | StreamEnd:
    if response.HasField("summary"):
        return conversions.stream_end(response.summary)
    return response.delta.text


def _pause(patience: Patience, failure: grpc.RpcError) -> float:
    """Seconds until the next attempt of a call; raises its error if there is none."""
    try:
        return patience.pause(_error(failure))
    except TranslationError as error:
        raise error from failure


def _error(exc: Any) -> TranslationError:
    """The error of a failed call; both kinds of call have the same three methods."""
    return conversions.error(exc.code(), exc.details() or "", tuple(exc.trailing_metadata() or ()))
