"""Translates texts."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from model.bundle.languages import Language, LanguageError, find_language
from service.calls.backend import Backend, call_arguments
from service.calls.call_context import current_call
from service.calls.charging import charge, give_back_cached, give_back_failed
from service.calls.detected_texts import (
    DetectedText,
    detected_texts,
    distinct_routes,
    translate_groups,
)
from service.calls.languages import reachable_targets
from service.calls.requests import TextRequest
from service.calls.routes import for_log, route_if_named
from service.calls.text_stages import text_options, text_stages
from service.domain.requests import FinishReason
from service.models.routing import Route
from service.text.detection import UNDETERMINED
from service.text.markup.markup_translator import plain_texts
from service.translation.results import TextResult


@dataclass(frozen=True)
class Translated:
    """The answer to a request for translations.

    Attributes:
        results: one for each text, in order.
        route: the models that translated all texts; None if there were several routes, or none.
        detected: the language of each text; empty if the request names it.
    """

    results: Sequence[TextResult]
    route: Route | None = None
    detected: Sequence[DetectedText] = ()

    def language(self, index: int) -> tuple[str, float]:
        """The code of the detected language of a text, and its probability; "" and 0 without one.

        For a text that shows nothing of its language, the one that it was translated from.
        """
        if not self.detected:
            return "", 0.0
        found, result = self.detected[index], self.results[index]
        code, confidence = found.language.code, float(found.language.confidence)
        if code == UNDETERMINED and found.route is not None and result.num_source_tokens:
            code = found.route.legs[0].source
        return code, confidence


async def translate(backend: Backend, texts: Sequence[str], request: TextRequest) -> Translated:
    """Translate texts. A text that can't be translated has its error in its result.

    Raises:
        DragomanError: the request is invalid or refused.
    """
    request = charge(request, texts)
    backend.check_count("contents", len(texts), "texts")
    detected: Sequence[DetectedText] = ()
    if (route := route_if_named(backend, request)) is not None:
        results = await translate_along(backend, route, texts, request)
    else:
        await backend.any_translator.check_texts(texts)
        plain = await plain_texts(texts, await text_options(request))
        detected = await detected_texts(backend, request, plain, lambda i: f"contents[{i}]")
        along = functools.partial(translate_along, backend, request=request)
        results = await translate_groups(texts, detected, along)
        routes = distinct_routes(detected)
        route = routes[0] if len(routes) == 1 else None
    backend.count(results)
    give_back_failed(results, texts)
    if backend.cache_is_free:
        give_back_cached(results, texts)
    return Translated(results, route, detected)


async def translate_all(backend: Backend, texts: Sequence[str], request: TextRequest) -> Translated:
    """Translate texts, as `translate`. Raises DragomanError, also for the first bad text."""
    translated = await translate(backend, texts, request)
    for result in translated.results:
        if result.error is not None:
            raise result.error
    return translated


async def translate_or_copy(
    backend: Backend, texts: Sequence[str], request: TextRequest
) -> Translated:
    """Translate texts, or copy them if source and target are one language. Raises DragomanError."""
    if not _is_of_one_language(backend, request.source, request.target):
        return await translate_all(backend, texts, request)
    charge(request, texts)
    backend.check_count("contents", len(texts), "texts")
    await backend.any_translator.check_texts(texts)
    current_call().facts.update(
        source_language=for_log(request.source), target_language=for_log(request.target)
    )
    results = [TextResult(text, FinishReason.EOS) for text in texts]
    backend.count(results)
    return Translated(results)


async def translate_along(
    backend: Backend, route: Route, texts: Sequence[str], request: TextRequest
) -> Sequence[TextResult]:
    """Translate texts with the models of a route. Raises DragomanError."""
    async with backend.registry.lease(route) as served:
        translator, options = await text_stages(backend, served, request)
        return await translator.translate(texts, options, **call_arguments())


def _is_of_one_language(backend: Backend, source: str, target: str) -> bool:
    """Whether two codes are one language that the caller is served, without a model for it."""
    if Language.parse(source).code != Language.parse(target).code:
        return False  # nearly always, and the languages need not be collected
    targets = reachable_targets(backend)
    served = dict.fromkeys(itertools.chain(targets, *targets.values()))
    try:
        language, other = find_language(source, served), find_language(target, served)
    except LanguageError:
        return False
    return language == other and language not in targets.get(language, ())
