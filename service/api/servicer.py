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
from model.languages import is_language_code
from service.api.call_context import CallContext, Context, current_call, time_remaining
from service.api.charging import limit_priority, num_characters
from service.api.conversions import (
    add_score,
    add_translation,
    attention_options_of,
    attention_response,
    describe_search,
    finish_reason_of,
    options_of,
    score_options_of,
    text_options_of,
)
from service.api.registry import Registry, ServedModel
from service.api.routing import Route
from service.api.status import code_of
from service.errors import DragomanError, InvalidArgumentError, UnavailableError
from service.lifecycle.interface import ModelState
from service.observability.metrics import ServerMetrics
from service.text.interface import LinkedTranslator
from service.text.text_translator import text_translator
from service.translation.attention import AttentionResult
from service.translation.engine_call import CallArguments
from service.translation.fairness import CooperativeYield
from service.translation.options import TranslateOptions
from service.translation.pair_scorer import PairResult
from service.translation.results import TextResult

SERVICE = pb.DESCRIPTOR.services_by_name["TranslationService"].full_name

MAX_PAIRS = 100
"""Directions that a model is described with one by one; others are listed as languages."""

_STATES = {
    ModelState.SERVING: pb.MODEL_STATE_SERVING,
    ModelState.ASLEEP: pb.MODEL_STATE_ASLEEP,
    ModelState.LOADING: pb.MODEL_STATE_LOADING,
}

_Result = TextResult | PairResult | AttentionResult
# Of one model: two have no common probability, and no attention from one to the other.
_DIRECT_REQUESTS = (pb.ScoreRequest, pb.AttentionRequest)
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
        route, call = self._begin(request, "contents", "texts")
        async with self._registry.lease(route) as served:
            translator, options = _translator(request, served)
            results = await translator.translate(
                list(request.contents), options, **_common(call, context)
            )
        response = pb.TranslateResponse()
        _set_models(response, route)
        await self._answer(response, results, add_translation, call)
        return response

    async def StreamTranslate(
        self, request: pb.StreamTranslateRequest, context: Context
    ) -> AsyncIterator[pb.StreamTranslateResponse]:
        """Stream the deltas of one text, then the summary."""
        route, call = self._begin_one(request)
        async with self._registry.lease(route) as served:
            translator, options = _translator(request, served)
            async for event in translator.stream(
                request.content, options, **_common(call, context)
            ):
                if isinstance(event, TextResult):
                    self._count([event], call)
                    yield pb.StreamTranslateResponse(summary=_summary(event, route))
                elif event.text:
                    yield pb.StreamTranslateResponse(delta=pb.TextDelta(text=event.text))

    async def Score(self, request: pb.ScoreRequest, context: Context) -> pb.ScoreResponse:
        """Score all pairs, in order."""
        route, call = self._begin(request, "pairs", "pairs")
        pairs = [(pair.source_text, pair.translated_text) for pair in request.pairs]
        async with self._registry.lease(route) as served:
            results = await served.legs[0].translator.scorer.score(
                pairs, score_options_of(request.options), **_common(call, context)
            )
        response = pb.ScoreResponse(model=route.model.name)
        await self._answer(response, results, add_score, call)
        return response

    async def GetAttention(
        self, request: pb.AttentionRequest, context: Context
    ) -> pb.AttentionResponse:
        """The attention weights of a text and its translation, which may have to be made first."""
        route, call = self._begin_one(request)
        async with self._registry.lease(route) as served:
            translator = served.legs[0].translator
            options = attention_options_of(request.options, translator.default_options)
            result = await translator.attention.extract(
                request.source_text, request.translated_text, options, **_common(call, context)
            )
        self._count([result], call)
        response = await attention_response(result, route.model.name, CooperativeYield())
        _set_timing(response.timing, [result])
        return response

    async def ListModels(
        self, request: pb.ListModelsRequest, context: Context
    ) -> pb.ListModelsResponse:
        """Describe every model."""
        registry = self._registry
        return pb.ListModelsResponse(models=[_describe(model, registry) for model in registry])

    async def GetModel(self, request: pb.GetModelRequest, context: Context) -> pb.Model:
        """Describe one model."""
        return _describe(self._registry.get(request.name), self._registry)

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

    def _begin_one(
        self, request: pb.StreamTranslateRequest | pb.AttentionRequest
    ) -> tuple[Route, CallContext]:
        """The route of a request with one text, and its call."""
        route, call = self._route(request), current_call()
        call.facts["texts"] = 1
        call.grant.charge(num_characters(request))
        return route, call

    def _begin(
        self, request: pb.TranslateRequest | pb.ScoreRequest, field: str, unit: str
    ) -> tuple[Route, CallContext]:
        """The route of a request with several texts or pairs, and its call; checks their number.

        Before they are unpacked: a message of a few megabytes can hold millions of empty ones.
        """
        count = len(getattr(request, field))
        if not count:
            raise InvalidArgumentError(field, f"at least one {unit[:-1]} is needed")
        route, call = self._route(request), current_call()
        route.model.translator.limits.check_count(field, count, unit)
        call.facts[unit] = count
        call.grant.charge(num_characters(request))
        return route, call

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

    def _route(
        self,
        request: (
            pb.TranslateRequest | pb.StreamTranslateRequest | pb.ScoreRequest | pb.AttentionRequest
        ),
    ) -> Route:
        """The route of a request, for its log line and the metrics too."""
        allow_pivot: bool | None = False
        if not isinstance(request, _DIRECT_REQUESTS):
            options = request.options
            allow_pivot = options.allow_pivot if options.HasField("allow_pivot") else None
        source, target = request.source_language_code, request.target_language_code
        grant, facts = current_call().grant, current_call().facts
        limit_priority(request.options, grant)
        try:
            route = self._registry.route(request.model, source, target, allow_pivot=allow_pivot)
        except DragomanError:
            facts.update(source_language=_for_log(source), target_language=_for_log(target))
            raise
        grant.check_models(leg.model.name for leg in route.legs)
        facts.update(
            model=route.model.name,
            source_language=route.legs[0].source,
            target_language=route.legs[-1].target,
        )
        if route.pivot_model:
            facts.update(pivot_model=route.pivot_model, pivot_language=route.pivot_language)
            self._metrics.call_pivoted(route.pivot_model, route.model.name)
        return route


def _for_log(code: str) -> str:
    """A language's code as a client sent it, unless it is none: texts are not logged."""
    return code if not code or is_language_code(code) else "invalid"


def _describe(model: ServedModel, registry: Registry) -> pb.Model:
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
        state=_STATES[registry.lifecycles[model.name].state],
        origin=model.origin,
        default_search=describe_search(
            model.translator.default_options.search, model.translator.tokenizer.target
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


def _translator(
    request: pb.TranslateRequest | pb.StreamTranslateRequest, route: Route
) -> tuple[LinkedTranslator, TranslateOptions]:
    """What translates the texts of a request, and the options for it."""
    *before, last = (leg.translator for leg in route.legs)
    is_stream = isinstance(request, pb.StreamTranslateRequest)  # only the last model streams
    defaults = [each.default_options for each in before]
    defaults.append(last.stream_options if is_stream else last.default_options)
    *first, options = (options_of(request.options, default) for default in defaults)
    return text_translator(route.translator(*first), text_options_of(request)), options


def _set_models(answer: pb.TranslateResponse | pb.StreamSummary, route: Route) -> None:
    """Set the models that translated, and the language between them."""
    answer.model = route.model.name
    answer.pivot_language_code = route.pivot_language
    answer.pivot_model = route.pivot_model


def _summary(result: TextResult, route: Route) -> pb.StreamSummary:
    summary = pb.StreamSummary(
        finish_reason=finish_reason_of(result),
        source_token_count=result.num_source_tokens,
        target_token_count=result.num_target_tokens,
        was_split=result.was_split,
    )
    _set_models(summary, route)
    _set_timing(summary.timing, [result])
    return summary


def _set_timing(timing: pb.Timing, results: Sequence[_Result]) -> None:
    """Set the longest wait and the longest computation of any text."""
    queue_seconds = max(result.queue_seconds for result in results)
    compute_seconds = max(result.compute_seconds for result in results)
    timing.queue_duration.FromNanoseconds(round(queue_seconds * 1e9))
    timing.compute_duration.FromNanoseconds(round(compute_seconds * 1e9))
