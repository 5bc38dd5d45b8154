"""TranslationService: protobuf to the domain and back, nothing else.

Errors are raised; `interceptor.py` turns them into gRPC status codes.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

from dragoman.v1 import translation_pb2 as pb
from dragoman.v1 import translation_pb2_grpc
from model.bundle.languages import is_language_code
from service.calls.call_context import CallContext, Context, current_call
from service.calls.charging import admit, admit_document, give_back_failed
from service.calls.detected_calls import (
    AUTO,
    DetectedText,
    TextRouter,
    TranslatesRequest,
    distinct_routes,
    translate_groups,
)
from service.calls.document_calls import (
    LIMITS,
    DocumentTotals,
    check_options,
    checked_texts,
    request_of,
)
from service.calls.status import code_of
from service.common.fairness import checkpoint, in_thread
from service.documents.work import encode_texts
from service.documents.worker_pool import DocumentWorkers
from service.documents.worker_template import WorkerLimits
from service.domain.requests import FinishReason
from service.errors import DragomanError, InvalidArgumentError, UnavailableError
from service.fronts.dragoman.conversions import (
    add_score,
    add_translation,
    attention_options_of,
    attention_response,
    finish_reason_of,
    options_of,
    score_options_of,
    term_use,
    text_options_of,
    warning,
)
from service.fronts.dragoman.model_descriptions import describe
from service.models.registry import Registry
from service.models.routing import Route
from service.models.served_model import ServedModel
from service.observability.metrics import ServerMetrics
from service.text.detection import LanguageDetector
from service.text.glossaries.files import GlossaryFiles
from service.text.glossaries.glossary import Glossary
from service.text.glossaries.store import GlossaryStore, is_glossary_id
from service.text.interface import LinkedTranslator
from service.text.markup.markup_translator import plain_texts
from service.text.options import MimeType, TextOptions
from service.text.text_translator import text_translator
from service.translation.attention import AttentionResult
from service.translation.engine_call import CallArguments
from service.translation.options import TranslateOptions, TranslatorLimits
from service.translation.pair_scorer import PairResult
from service.translation.results import TextResult

SERVICE = pb.DESCRIPTOR.services_by_name["TranslationService"].full_name

MAX_DETECTED = 5
"""Languages that DetectLanguage returns for a text."""

# Of a request's own glossary: more take some milliseconds.
_FEW_ENTRIES = 50

_Result = TextResult | PairResult | AttentionResult
_Request = TranslatesRequest | pb.ScoreRequest | pb.AttentionRequest
# Of one model: two have no common probability, and no attention from one to the other.
_DIRECT_REQUESTS = (pb.ScoreRequest, pb.AttentionRequest)
_Response = pb.TranslateResponse | pb.ScoreResponse
_Add = Callable[[Any, Any, str], Awaitable[None]]


class TranslationServicer(translation_pb2_grpc.TranslationServiceServicer):
    """Answers calls with the models of `registry`.

    Attributes:
        registry: None while the models are loading: calls end with UNAVAILABLE.
        glossaries: those that requests may name.
        glossary_store: of those that clients make.
        documents: reads and writes documents.
    """

    def __init__(
        self,
        metrics: ServerMetrics,
        glossaries: GlossaryFiles | None = None,
        glossary_store: GlossaryStore | None = None,
        documents: DocumentWorkers | None = None,
    ) -> None:
        self.registry: Registry | None = None
        self.glossaries = glossaries or GlossaryFiles()
        self.glossary_store = glossary_store or GlossaryStore()
        self.documents = documents or DocumentWorkers(LIMITS, WorkerLimits(), metrics.documents)
        self._metrics = metrics
        self._detector = LanguageDetector()
        self._text_router = TextRouter(self._detector)

    @property
    def _registry(self) -> Registry:
        if self.registry is None:
            raise UnavailableError("the server is starting: its models are not loaded yet")
        return self.registry

    @property
    def _allowed(self) -> list[ServedModel]:
        """The models that the caller may use."""
        grant = current_call().grant
        return [model for model in self._registry if grant.allows_model(model.name)]

    async def Translate(
        self, request: pb.TranslateRequest, context: Context
    ) -> pb.TranslateResponse:
        """Translate all texts, in order."""
        response, _ = await self.translate(request, context)
        return response

    async def translate(
        self, request: pb.TranslateRequest, context: Context
    ) -> tuple[pb.TranslateResponse, Sequence[DetectedText]]:
        """Translate all texts, in order.

        Returns:
            The answer, and what was detected of each text; nothing if the request names a language.
        """
        admit(request)
        self._check_count(request, "contents", "texts")
        if (route := self._named_route(request)) is None:
            return await self._translate_detected(request, context)
        results = await self._translated(request, context, route, list(request.contents))
        response = pb.TranslateResponse()
        _set_models(response, route)
        await self._answer(request, response, results, add_translation)
        return response, ()

    async def _translated(
        self, request: pb.TranslateRequest, context: Context, route: Route, texts: Sequence[str]
    ) -> Sequence[TextResult]:
        """Translate texts of a request along a route."""
        async with self._registry.lease(route) as served:
            translator, options = await self._translator(request, served)
            return await translator.translate(texts, options, **_common(current_call()))

    async def copy(self, request: pb.TranslateRequest) -> pb.TranslateResponse:
        """Return all texts as they are, within the limits and quotas of translations."""
        call, texts = current_call(), list(request.contents)
        admit(request)
        self._check_count(request, "contents", "texts")
        await next(iter(self._registry)).translator.check_texts(texts)
        call.facts.update(
            source_language=_for_log(request.source_language_code),
            target_language=_for_log(request.target_language_code),
        )
        response = pb.TranslateResponse()
        results = [TextResult(text, FinishReason.EOS) for text in texts]
        await self._answer(request, response, results, add_translation)
        return response

    async def _translate_detected(
        self, request: pb.TranslateRequest, context: Context
    ) -> tuple[pb.TranslateResponse, Sequence[DetectedText]]:
        """Translate texts whose languages are detected, each with its model."""
        texts = list(request.contents)
        await next(iter(self._registry)).translator.check_texts(texts)
        routed = await self._detected(request, texts, lambda index: f"contents[{index}]")
        results = await translate_groups(
            texts, routed, functools.partial(self._translated, request, context)
        )
        response = pb.TranslateResponse()
        await self._answer(request, response, results, add_translation)
        for translation, text in zip(response.translations, routed, strict=True):
            _set_detected(translation, text)
        if len(routes := distinct_routes(routed)) == 1:
            _set_models(response, routes[0])
        return response, routed

    async def _detected(
        self, request: TranslatesRequest, texts: Sequence[str], field: Callable[[int], str]
    ) -> Sequence[DetectedText]:
        """The language and the route of each text, for the log line and the metrics too."""
        find_route = functools.partial(self._find_route, request)
        texts = await plain_texts(texts, await _text_options(request))
        routed = await self._text_router.route(request, texts, self._registry, find_route, field)
        routes = distinct_routes(routed)
        current_call().facts.update(
            model=",".join(dict.fromkeys(route.model.name for route in routes)),
            source_language=",".join(dict.fromkeys(route.legs[0].source for route in routes)),
            target_language=_for_log(request.target_language_code),
            detected=True,
        )
        for route in routes:
            if route.pivot_model:
                self._metrics.call_pivoted(route.pivot_model, route.model.name)
        return routed

    async def StreamTranslate(
        self, request: pb.StreamTranslateRequest, context: Context
    ) -> AsyncIterator[pb.StreamTranslateResponse]:
        """Stream the deltas of one text, then the summary."""
        admit(request)
        call, detected = current_call(), None
        call.facts["texts"] = 1
        if (route := self._named_route(request)) is None:
            any_model = next(iter(self._registry))
            await any_model.translator.check_text(request.content)
            [detected] = await self._detected(request, [request.content], lambda _: "content")
            if (route := detected.route) is None:
                for response in _unchanged(request.content, detected):
                    yield response
                return
        async with self._registry.lease(route) as served:
            translator, options = await self._translator(request, served)
            async for event in translator.stream(request.content, options, **_common(call)):
                if isinstance(event, TextResult):
                    self._count([event], call)
                    yield pb.StreamTranslateResponse(summary=_summary(event, route, detected))
                elif event.text:
                    yield pb.StreamTranslateResponse(delta=pb.TextDelta(text=event.text))

    async def TranslateDocument(
        self, request: pb.TranslateDocumentRequest, context: Context
    ) -> pb.TranslateDocumentResponse:
        """Translate the texts of a file, and write it again."""
        call, detected, max_characters = current_call(), None, self.limits.max_request_characters
        check_options(request.options)
        texts = request_of(request)
        admit_document(texts)
        route = await self._route_before_reading(texts)
        document = await self.documents.read(
            request.file_name, request.content, max_characters, call.client
        )
        call.grant.charge(document.num_characters)
        call.facts["texts"] = document.num_segments
        if route is None:
            [detected] = await self._detected(texts, [document.sample], lambda _: "content")
            if detected.error is not None:
                raise detected.error
            route = detected.route
        totals, lines = DocumentTotals(), []
        for mime_type, batch in document.batches():
            if route is not None:  # otherwise it is in the target language
                texts.mime_type = mime_type.value
                results = await self._translated(texts, context, route, batch)
                totals.add(results)
                self._count_codes(results)
                batch = checked_texts(results)
            lines.append(encode_texts(batch))
        content = await self.documents.write(
            request.file_name, request.content, max_characters, lines, call.client
        )
        call.facts.update(
            source_tokens=totals.num_source_tokens, target_tokens=totals.num_target_tokens
        )
        response = pb.TranslateDocumentResponse(
            content=content,
            segment_count=document.num_segments,
            source_token_count=totals.num_source_tokens,
            target_token_count=totals.num_target_tokens,
            warnings=map(warning, totals.warnings),
            warning_count=totals.num_warnings,
        )
        if route is not None:
            _set_models(response, route)
        if detected is not None:
            _set_detected(response, detected)
        _set_timing(response.timing, [totals])
        return response

    async def _route_before_reading(self, request: pb.TranslateRequest) -> Route | None:
        """The route of a document; None if its language has to be detected.

        Raises:
            DragomanError: the call fails whatever the document has in it, and need not read it.
        """
        route = self._named_route(request)
        if route is None:
            find_route = functools.partial(self._find_route, request)
            self._text_router.check_target(request, self._registry, find_route, self._allowed)
            return None
        request.mime_type = MimeType.HTML.value  # any format that has tags to ignore
        await self._translator(request, route)
        request.mime_type = ""
        return route

    async def DetectLanguage(
        self, request: pb.DetectLanguageRequest, context: Context
    ) -> pb.DetectLanguageResponse:
        """Detect the language of each text, in order."""
        admit(request)
        self._check_count(request, "contents", "texts")
        texts = list(request.contents)
        await next(iter(self._registry)).translator.check_texts(texts)
        served = dict.fromkeys(code for model in self._allowed for code in model.directions.sources)
        response = pb.DetectLanguageResponse()
        for languages in await self._detector.detect(texts, tuple(served)):
            await checkpoint()
            detection = response.detections.add()
            for language in languages[:MAX_DETECTED]:
                detection.languages.add(
                    language_code=language.code,
                    confidence=language.confidence,
                    is_served=language.is_served,
                )
        return response

    async def Score(self, request: pb.ScoreRequest, context: Context) -> pb.ScoreResponse:
        """Score all pairs, in order."""
        admit(request)
        self._check_count(request, "pairs", "pairs")
        route, call = self._route(request), current_call()
        pairs = [(pair.source_text, pair.translated_text) for pair in request.pairs]
        async with self._registry.lease(route) as served:
            results = await served.legs[0].translator.scorer.score(
                pairs, score_options_of(request.options), **_common(call)
            )
        response = pb.ScoreResponse(model=route.model.name)
        await self._answer(request, response, results, add_score)
        return response

    async def GetAttention(
        self, request: pb.AttentionRequest, context: Context
    ) -> pb.AttentionResponse:
        """The attention weights of a text and its translation, which may have to be made first."""
        admit(request)
        route, call = self._route(request), current_call()
        async with self._registry.lease(route) as served:
            translator = served.legs[0].translator
            options = attention_options_of(request.options, translator.default_options)
            result = await translator.attention.extract(
                request.source_text, request.translated_text, options, **_common(call)
            )
        self._count([result], call)
        call.facts["texts"] = 1
        response = await attention_response(result, route.model.name)
        _set_timing(response.timing, [result])
        return response

    async def ListModels(
        self, request: pb.ListModelsRequest, context: Context
    ) -> pb.ListModelsResponse:
        """Describe every model that the caller may use."""
        registry = self._registry
        return pb.ListModelsResponse(models=[describe(model, registry) for model in self._allowed])

    async def GetModel(self, request: pb.GetModelRequest, context: Context) -> pb.Model:
        """Describe one model."""
        current_call().grant.check_models([request.name])
        return describe(self._registry.get(request.name), self._registry)

    async def ListLanguages(
        self, request: pb.ListLanguagesRequest, context: Context
    ) -> pb.ListLanguagesResponse:
        """List every direction, those of the same languages and models together."""
        models: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
        for model in self._allowed:
            directions = model.directions
            models.setdefault((directions.sources, directions.targets), []).append(model.name)
        groups = [
            pb.LanguageGroup(
                source_language_codes=sources, target_language_codes=targets, models=names
            )
            for (sources, targets), names in models.items()
        ]
        return pb.ListLanguagesResponse(groups=groups)

    @property
    def limits(self) -> TranslatorLimits:
        """Of requests: the settings give all models the same. Raises UnavailableError."""
        return next(iter(self._registry)).translator.limits

    def reachable_targets(self, model: str = "") -> Mapping[str, Sequence[str]]:
        """The languages that the caller can translate into, by the language of the texts.

        Args:
            model: the only one that translates; "" for any, or two through a pivot language.

        Raises:
            NotFoundError: there is no such model.
            PermissionDeniedError: the caller may not use it.
            UnavailableError: the models are not loaded yet.
        """
        if not model:
            return self._registry.reachable_targets(self._allowed)
        chosen = self._registry.get(model)
        current_call().grant.check_models([model])
        # Alone, it has no pivot: what it translates into may be what it translates from.
        targets = chosen.directions.targets
        return {
            source: [target for target in targets if chosen.fits(source, target)]
            for source in chosen.directions.sources
        }

    def _check_count(
        self,
        request: pb.TranslateRequest | pb.ScoreRequest | pb.DetectLanguageRequest,
        field: str,
        unit: str,
    ) -> None:
        """Check the number of texts or pairs.

        Before they are unpacked: a message of a few megabytes can hold millions of empty ones.
        """
        count = len(getattr(request, field))
        if not count:
            raise InvalidArgumentError(field, f"at least one {unit[:-1]} is needed")
        self.limits.check_count(field, count, unit)
        current_call().facts[unit] = count

    async def _answer(
        self,
        request: pb.TranslateRequest | pb.ScoreRequest,
        response: _Response,
        results: Sequence[TextResult] | Sequence[PairResult],
        add: _Add,
    ) -> None:
        """Fill in the response, a result at a time."""
        call = current_call()
        self._count(results, call)
        give_back_failed(request, [result.error for result in results])
        _set_timing(response.timing, results)
        for result in results:
            await add(response, result, call.request_id)

    async def _translator(
        self, request: pb.TranslateRequest | pb.StreamTranslateRequest, route: Route
    ) -> tuple[LinkedTranslator, TranslateOptions]:
        """What translates the texts of a request, and the options for it."""
        *before, last = (leg.translator for leg in route.legs)
        is_stream = isinstance(request, pb.StreamTranslateRequest)  # only the last model streams
        defaults = [each.default_options for each in before]
        defaults.append(last.stream_options if is_stream else last.default_options)
        *first, options = (options_of(request.options, default) for default in defaults)
        languages, name = (route.legs[0].source, route.legs[-1].target), request.glossary.name
        named = [await self._glossary(name, *languages)] if name else []
        text_options = await _text_options(request, *named)
        stages = text_translator(route.translator(*first), text_options, languages)
        return stages, options

    async def _glossary(self, name: str, source: str, target: str) -> Glossary:
        """A glossary by its name, or by the id that its owner has."""
        if is_glossary_id(name):
            owner = current_call().grant.owner
            return await self.glossary_store.find(owner, name, source, target)
        return await self.glossaries.get(name, source, target)

    def _count(self, results: Sequence[_Result], call: CallContext) -> None:
        """Count the outcome of each text or pair, and its tokens for the log."""
        self._count_codes(results)
        call.facts.update(
            source_tokens=sum(result.num_source_tokens for result in results),
            target_tokens=sum(result.num_target_tokens for result in results),
        )

    def _count_codes(self, results: Sequence[_Result]) -> None:
        """Count the outcome of each text or pair."""
        for result in results:
            self._metrics.text_finished(code_of(result.error).name if result.error else "OK")
            for found in getattr(result, "warnings", ()):
                self._metrics.warned(found.kind.value)

    def _named_route(self, request: TranslatesRequest) -> Route | None:
        """The route of a request; None if the languages of its texts have to be detected."""
        source = request.source_language_code
        if source.lower() == AUTO:
            return None
        try:
            return self._route(request)
        except InvalidArgumentError as exc:
            if source or exc.field != "source_language_code":
                raise
            return None

    def _route(self, request: _Request) -> Route:
        """The route of a request, for its log line and the metrics too."""
        source, target = request.source_language_code, request.target_language_code
        facts = current_call().facts
        try:
            route = self._find_route(request, source)
        except DragomanError:
            facts.update(source_language=_for_log(source), target_language=_for_log(target))
            raise
        facts.update(
            model=route.model.name,
            source_language=route.legs[0].source,
            target_language=route.legs[-1].target,
        )
        if route.pivot_model:
            facts.update(pivot_model=route.pivot_model, pivot_language=route.pivot_language)
            self._metrics.call_pivoted(route.pivot_model, route.model.name)
        return route

    def _find_route(self, request: _Request, source: str) -> Route:
        """The route of a request from a source language; "" if only one is possible."""
        allow_pivot: bool | None = False
        if not isinstance(request, _DIRECT_REQUESTS):
            options = request.options
            allow_pivot = options.allow_pivot if options.HasField("allow_pivot") else None
        route = self._registry.route(
            request.model, source, request.target_language_code, allow_pivot=allow_pivot
        )
        current_call().grant.check_models(leg.model.name for leg in route.legs)
        return route


async def _text_options(
    request: pb.TranslateRequest | pb.StreamTranslateRequest, *named: Glossary
) -> TextOptions:
    """As `text_options_of`; with a long glossary in a thread, where its terms are indexed too."""
    if len(request.glossary.entries) <= _FEW_ENTRIES:
        return text_options_of(request, *named)

    def options() -> TextOptions:
        found = text_options_of(request, *named)
        found.glossary.prepare()
        return found

    return await in_thread(options)


def _for_log(code: str) -> str:
    """A language's code as a client sent it, unless it is none: texts are not logged."""
    return code if not code or is_language_code(code) else "invalid"


def _common(call: CallContext) -> CallArguments:
    """The arguments of the translator that depend on the call, not on its method."""
    return {
        "deadline": call.deadline,
        "request_id": call.request_id,
        "client": call.client,
        "client_id": call.client_id,
    }


_Answer = pb.TranslateResponse | pb.TranslateDocumentResponse | pb.StreamSummary
_Detected = pb.Translation | pb.TranslateDocumentResponse | pb.StreamSummary


def _set_models(answer: _Answer, route: Route) -> None:
    """Set the models that translated, and the language between them."""
    answer.model = route.model.name
    answer.pivot_language_code = route.pivot_language
    answer.pivot_model = route.pivot_model


def _summary(
    result: TextResult, route: Route | None, detected: DetectedText | None
) -> pb.StreamSummary:
    summary = pb.StreamSummary(
        finish_reason=finish_reason_of(result),
        source_token_count=result.num_source_tokens,
        target_token_count=result.num_target_tokens,
        was_split=result.was_split,
        terms=map(term_use, result.terms),
        confidence=result.confidence,
        warnings=map(warning, result.warnings),
    )
    if route is not None:
        _set_models(summary, route)
    if detected is not None:
        _set_detected(summary, detected)
    _set_timing(summary.timing, [result])
    return summary


def _unchanged(content: str, detected: DetectedText) -> Iterator[pb.StreamTranslateResponse]:
    """The answer to a stream of a text that is in the target language. Raises its error."""
    if detected.error is not None:
        raise detected.error
    if content:
        yield pb.StreamTranslateResponse(delta=pb.TextDelta(text=content))
    result = TextResult(content, FinishReason.EOS)
    yield pb.StreamTranslateResponse(summary=_summary(result, None, detected))


def _set_detected(answer: _Detected, detected: DetectedText) -> None:
    """Set the language that was detected."""
    answer.detected_language_code = detected.language.code
    answer.detection_confidence = detected.language.confidence


def _set_timing(timing: pb.Timing, results: Sequence[_Result | DocumentTotals]) -> None:
    """Set the longest wait and the longest computation of any text."""
    queue_seconds = max((result.queue_seconds for result in results), default=0.0)
    compute_seconds = max((result.compute_seconds for result in results), default=0.0)
    timing.queue_duration.FromNanoseconds(round(queue_seconds * 1e9))
    timing.compute_duration.FromNanoseconds(round(compute_seconds * 1e9))
