"""Translates texts whose languages the request does not name: detects them, then routes each."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from dragoman.v1 import translation_pb2 as pb
from model.bundle.languages import Language
from service.common.fairness import checkpoint
from service.domain.requests import FinishReason
from service.errors import (
    DragomanError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
)
from service.models.registry import Registry
from service.models.routing import Route
from service.models.routing_rules import shortened
from service.models.served_model import ServedModel
from service.text.detection import UNDETERMINED, LanguageDetector, LanguageGuess, chosen
from service.translation.results import TextResult

AUTO = "auto"
"""The source language of a request whose texts' languages are to be detected."""

TranslatesRequest = pb.TranslateRequest | pb.StreamTranslateRequest
FindRoute = Callable[[str], Route]
"""The route of a request from a source language."""


@dataclass(frozen=True)
class DetectedText:
    """A text whose language was detected.

    Attributes:
        language: what was detected.
        route: how the text is translated; None if it is not.
        error: why it is not; None if it need not be, because it is in the target language.
    """

    language: LanguageGuess
    route: Route | None = None
    error: DragomanError | None = None


def distinct_routes(texts: Iterable[DetectedText]) -> list[Route]:
    """The routes of texts, each once."""
    return list({text.route.key: text.route for text in texts if text.route is not None}.values())


class TextRouter:
    """Detects the languages of texts, and finds a route for each.

    Args:
        detector: of languages.
    """

    def __init__(self, detector: LanguageDetector) -> None:
        self._detector = detector

    def check_target(
        self,
        request: TranslatesRequest,
        registry: Registry,
        find_route: FindRoute,
        allowed: Iterable[ServedModel],
    ) -> None:
        """Check what does not depend on the texts.

        Args:
            request: names the target language, and perhaps the model.
            registry: has the models.
            find_route: finds the request's route from a source language.
            allowed: the models that the caller may use.

        Raises:
            NotFoundError: nothing translates into the target language; there is no such model.
            PermissionDeniedError: nothing that the caller may use translates into it.
        """
        _sources(request, registry)
        _check_target(find_route)
        target = request.target_language_code
        models = [model for model in allowed if request.model in ("", model.name)]
        if not any(model.directions.may_fit("", target) for model in models):
            raise PermissionDeniedError(
                f"the key does not allow a model that translates into {shortened(target)}"
            )

    async def route(
        self,
        request: TranslatesRequest,
        texts: Sequence[str],
        registry: Registry,
        find_route: FindRoute,
        field: Callable[[int], str],
    ) -> list[DetectedText]:
        """The route of each text of a request, or the error of the text.

        Args:
            request: with the target language and the model.
            texts: of the request, within its limits.
            registry: of the models.
            find_route: of the request.
            field: the name of a text, by its index.

        Raises:
            NotFoundError: nothing translates into the target language; there is no such model.
        """
        target = request.target_language_code
        sources = _sources(request, registry)
        _check_target(find_route)
        served = sources if not target or target in sources else (*sources, target)
        found = await self._detector.detect(texts, served)
        routed: dict[str, DetectedText | DragomanError] = {}
        result = []
        for index, languages in enumerate(found):
            await checkpoint()
            language = chosen(languages)
            if language.code not in routed:  # not once a text: there are a thousand
                routed[language.code] = _routed(language, sources, target, find_route)
            text = routed[language.code]
            if isinstance(text, DetectedText):
                result.append(dataclasses.replace(text, language=language))
                continue
            if not isinstance(text, PermissionDeniedError):
                text = InvalidArgumentError(field(index), str(text))
            result.append(DetectedText(language, error=text))
        return result


def _sources(request: TranslatesRequest, registry: Registry) -> tuple[str, ...]:
    """The languages that the server, or the request's model, translates from."""
    models = [registry.get(request.model)] if request.model else list(registry)
    return tuple(dict.fromkeys(code for model in models for code in model.directions.sources))


def _check_target(find_route: FindRoute) -> None:
    """Raise NotFoundError if nothing translates into the request's target language."""
    try:
        find_route("")
    except (InvalidArgumentError, PermissionDeniedError):  # of one language, it may be another
        return


def _routed(
    language: LanguageGuess, sources: Sequence[str], target: str, find_route: FindRoute
) -> DetectedText | DragomanError:
    if language.code == UNDETERMINED:
        for source in sources:
            try:
                return DetectedText(language, find_route(source))
            except (NotFoundError, InvalidArgumentError, PermissionDeniedError):
                continue
        return DetectedText(language)
    try:
        return DetectedText(language, find_route(language.code))
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
    """Translate texts with the routes that were found for them, those of a route together.

    Args:
        texts: of a request.
        routed: the route or the error of each.
        translate: the texts of one route.

    Returns:
        A result for each text, in order.

    Raises:
        DragomanError: what `translate` raises.
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
