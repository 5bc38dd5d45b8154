"""TranslationService: protobuf to the domain and back, nothing else.

Errors are raised; `interceptor.py` turns them into gRPC status codes.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from dragoman.v1 import translation_pb2 as pb
from dragoman.v1 import translation_pb2_grpc
from model.directions import Directions
from service.api.call_context import CallContext, Context, current_call, time_remaining
from service.api.conversions import (
    add_score,
    add_translation,
    describe_search,
    finish_reason_of,
    options_of,
    score_options_of,
)
from service.api.registry import Registry, ServedModel
from service.api.status import code_of
from service.errors import InvalidArgumentError, UnavailableError
from service.observability.metrics import ServerMetrics
from service.translation.engine_call import CallArguments
from service.translation.fairness import CooperativeYield
from service.translation.pair_scorer import PairResult
from service.translation.results import TextResult
from service.translation.translator import Translator

SERVICE = pb.DESCRIPTOR.services_by_name["TranslationService"].full_name

MAX_PAIRS = 100
"""Directions that a model is described with one by one; others are listed as languages."""

_Result = TextResult | PairResult
_Response = pb.TranslateResponse | pb.ScoreResponse
_Add = Callable[[Any, Any, str, CooperativeYield], Awaitable[None]]


class TranslationServicer(translation_pb2_grpc.TranslationServiceServicer):
    """Answers calls with the models of `registry`.

    Attributes:
        registry: None while the models are loading: calls end with UNAVAILABLE.
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
        """Translate all texts, in order."""
        model, translator, call = self._begin(request, "contents", "texts")
        results = await translator.translate(
            list(request.contents),
            options_of(request.options, translator.default_options),
            **_common(call, context),
        )
        response = pb.TranslateResponse(model=model.name)
        await self._answer(response, results, add_translation, call)
        return response

    async def StreamTranslate(
        self, request: pb.StreamTranslateRequest, context: Context
    ) -> AsyncIterator[pb.StreamTranslateResponse]:
        """Stream the deltas of one text, then the summary."""
        (model, translator), call = self._resolve(request), current_call()
        call.facts.update(model=model.name, texts=1)
        events = translator.stream(
            request.content,
            options_of(request.options, translator.stream_options),
            **_common(call, context),
        )
        async for event in events:
            if isinstance(event, TextResult):
                self._count([event], call)
                yield pb.StreamTranslateResponse(summary=_summary(event, model))
            elif event.text:
                yield pb.StreamTranslateResponse(delta=pb.TextDelta(text=event.text))

    async def Score(self, request: pb.ScoreRequest, context: Context) -> pb.ScoreResponse:
        """Score all pairs, in order."""
        model, translator, call = self._begin(request, "pairs", "pairs")
        pairs = [(pair.source_text, pair.translated_text) for pair in request.pairs]
        results = await translator.scorer.score(
            pairs, score_options_of(request.options), **_common(call, context)
        )
        response = pb.ScoreResponse(model=model.name)
        await self._answer(response, results, add_score, call)
        return response

    async def ListModels(
        self, request: pb.ListModelsRequest, context: Context
    ) -> pb.ListModelsResponse:
        """Describe every model."""
        return pb.ListModelsResponse(models=[_describe(model) for model in self._registry])

    async def GetModel(self, request: pb.GetModelRequest, context: Context) -> pb.Model:
        """Describe one model."""
        return _describe(self._registry.get(request.name))

    async def ListLanguages(
        self, request: pb.ListLanguagesRequest, context: Context
    ) -> pb.ListLanguagesResponse:
        """List every direction, those of the same languages and models together."""
        models: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
        for model in self._registry:
            directions = model.directions
            models.setdefault((directions.sources, directions.targets), []).append(model.name)
        groups = [
            pb.LanguageGroup(
                source_language_codes=sources, target_language_codes=targets, models=names
            )
            for (sources, targets), names in models.items()
        ]
        return pb.ListLanguagesResponse(groups=groups)

    def _begin(
        self, request: pb.TranslateRequest | pb.ScoreRequest, field: str, unit: str
    ) -> tuple[ServedModel, Translator, CallContext]:
        """The model for a request with several texts or pairs, its translator, and its call.

        Checks their number.

        Before they are unpacked: a message of a few megabytes can hold millions of empty ones.
        """
        count = len(getattr(request, field))
        if not count:
            raise InvalidArgumentError(field, f"at least one {unit[:-1]} is needed")
        (model, translator), call = self._resolve(request), current_call()
        translator.limits.check_count(field, count, unit)
        call.facts.update({"model": model.name, unit: count})
        return model, translator, call

    async def _answer(
        self, response: _Response, results: Sequence[_Result], add: _Add, call: CallContext
    ) -> None:
        """Fill in the response, a result at a time."""
        self._count(results, call)
        _set_timing(response.timing, results)
        yielder = CooperativeYield()
        for result in results:
            await add(response, result, call.request_id, yielder)

    def _count(self, results: Sequence[_Result], call: CallContext) -> None:
        """Count the outcome of each text or pair, and its tokens for the log."""
        for result in results:
            self._metrics.text_finished(code_of(result.error).name if result.error else "OK")
        call.facts.update(
            source_tokens=sum(result.num_source_tokens for result in results),
            target_tokens=sum(result.num_target_tokens for result in results),
        )

    def _resolve(
        self, request: pb.TranslateRequest | pb.StreamTranslateRequest | pb.ScoreRequest
    ) -> tuple[ServedModel, Translator]:
        """The model for a request, and its translator for the request's direction."""
        languages = (request.source_language_code, request.target_language_code)
        model = self._registry.resolve(request.model, *languages)
        return model, model.translator_between(*languages)


def _describe(model: ServedModel) -> pb.Model:
    limits = model.translator.limits
    return pb.Model(
        name=model.name,
        version=model.version,
        language_pairs=_pairs(model.directions),
        source_language_codes=model.directions.sources,
        target_language_codes=model.directions.targets,
        precision=model.precision,
        device=model.device,
        limits=pb.ModelLimits(
            max_contents=limits.max_texts,
            max_content_characters=limits.max_characters,
            max_source_tokens=model.translator.max_source_tokens,
            max_target_tokens=model.translator.max_target_tokens,
            max_rows=model.engine.limits.max_rows,
        ),
        can_score=model.engine.can_score,
        default_search=describe_search(
            model.translator.default_options.search, model.translator.target_tokenizer
        ),
    )


def _pairs(directions: Directions) -> list[pb.LanguagePair]:
    """Each direction, unless there are too many to list."""
    if directions.count > MAX_PAIRS:
        return []
    return [
        pb.LanguagePair(source_language_code=source, target_language_code=target)
        for source, target in directions
    ]


def _common(call: CallContext, context: Context) -> CallArguments:
    """The arguments of the translator that depend on the call, not on its method."""
    remaining = time_remaining(context)
    deadline = None if remaining is None else time.monotonic() + remaining
    return {"deadline": deadline, "request_id": call.request_id, "client": call.client}


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


def _set_timing(timing: pb.Timing, results: Sequence[_Result]) -> None:
    """Set the longest wait and the longest computation of any text."""
    queue_seconds = max(result.queue_seconds for result in results)
    compute_seconds = max(result.compute_seconds for result in results)
    timing.queue_duration.FromNanoseconds(round(queue_seconds * 1e9))
    timing.compute_duration.FromNanoseconds(round(compute_seconds * 1e9))
