"""TranslationService: protobuf to the domain and back, nothing else.

Errors are simply raised: `boundary.py` turns them into gRPC status codes.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc

from dragoman.v1 import translation_pb2 as pb
from dragoman.v1 import translation_pb2_grpc
from service.api.conversions import (
    add_score,
    add_translation,
    finish_reason_of,
    options_of,
    score_options_of,
)
from service.api.interceptor import current_call, time_remaining
from service.api.registry import Registry, ServedModel
from service.api.status import code_of
from service.errors import InvalidArgumentError, UnavailableError
from service.observability.metrics import ServerMetrics
from service.translation.cooperative_yield import CooperativeYield
from service.translation.pair_scorer import PairResult
from service.translation.results import TextResult

SERVICE = pb.DESCRIPTOR.services_by_name["TranslationService"].full_name

Context = grpc.aio.ServicerContext[Any, Any]


class TranslationServicer(translation_pb2_grpc.TranslationServiceServicer):
    """Answers with the models of `registry`.

    Attributes:
        registry: None while models are being loaded: calls end with UNAVAILABLE.
    """

    def __init__(self, metrics: ServerMetrics) -> None:
        self.registry: Registry | None = None
        self._metrics = metrics

    @property
    def _registry(self) -> Registry:
        if self.registry is None:
            raise UnavailableError("the server is starting: its models are not loaded yet")
        return self.registry

    async def Translate(
        self, request: pb.TranslateRequest, context: Context
    ) -> pb.TranslateResponse:
        """All the texts, in order."""
        if not request.contents:
            raise InvalidArgumentError("contents", "at least one text is needed")
        model = self._resolve(request)
        # Millions of empty ones take a message of a few megabytes, and long to unpack.
        model.translator.limits.check_count("contents", len(request.contents), "texts")
        texts = list(request.contents)
        call = current_call()
        call.facts.update(model=model.name, texts=len(texts))
        results = await model.translator.translate(
            texts,
            options_of(request.options),
            deadline=_deadline(context),
            request_id=call.request_id,
            client=call.client,
        )
        self._count(results)
        response = pb.TranslateResponse(model=model.name)
        _set_timing(response.timing, results)
        turns = CooperativeYield()
        for result in results:
            await add_translation(response, result, call.request_id, turns)
        return response

    async def StreamTranslate(
        self, request: pb.StreamTranslateRequest, context: Context
    ) -> AsyncIterator[pb.StreamTranslateResponse]:
        """Deltas, then the summary."""
        model = self._resolve(request)
        call = current_call()
        call.facts.update(model=model.name, texts=1)
        events = model.translator.stream(
            request.content,
            options_of(request.options),
            deadline=_deadline(context),
            request_id=call.request_id,
            client=call.client,
        )
        async for event in events:
            if isinstance(event, TextResult):
                self._metrics.text_finished("OK")
                call.facts.update(_tokens([event]))
                yield pb.StreamTranslateResponse(summary=_summary(event, model))
            elif event.text:
                yield pb.StreamTranslateResponse(delta=pb.TextDelta(text=event.text))

    async def Score(self, request: pb.ScoreRequest, context: Context) -> pb.ScoreResponse:
        """All the pairs, in order."""
        if not request.pairs:
            raise InvalidArgumentError("pairs", "at least one pair is needed")
        model = self._resolve(request)
        model.translator.limits.check_count("pairs", len(request.pairs), "pairs")
        pairs = [(pair.source_text, pair.translated_text) for pair in request.pairs]
        call = current_call()
        call.facts.update(model=model.name, pairs=len(pairs))
        results = await model.translator.scorer.score(
            pairs,
            score_options_of(request.options),
            deadline=_deadline(context),
            request_id=call.request_id,
            client=call.client,
        )
        self._count(results)
        response = pb.ScoreResponse(model=model.name)
        _set_timing(response.timing, results)
        turns = CooperativeYield()
        for result in results:
            await add_score(response, result, call.request_id, turns)
        return response

    async def ListModels(
        self, request: pb.ListModelsRequest, context: Context
    ) -> pb.ListModelsResponse:
        """Every model."""
        return pb.ListModelsResponse(models=[_describe(model) for model in self._registry])

    async def GetModel(self, request: pb.GetModelRequest, context: Context) -> pb.Model:
        """One model."""
        return _describe(self._registry.get(request.name))

    def _count(self, results: Sequence[TextResult | PairResult]) -> None:
        """In the metrics and the log, what became of each part of the call."""
        for result in results:
            self._metrics.text_finished(code_of(result.error).name if result.error else "OK")
        current_call().facts.update(_tokens(results))

    def _resolve(
        self, request: pb.TranslateRequest | pb.StreamTranslateRequest | pb.ScoreRequest
    ) -> ServedModel:
        return self._registry.resolve(
            request.model, request.source_language_code, request.target_language_code
        )


def _describe(model: ServedModel) -> pb.Model:
    limits = model.translator.limits
    return pb.Model(
        name=model.name,
        version=model.version,
        language_pairs=[
            pb.LanguagePair(source_language_code=model.source, target_language_code=model.target)
        ],
        precision=model.precision,
        device=model.device,
        limits=pb.ModelLimits(
            max_contents=limits.max_texts,
            max_content_characters=limits.max_characters,
            max_source_tokens=model.max_source_tokens,
            max_target_tokens=model.max_target_tokens,
            max_rows=model.max_rows,
        ),
        can_score=model.engine.can_score,
    )


def _deadline(context: Context) -> float | None:
    """The client's deadline on this machine's monotonic clock."""
    remaining = time_remaining(context)
    return None if remaining is None else time.monotonic() + remaining


def _summary(result: TextResult, model: ServedModel) -> pb.StreamSummary:
    summary = pb.StreamSummary(
        finish_reason=finish_reason_of(result),
        source_token_count=result.num_source_tokens,
        target_token_count=result.num_target_tokens,
        was_split=result.was_split,
        model=model.name,
    )
    _set_timing(summary.timing, [result])
    return summary


def _tokens(results: Sequence[TextResult | PairResult]) -> dict[str, object]:
    return {
        "source_tokens": sum(result.num_source_tokens for result in results),
        "target_tokens": sum(result.num_target_tokens for result in results),
    }


def _set_timing(timing: pb.Timing, results: Sequence[TextResult | PairResult]) -> None:
    """The longest wait and the longest computation of any text."""
    queue_seconds = max(result.queue_seconds for result in results)
    compute_seconds = max(result.compute_seconds for result in results)
    timing.queue_duration.FromNanoseconds(round(queue_seconds * 1e9))
    timing.compute_duration.FromNanoseconds(round(compute_seconds * 1e9))
