"""Clients of a Dragoman server: `Client` for threads, `AsyncClient` for asyncio.

    from dragoman.client import Client

    with Client("127.0.0.1:50051") as client:
        batch = client.translate(["A dog is running."], source="en", target="de")
        print(batch.translations[0].text)

Both retry what failed with UNAVAILABLE, with backoff and within the deadline, and spread their
calls over every address that the name gives (`dns:///dragoman.example:50051`). Every failure is a
`TranslationError`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Sequence
from types import TracebackType
from typing import Any

import grpc

from dragoman import conversions
from dragoman.results import (
    FinishReason,
    Hypothesis,
    ModelInfo,
    ModelLimits,
    Sampling,
    Search,
    Sentence,
    StreamEnd,
    Translation,
    TranslationBatch,
    TranslationError,
)
from dragoman.v1 import translation_pb2 as pb
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub

__all__ = [
    "AsyncClient",
    "Client",
    "FinishReason",
    "Hypothesis",
    "ModelInfo",
    "ModelLimits",
    "Sampling",
    "Search",
    "Sentence",
    "StreamEnd",
    "Translation",
    "TranslationBatch",
    "TranslationError",
]

DEFAULT_SERVER = "127.0.0.1:50051"


class Client:
    """A client for ordinary (threaded) programs. One may be shared by all threads.

    Args:
        server: "HOST:PORT", or any name that gRPC resolves, such as "dns:///HOST:PORT".
        timeout: seconds that a call may take unless it says otherwise; None for ever.
        client_id: who asks: clients get equal shares of a busy server. By default the address.
    """

    def __init__(
        self, server: str = DEFAULT_SERVER, *, timeout: float | None = 60.0, client_id: str = ""
    ) -> None:
        self._channel = grpc.insecure_channel(server, options=conversions.channel_options())
        self._stub = TranslationServiceStub(self._channel)
        self._timeout = timeout
        self._client_id = client_id

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
        timeout: float | None = None,
        request_id: str = "",
    ) -> TranslationBatch:
        """Translate `texts`. Arguments left out are the server's choice.

        One bad text does not fail the others: look at each translation's `error`.

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
            timeout: seconds for this call.
            request_id: names the call in the server's log.

        Raises:
            TranslationError: the whole call failed.
        """
        request = pb.TranslateRequest(
            contents=texts,
            source_language_code=source,
            target_language_code=target,
            model=model,
            options=conversions.options(
                search,
                priority,
                max_new_tokens=max_new_tokens,
                split_sentences=split_sentences,
                num_hypotheses=num_hypotheses,
                return_tokens=return_tokens,
            ),
        )
        response, trailing = self._unary(self._stub.Translate, request, timeout, request_id)
        return conversions.batch(response, trailing)

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
        request = pb.StreamTranslateRequest(
            content=text,
            source_language_code=source,
            target_language_code=target,
            model=model,
            options=conversions.options(
                search, priority, max_new_tokens=max_new_tokens, split_sentences=split_sentences
            ),
        )
        call = self._stub.StreamTranslate(
            request, timeout=self._limit(timeout), metadata=_metadata(request_id, self._client_id)
        )
        try:
            for response in call:
                yield _event(response)
        except grpc.RpcError as exc:
            raise _error(exc) from exc
        finally:
            call.cancel()

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
        response, _ = self._unary(self._stub.GetModel, pb.GetModelRequest(name=name), timeout, "")
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

    def _limit(self, timeout: float | None) -> float | None:
        return self._timeout if timeout is None else timeout

    def _unary(
        self, method: Any, request: Any, timeout: float | None, request_id: str
    ) -> tuple[Any, conversions.Metadata]:
        try:
            response, call = method.with_call(
                request,
                timeout=self._limit(timeout),
                metadata=_metadata(request_id, self._client_id),
            )
        except grpc.RpcError as exc:
            raise _error(exc) from exc
        return response, tuple(call.trailing_metadata() or ())


class AsyncClient:
    """A client for asyncio. Its methods mean what `Client`'s do.

    Args:
        server: "HOST:PORT", or any name that gRPC resolves, such as "dns:///HOST:PORT".
        timeout: seconds that a call may take unless it says otherwise; None for ever.
        client_id: who asks: clients get equal shares of a busy server. By default the address.
    """

    def __init__(
        self, server: str = DEFAULT_SERVER, *, timeout: float | None = 60.0, client_id: str = ""
    ) -> None:
        self._channel = grpc.aio.insecure_channel(server, options=conversions.channel_options())
        self._stub = TranslationServiceStub(self._channel)
        self._timeout = timeout
        self._client_id = client_id

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
        timeout: float | None = None,
        request_id: str = "",
    ) -> TranslationBatch:
        """As `Client.translate`. Cancelling the task cancels the call.

        Raises:
            TranslationError: the whole call failed.
        """
        request = pb.TranslateRequest(
            contents=texts,
            source_language_code=source,
            target_language_code=target,
            model=model,
            options=conversions.options(
                search,
                priority,
                max_new_tokens=max_new_tokens,
                split_sentences=split_sentences,
                num_hypotheses=num_hypotheses,
                return_tokens=return_tokens,
            ),
        )
        response, trailing = await self._unary(self._stub.Translate, request, timeout, request_id)
        return conversions.batch(response, trailing)

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
        request = pb.StreamTranslateRequest(
            content=text,
            source_language_code=source,
            target_language_code=target,
            model=model,
            options=conversions.options(
                search, priority, max_new_tokens=max_new_tokens, split_sentences=split_sentences
            ),
        )
        call = self._stub.StreamTranslate(
            request, timeout=self._limit(timeout), metadata=_metadata(request_id, self._client_id)
        )
        try:
            async for response in call:
                yield _event(response)
        except grpc.aio.AioRpcError as exc:
            raise _error(exc) from exc
        finally:
            call.cancel()

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
            self._stub.GetModel, pb.GetModelRequest(name=name), timeout, ""
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

    def _limit(self, timeout: float | None) -> float | None:
        return self._timeout if timeout is None else timeout

    async def _unary(
        self, method: Any, request: Any, timeout: float | None, request_id: str
    ) -> tuple[Any, conversions.Metadata]:
        call = method(
            request, timeout=self._limit(timeout), metadata=_metadata(request_id, self._client_id)
        )
        try:
            response = await call
            trailing = await call.trailing_metadata()
        except grpc.aio.AioRpcError as exc:
            raise _error(exc) from exc
        return response, tuple(trailing or ())


def _metadata(request_id: str, client_id: str) -> tuple[tuple[str, str], ...]:
    pairs = ((conversions.REQUEST_ID, request_id), (conversions.CLIENT_ID, client_id))
    return tuple((key, value) for key, value in pairs if value)


def _event(response: pb.StreamTranslateResponse) -> str | StreamEnd:
    if response.HasField("summary"):
        return conversions.stream_end(response.summary)
    return response.delta.text


def _error(exc: Any) -> TranslationError:
    """The error of a failed call; both kinds of call have the same three methods."""
    return conversions.error(exc.code(), exc.details() or "", tuple(exc.trailing_metadata() or ()))
