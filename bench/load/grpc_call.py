"""Requests over gRPC without retries: an error is a result here."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import Sequence
from types import TracebackType

import grpc

from bench.load.errors import ServerError
from bench.load.plan import LoadPlan
from bench.load.sample import ReplySample
from dragoman import conversions, requests
from dragoman.results import StreamEnd
from dragoman.tls import COMMAND_NAMES, connection_hint, open_channel
from dragoman.v1 import translation_pb2 as pb
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub

CONNECT_SECONDS = 10.0

_OPTIONS: list[tuple[str, str | int]] = [
    ("grpc.enable_retries", 0),
    ("grpc.service_config", json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
]


class LoadCall:
    """Sends a plan's requests on one connection. An asynchronous context manager."""

    def __init__(self, plan: LoadPlan) -> None:
        self._plan = plan
        self._channel = open_channel(grpc.aio, plan.server, plan.tls, _OPTIONS)
        self._stub = TranslationServiceStub(self._channel)
        # Not of the plan, which a report holds.
        self._metadata = requests.key_metadata(os.environ.get("DRAGOMAN_API_KEY", ""))
        self._options = pb.TranslateOptions(
            max_new_tokens=plan.max_new_tokens, split_sentences=plan.split_sentences
        )
        if plan.beam_size > 1:
            self._options.search.beam_size = plan.beam_size
        if plan.early_stopping:
            name = f"EARLY_STOPPING_{plan.early_stopping.upper()}"
            self._options.search.early_stopping = pb.EarlyStopping.Value(name)

    async def connect(self) -> None:
        """Connect before the first request.

        Raises:
            ServerError: no server answers.
        """
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._channel.channel_ready()
        except TimeoutError:
            raise ServerError(f"no server answers at {self._plan.server}") from None

    async def models(self) -> list[dict[str, str]]:
        """The server's models; empty if it does not have the method.

        Raises:
            ServerError: it does not answer, or with an error.
        """
        try:
            response = await self._stub.ListModels(
                pb.ListModelsRequest(),
                timeout=CONNECT_SECONDS,
                wait_for_ready=False,
                metadata=self._metadata,
            )
        except grpc.aio.AioRpcError as exc:
            if exc.code() is grpc.StatusCode.UNIMPLEMENTED:
                return []
            if exc.code() is grpc.StatusCode.UNAVAILABLE and not exc.trailing_metadata():
                hint = connection_hint(exc.details() or "", COMMAND_NAMES)
                hint = hint or 'is "dragoman serve" running there?'
                raise ServerError(f"no server answers at {self._plan.server}; {hint}") from exc
            raise ServerError(
                f"no usable server at {self._plan.server}: {exc.code().name}: {exc.details()}"
            ) from exc
        return [
            {"name": m.name, "version": m.version, "precision": m.precision, "device": m.device}
            for m in response.models
        ]

    async def __call__(self, texts: Sequence[str]) -> ReplySample:
        """Send the texts in one request, or the only one as a stream."""
        try:
            if self._plan.stream:
                return await self._stream(texts[0])
            return await self._translate(texts)
        except grpc.aio.AioRpcError as exc:
            trailing = tuple(exc.trailing_metadata() or ())
            error = conversions.error(exc.code(), exc.details() or "", trailing)
            return ReplySample(
                error.code.name, error.message, retry_after=error.retry_after_seconds
            )

    async def _translate(self, texts: Sequence[str]) -> ReplySample:
        plan = self._plan
        request = pb.TranslateRequest(
            contents=texts,
            source_language_code=plan.source_language,
            target_language_code=plan.target_language,
            model=plan.model,
            options=self._options,
        )
        response = await self._stub.Translate(
            request, timeout=plan.timeout, metadata=self._metadata
        )
        batch = conversions.batch(response, ())
        error = next((item.error for item in batch.translations if item.error), None)
        return ReplySample(
            code=error.code.name if error else "OK",
            message=error.message if error else "",
            source_tokens=sum(item.num_source_tokens for item in batch.translations),
            target_tokens=sum(item.num_target_tokens for item in batch.translations),
            queue_seconds=batch.queue_seconds,
            compute_seconds=batch.compute_seconds,
        )

    async def _stream(self, text: str) -> ReplySample:
        plan = self._plan
        request = pb.StreamTranslateRequest(
            content=text,
            source_language_code=plan.source_language,
            target_language_code=plan.target_language,
            model=plan.model,
            options=self._options,
        )
        now = asyncio.get_running_loop().time
        times: list[float] = []
        end: StreamEnd | None = None
        async for response in self._stub.StreamTranslate(
            request, timeout=plan.timeout, metadata=self._metadata
        ):
            if not response.HasField("summary"):
                times.append(now())
                continue
            end = conversions.stream_end(response.summary)
        if end is None:
            return ReplySample("INTERNAL", "the stream ended without its summary")
        gaps = tuple(later - before for before, later in itertools.pairwise(times))
        return ReplySample(
            first=times[0] if times else None,
            gaps=gaps,
            source_tokens=end.num_source_tokens,
            target_tokens=end.num_target_tokens,
            queue_seconds=end.queue_seconds,
            compute_seconds=end.compute_seconds,
        )

    async def __aenter__(self) -> LoadCall:
        """The call itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the connection."""
        await self._channel.close()


def find_server(plan: LoadPlan) -> list[dict[str, str]]:
    """List the server's models, which also checks that there is a server.

    Raises:
        ServerError: no server answers, or it is not a Dragoman server.
    """

    async def ask() -> list[dict[str, str]]:
        async with LoadCall(plan) as call:
            return await call.models()

    return asyncio.run(ask())
