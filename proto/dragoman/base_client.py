"""Base of the clients for threads and for asyncio: their calls, and retries."""

from __future__ import annotations

import functools
import random
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import grpc
from google.protobuf.message import Message

from dragoman import conversions, requests
from dragoman.addresses import DEFAULT_SERVER, is_local
from dragoman.arguments import (
    AttentionArguments,
    RequestArguments,
    ScoreArguments,
    TextArguments,
    TranslateArguments,
)
from dragoman.channel import channel_options
from dragoman.conversions import Metadata
from dragoman.models import LanguageGroup, ModelInfo
from dragoman.results import (
    AttentionView,
    DetectedLanguage,
    DocumentTranslation,
    ScoreBatch,
    StreamEnd,
    TranslationBatch,
    TranslationError,
)
from dragoman.tls import Tls, connection_hint, open_channel
from dragoman.trace_context import trace_context
from dragoman.v1 import translation_pb2 as pb
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub

# The shortest pause, whatever a server's hint says.
_LEAST_PAUSE_SECONDS = 0.05

_OF_THE_CALL = RequestArguments.__annotations__
T = TypeVar("T")


class Retries:
    """The time of one call, over all its attempts.

    Args:
        timeout: seconds for all attempts; None for no limit.
    """

    def __init__(
        self, timeout: float | None, enabled: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ends = None if timeout is None else clock() + timeout
        self._enabled = enabled
        self._clock = clock

    def left(self) -> float | None:
        """Seconds for the next attempt; None for no limit."""
        return None if self._ends is None else max(0.0, self._ends - self._clock())

    def pause(self, error: TranslationError) -> float:
        """Seconds to wait before the next attempt.

        Raises:
            TranslationError: `error`, if the call must not be retried: retries are disabled, the
                server was not overloaded, or its hint lies beyond the timeout.
        """
        hint = error.retry_after_seconds
        overloaded = error.code is grpc.StatusCode.RESOURCE_EXHAUSTED and hint is not None
        if not self._enabled or not overloaded:
            raise error
        # Randomly later, so that calls that were refused together don't come back together.
        seconds = max(_LEAST_PAUSE_SECONDS, hint or 0.0) * random.uniform(1.0, 1.5)
        left = self.left()
        if left is not None and seconds >= left:
            raise error
        return seconds


@dataclass(frozen=True)
class PreparedCall(Generic[T]):
    """A call that is ready to be made.

    Attributes:
        method: the stub's method.
        request: its message.
        metadata: metadata of the call.
        retries: the time that is left for it.
        read: makes the result of a response and its trailing metadata.
    """

    method: Any
    request: Message
    metadata: Metadata
    retries: Retries
    read: Callable[[Any, Metadata], T]

    def start(self, method: Any = None) -> Any:
        """Make the next attempt, with `method` in place of the stub's."""
        method = method or self.method
        return method(self.request, timeout=self.retries.left(), metadata=self.metadata)

    def result(self, response: Any, trailing: Any) -> T:
        """The result of an attempt that succeeded."""
        return self.read(response, tuple(trailing or ()))

    def pause(self, failure: Any, *, has_begun: bool = False) -> float:
        """Seconds between a failed attempt and the next one.

        Args:
            failure: an RpcError of either kind of call; both have the same three methods.
            has_begun: whether a part of the result was returned already: then there is no retry.

        Raises:
            TranslationError: the call has failed.
        """
        message = failure.details() or ""
        if hint := connection_hint(message):
            message = f"{hint} ({message})"
        trailing = tuple(failure.trailing_metadata() or ())
        error = conversions.error(failure.code(), message, trailing)
        if has_begun:
            raise error from failure
        try:
            return self.retries.pause(error)
        except TranslationError:
            raise error from failure


class BaseClient:
    """Builds the calls of a client; a subclass opens the channel and makes the calls."""

    _grpc: Any

    def __init__(
        self,
        server: str = DEFAULT_SERVER,
        *,
        timeout: float | None = 60.0,
        client_id: str = "",
        patient: bool = True,
        api_key: str = "",
        tls: Tls | None = None,
    ) -> None:
        server = requests.server(server)
        self._key_metadata = requests.key_metadata(api_key)
        if api_key and tls is None and not is_local(server):
            warnings.warn(
                f"the API key goes to {server} unencrypted: whoever sees the network can use it",
                stacklevel=2,
            )
        requests.metadata("", client_id)  # for its checks
        self._timeout = requests.seconds("timeout", timeout)
        self._client_id = client_id
        self._patient = patient
        self._channel = open_channel(self._grpc, server, tls, channel_options())
        self._stub = TranslationServiceStub(self._channel)

    def _translate_call(
        self, texts: Sequence[str], arguments: TranslateArguments
    ) -> PreparedCall[TranslationBatch]:
        names, left = _parted("translate", TranslateArguments, arguments)
        glossary, mime_type = left.pop("glossary", None), left.pop("mime_type", "")
        memory = _memory(left)
        request, unsent = requests.translate_request(
            texts, *names, mime_type, requests.options(**left), glossary
        )
        requests.add_memory(request, *memory)
        read = functools.partial(conversions.batch, unsent=unsent)
        return self._call(self._stub.Translate, request, read, arguments)

    def _stream_call(self, text: str, arguments: TextArguments) -> PreparedCall[str | StreamEnd]:
        names, left = _parted("stream", TextArguments, arguments)
        glossary, memory = left.pop("glossary", None), _memory(left)
        request = requests.stream_request(text, *names, requests.options(**left), glossary)
        requests.add_memory(request, *memory)

        def read(response: pb.StreamTranslateResponse, _: Metadata) -> str | StreamEnd:
            return conversions.stream_event(response)

        return self._call(self._stub.StreamTranslate, request, read, arguments)

    def _score_call(
        self, pairs: Sequence[tuple[str, str]], arguments: ScoreArguments
    ) -> PreparedCall[ScoreBatch]:
        names, left = _parted("score", ScoreArguments, arguments)
        request, unsent = requests.score_request(pairs, *names, requests.score_options(**left))
        read = functools.partial(conversions.score_batch, unsent=unsent)
        return self._call(self._stub.Score, request, read, arguments)

    def _attention_call(
        self, source_text: str, translation: str, arguments: AttentionArguments
    ) -> PreparedCall[AttentionView]:
        names, left = _parted("attention", AttentionArguments, arguments)
        options = requests.attention_options(**left)
        request = requests.attention_request(source_text, translation, *names, options)
        read = functools.partial(conversions.attention_view, source_text=source_text)
        return self._call(self._stub.GetAttention, request, read, arguments)

    def _detect_call(
        self, texts: Sequence[str], arguments: RequestArguments
    ) -> PreparedCall[list[tuple[DetectedLanguage, ...]]]:
        _parted("detect", RequestArguments, arguments)
        request = requests.detect_request(texts)
        return self._call(self._stub.DetectLanguage, request, conversions.detections, arguments)

    def _document_call(
        self, content: bytes, file_name: str, arguments: TextArguments
    ) -> PreparedCall[DocumentTranslation]:
        names, left = _parted("translate_document", TextArguments, arguments)
        glossary, memory = left.pop("glossary", None), _memory(left)
        options = requests.options(**left)
        request = requests.document_request(content, file_name, *names, options, glossary)
        requests.add_memory(request, *memory)
        return self._call(self._stub.TranslateDocument, request, conversions.document, arguments)

    def _list_models_call(self, timeout: float | None) -> PreparedCall[list[ModelInfo]]:
        def read(response: pb.ListModelsResponse, _: Metadata) -> list[ModelInfo]:
            return [conversions.model_info(model) for model in response.models]

        return self._call(self._stub.ListModels, pb.ListModelsRequest(), read, {"timeout": timeout})

    def _list_languages_call(self, timeout: float | None) -> PreparedCall[list[LanguageGroup]]:
        def read(response: pb.ListLanguagesResponse, _: Metadata) -> list[LanguageGroup]:
            groups = (*response.groups, *response.pivoted_groups)
            return [conversions.language_group(group) for group in groups]

        return self._call(
            self._stub.ListLanguages, pb.ListLanguagesRequest(), read, {"timeout": timeout}
        )

    def _get_model_call(self, name: str, timeout: float | None) -> PreparedCall[ModelInfo]:
        request = requests.get_model_request(name)

        def read(response: pb.Model, _: Metadata) -> ModelInfo:
            return conversions.model_info(response)

        return self._call(self._stub.GetModel, request, read, {"timeout": timeout})

    def _call(
        self,
        method: Any,
        request: Message,
        read: Callable[[Any, Metadata], T],
        arguments: RequestArguments,
    ) -> PreparedCall[T]:
        given = requests.seconds("timeout", arguments.get("timeout"))
        retries = Retries(self._timeout if given is None else given, self._patient)
        metadata = (
            *requests.metadata(arguments.get("request_id", ""), self._client_id),
            *self._key_metadata,
            *trace_context(),
        )
        return PreparedCall(method, request, metadata, retries, read)


def _memory(arguments: dict[str, Any]) -> tuple[str, float | None]:
    """Take the translation memory and its threshold out of some arguments."""
    return arguments.pop("memory", ""), arguments.pop("memory_threshold", None)


def _parted(
    method: str, allowed: type, arguments: Mapping[str, Any]
) -> tuple[tuple[str, str, str], dict[str, Any]]:
    """The source language, the target language and the model; and the options of the request.

    Raises:
        TypeError: the method has no such argument.
    """
    for name in arguments:
        if name not in allowed.__annotations__:
            raise TypeError(f"{method}() got an unexpected keyword argument {name!r}")
    left = {key: value for key, value in arguments.items() if key not in _OF_THE_CALL}
    source, target, model = (left.pop(name, "") for name in ("source", "target", "model"))
    return (source, target, model), left
