"""Translates texts whose languages the request does not name: detects them, then routes each."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from model.bundle.languages import Language
from service.calls.backend import Backend
from service.calls.call_context import current_call
from service.calls.requests import ModelRequest
from service.calls.routes import find_route, for_log
from service.common.fairness import checkpoint
from service.domain.requests import FinishReason
from service.errors import (
    DragomanError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
)
from service.models.routing import Route
from service.models.routing_rules import shortened
from service.text.detection import UNDETERMINED, LanguageGuess, chosen
from service.translation.results import TextResult


@dataclass(frozen=True)
class DetectedText:
    """A text whose language was detected.

    Attributes:
        route: the models that translate the text; None if it is not translated.
        error: the reason why the text can't be translated; None if it can, or if it is in the
            target language.
    """

    language: LanguageGuess
    route: Route | None = None
    error: DragomanError | None = None


def distinct_routes(texts: Iterable[DetectedText]) -> list[Route]:
    """The routes of texts, each once."""
    return list({text.route.key: text.route for text in texts if text.route is not None}.values())


def check_target(backend: Backend, request: ModelRequest) -> None:
    """Check the target language and the model of a request, before its texts are read.

    Raises:
        NotFoundError: nothing translates into the target language; there is no such model.
        PermissionDeniedError: nothing that the caller may use translates into it.
        UnavailableError: the models are loading.
    """
    _sources(backend, request)
    models = [model for model in backend.allowed_models if request.model in ("", model.name)]
    if not any(model.directions.may_fit("", request.target) for model in models):
        raise PermissionDeniedError(
            f"the key does not allow a model that translates into {shortened(request.target)}"
        )


async def detected_texts(
    backend: Backend, request: ModelRequest, texts: Sequence[str], field: Callable[[int], str]
) -> list[DetectedText]:
    """The language and the route of each text, noted for the log and the metrics.

    Args:
        texts: texts without markup, within the limits.
        field: the name of a text's field, by the text's index; for errors.

    Raises:
        NotFoundError: nothing translates into the target language; there is no such model.
        UnavailableError: the models are loading.
    """
    target, sources = request.target, _sources(backend, request)
    served = sources if not target or target in sources else (*sources, target)
    routed: dict[str, DetectedText | DragomanError] = {}
    found = []
    for index, languages in enumerate(await backend.detector.detect(texts, served)):
        await checkpoint()
        language = chosen(languages)
        if language.code not in routed:  # not once a text: there are a thousand
            routed[language.code] = _routed(backend, request, language, sources)
        text = routed[language.code]
        if isinstance(text, DetectedText):
            found.append(dataclasses.replace(text, language=language))
            continue
        if not isinstance(text, PermissionDeniedError):
            text = InvalidArgumentError(field(index), str(text))
        found.append(DetectedText(language, error=text))
    _note(backend, request, distinct_routes(found))
    return found


def _note(backend: Backend, request: ModelRequest, routes: Sequence[Route]) -> None:
    current_call().facts.update(
        model=",".join(dict.fromkeys(route.model.name for route in routes)),
        source_language=",".join(dict.fromkeys(route.legs[0].source for route in routes)),
        target_language=for_log(request.target),
        detected=True,
    )
    for route in routes:
        if route.pivot_model:
            backend.metrics.call_pivoted(route.pivot_model, route.model.name)


def _sources(backend: Backend, request: ModelRequest) -> tuple[str, ...]:
    """The languages that the server, or the request's model, translates from.

    Raises NotFoundError if nothing translates into the request's target language.
    """
    registry = backend.registry
    models = [registry.get(request.model)] if request.model else list(registry)
    # Other errors depend on the language of a text.
    with contextlib.suppress(InvalidArgumentError, PermissionDeniedError):
        find_route(backend, request, "")
    return tuple(dict.fromkeys(code for model in models for code in model.directions.sources))


def _routed(
    backend: Backend, request: ModelRequest, language: LanguageGuess, sources: Sequence[str]
) -> DetectedText | DragomanError:
    target = request.target
    if language.code == UNDETERMINED:
        for source in sources:
            try:
                return DetectedText(language, find_route(backend, request, source))
            except (NotFoundError, InvalidArgumentError, PermissionDeniedError):
                continue
        return DetectedText(language)
    try:
        return DetectedText(language, find_route(backend, request, language.code))
    except PermissionDeniedError as exc:  # the other texts may need other models
        return exc
    except (NotFoundError, InvalidArgumentError) as exc:
        if target and Language.parse(target).code == Language.parse(language.code).code:
            return DetectedText(language)
        if language.code in sources:
            return exc
        return NotFoundError(
            f"its language seems to be {language.code!r}, which this server does not translate; "
            "if that is wrong, name the source language"
        )


TranslateGroup = Callable[[Route, Sequence[str]], Awaitable[Sequence[TextResult]]]


async def translate_groups(
    texts: Sequence[str], routed: Sequence[DetectedText], translate: TranslateGroup
) -> list[TextResult]:
    """Translate texts by their routes; texts with the same route are translated together.

    Returns a result for each text, in order. Raises the errors of `translate`.
    """
    results = [_untranslated(text, found) for text, found in zip(texts, routed, strict=True)]

    async def translate_group(route: Route) -> None:
        indices = [
            index
            for index, found in enumerate(routed)
            if found.route is not None and found.route.key == route.key
        ]
        translated = await translate(route, [texts[index] for index in indices])
        for index, result in zip(indices, translated, strict=True):
            results[index] = _renamed(result, index)

    try:
        async with asyncio.TaskGroup() as tasks:
            for route in distinct_routes(routed):
                tasks.create_task(translate_group(route))
    except BaseExceptionGroup as exc:
        raise exc.exceptions[0] from None
    return results


def _untranslated(text: str, found: DetectedText) -> TextResult:
    if found.error is not None:
        return TextResult("", None, error=found.error)
    return TextResult(text, FinishReason.EOS)


def _renamed(result: TextResult, index: int) -> TextResult:
    """A result whose error names the text by its index in the request, not in its group."""
    error = result.error
    if not isinstance(error, InvalidArgumentError) or not error.field.startswith("contents["):
        return result
    renamed = InvalidArgumentError(f"contents[{index}]", error.description)
    return dataclasses.replace(result, error=renamed)
