"""TranslationService: protobuf to the domain and back, nothing else.

Errors are raised; the interceptor, or the HTTP front, sends them.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator, Sequence

from dragoman.v1 import translation_pb2 as pb
from dragoman.v1 import translation_pb2_grpc
from service.calls import attention, detect, document, languages, score, stream, translate
from service.calls.backend import Result
from service.calls.call_context import Context, current_call
from service.calls.detected_texts import DetectedText
from service.calls.document import DocumentTotals
from service.calls.translate import Translated
from service.common.fairness import checkpoint
from service.errors import InvalidArgumentError
from service.fronts.dragoman.conversions import (
    add_score,
    add_translation,
    attention_options_of,
    attention_response,
    result_fields,
    score_options_of,
    warning,
)
from service.fronts.dragoman.memories import MemoryServicer
from service.fronts.dragoman.model_descriptions import describe
from service.fronts.dragoman.requests import model_request_of, text_request_of
from service.models.routing import Route

SERVICE = pb.DESCRIPTOR.services_by_name["TranslationService"].full_name

# Options of an answer that a document has no place for.
_NOT_OF_DOCUMENTS = ("num_hypotheses", "return_tokens", "return_alignments")


class TranslationServicer(MemoryServicer, translation_pb2_grpc.TranslationServiceServicer):
    """Answers calls of the contract with the use cases, over the parts of a server."""

    async def Translate(self, request: pb.TranslateRequest, _: Context) -> pb.TranslateResponse:
        """Translate all texts, in order."""
        texts = list(request.contents)
        translated = await translate.translate(self.backend, texts, text_request_of(request))
        response, request_id = pb.TranslateResponse(), current_call().request_id
        if translated.route is not None:
            _set_models(response, translated.route)
        _set_timing(response.timing, translated.results)
        for result in translated.results:
            await add_translation(response, result, request_id)
        for translation, detected in zip(response.translations, translated.detected, strict=False):
            _set_detected(translation, detected)
        return response

    async def StreamTranslate(
        self, request: pb.StreamTranslateRequest, _: Context
    ) -> AsyncIterator[pb.StreamTranslateResponse]:
        """Stream the deltas of one text, then the summary."""
        how = text_request_of(request)
        async with contextlib.aclosing(stream.stream(self.backend, request.content, how)) as events:
            async for event in events:
                if isinstance(event, Translated):
                    yield pb.StreamTranslateResponse(summary=_summary(event))
                else:
                    yield pb.StreamTranslateResponse(delta=pb.TextDelta(text=event))

    async def TranslateDocument(
        self, request: pb.TranslateDocumentRequest, _: Context
    ) -> pb.TranslateDocumentResponse:
        """Translate the texts of a file, and write it again."""
        _check_document_options(request.options)
        translated = await document.translate_document(
            self.backend, request.file_name, request.content, text_request_of(request)
        )
        totals = translated.totals
        response = pb.TranslateDocumentResponse(
            content=translated.content,
            segment_count=translated.num_segments,
            source_token_count=totals.num_source_tokens,
            target_token_count=totals.num_target_tokens,
            warnings=map(warning, totals.warnings),
            warning_count=totals.num_warnings,
            cached_character_count=totals.num_cached_characters,
            memory_match_count=totals.num_memory_matches,
        )
        if translated.route is not None:
            _set_models(response, translated.route)
        if translated.detected is not None:
            _set_detected(response, translated.detected)
        _set_timing(response.timing, [totals])
        return response

    async def DetectLanguage(
        self, request: pb.DetectLanguageRequest, _: Context
    ) -> pb.DetectLanguageResponse:
        """Detect the language of each text, in order."""
        response = pb.DetectLanguageResponse()
        for found in await detect.detect(self.backend, list(request.contents)):
            await checkpoint()
            detection = response.detections.add()
            for language in found:
                detection.languages.add(
                    language_code=language.code,
                    confidence=language.confidence,
                    is_served=language.is_served,
                )
        return response

    async def Score(self, request: pb.ScoreRequest, context: Context) -> pb.ScoreResponse:
        """Score all pairs, in order."""
        pairs = [(pair.source_text, pair.translated_text) for pair in request.pairs]
        options = functools.partial(score_options_of, request.options)
        results, route = await score.score(self.backend, pairs, model_request_of(request), options)
        response, request_id = pb.ScoreResponse(model=route.model.name), current_call().request_id
        _set_timing(response.timing, results)
        for result in results:
            await add_score(response, result, request_id)
        return response

    async def GetAttention(self, request: pb.AttentionRequest, _: Context) -> pb.AttentionResponse:
        """The attention weights of a text and its translation, which may have to be made first."""
        pair = request.source_text, request.translated_text
        options = functools.partial(attention_options_of, request.options)
        result, route = await attention.attention(
            self.backend, pair, model_request_of(request), options
        )
        response = await attention_response(result, route.model.name)
        _set_timing(response.timing, [result])
        return response

    async def ListModels(self, request: pb.ListModelsRequest, _: Context) -> pb.ListModelsResponse:
        """Describe every model that the caller may use."""
        models = languages.list_models(self.backend)
        return pb.ListModelsResponse(models=[describe(*model) for model in models])

    async def GetModel(self, request: pb.GetModelRequest, _: Context) -> pb.Model:
        """Describe one model."""
        return describe(*languages.get_model(self.backend, request.name))

    async def ListLanguages(
        self, request: pb.ListLanguagesRequest, _: Context
    ) -> pb.ListLanguagesResponse:
        """List every direction, those of the same languages and models together."""
        found = languages.list_languages(self.backend)
        groups = [
            pb.LanguageGroup(
                source_language_codes=sources, target_language_codes=targets, models=models
            )
            for (sources, targets), models in found.items()
        ]
        pivoted = [
            pb.LanguageGroup(
                source_language_codes=sources,
                target_language_codes=targets,
                pivot_language_code=pivot,
            )
            for sources, targets, pivot in languages.list_pivots(self.backend)
        ]
        return pb.ListLanguagesResponse(groups=groups, pivoted_groups=pivoted)


def _check_document_options(options: pb.TranslateOptions) -> None:
    """Refuse options of an answer that a document has no place for.

    Raises:
        InvalidArgumentError: one is set; names it.
    """
    for name in _NOT_OF_DOCUMENTS:
        if getattr(options, name):
            raise InvalidArgumentError(f"options.{name}", "a document returns only its file")
    if options.search.target_prefix:
        raise InvalidArgumentError(
            "options.search.target_prefix", "every part of a document would begin with it"
        )


_Answer = pb.TranslateResponse | pb.TranslateDocumentResponse | pb.StreamSummary
_Detected = pb.Translation | pb.TranslateDocumentResponse | pb.StreamSummary


def _set_models(answer: _Answer, route: Route) -> None:
    """Set the models that translated, and the language between them."""
    answer.model = route.model.name
    answer.pivot_language_code = route.pivot_language
    answer.pivot_model = route.pivot_model


def _summary(translated: Translated) -> pb.StreamSummary:
    [result] = translated.results
    summary = pb.StreamSummary(**result_fields(result))
    if translated.route is not None:
        _set_models(summary, translated.route)
    if translated.detected:
        _set_detected(summary, translated.detected[0])
    _set_timing(summary.timing, [result])
    return summary


def _set_detected(answer: _Detected, detected: DetectedText) -> None:
    """Set the language that was detected."""
    answer.detected_language_code = detected.language.code
    answer.detection_confidence = detected.language.confidence


def _set_timing(timing: pb.Timing, results: Sequence[Result | DocumentTotals]) -> None:
    """Set the longest wait and the longest computation of any text."""
    queue_seconds = max((result.queue_seconds for result in results), default=0.0)
    compute_seconds = max((result.compute_seconds for result in results), default=0.0)
    timing.queue_duration.FromNanoseconds(round(queue_seconds * 1e9))
    timing.compute_duration.FromNanoseconds(round(compute_seconds * 1e9))
