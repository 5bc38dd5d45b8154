"""Answers the calls of Google's contract with those of ours."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from dragoman.v1 import translation_pb2 as pb
from service.api.call_context import current_call
from service.api.front_call import FrontCall
from service.api.google_v3.messages import (
    DetectLanguageResponse,
    SupportedLanguages,
    TranslateTextResponse,
)
from service.api.language_names import language_name
from service.errors import InvalidArgumentError
from service.text.detection import UNDETERMINED

# Google's own models, for each of which the server takes its own choice.
_GENERAL = "general/"
# Of a call's log line, over both translations of a text.
_SUMS = ("texts", "source_tokens", "target_tokens")


async def translate_text(request: Any, call: FrontCall) -> Any:
    """Translate texts: HTML, unless the request says otherwise. Raises DragomanError."""
    if request.HasField("transliteration_config"):
        raise InvalidArgumentError("transliteration_config", "not supported")
    config = request.glossary_config if request.HasField("glossary_config") else None
    asked = pb.TranslateRequest(
        contents=request.contents,
        source_language_code=request.source_language_code or "auto",
        target_language_code=_target(request),
        model=_model(request.model),
        mime_type=request.mime_type or "text/html",
    )
    answer = TranslateTextResponse()
    if config is None:
        response = await call.translate(asked)
    else:
        asked.glossary.name = _glossary(config)
        response = await call.translate(asked)
        _add(answer.glossary_translations, request, response, config)
        response = await _without_terms(asked, response, call)
    _add(answer.translations, request, response)
    return answer


async def _without_terms(
    asked: pb.TranslateRequest, response: pb.TranslateResponse, call: FrontCall
) -> pb.TranslateResponse:
    """The response without a glossary. Only texts that have terms of it are translated again."""
    having = [index for index, each in enumerate(response.translations) if each.terms]
    if not having:
        return response
    again = pb.TranslateRequest()
    again.CopyFrom(asked)
    again.ClearField("glossary")
    del again.contents[:]
    again.contents.extend(asked.contents[index] for index in having)
    facts = current_call().facts
    before = dict(facts)
    plain = await call.translate(again)
    facts.update({name: before[name] + facts[name] for name in _SUMS})  # type: ignore[operator]
    merged = pb.TranslateResponse()
    merged.CopyFrom(response)
    for index, translation in zip(having, plain.translations, strict=True):
        merged.translations[index].CopyFrom(translation)
    return merged


def _add(
    translations: Any, request: Any, response: pb.TranslateResponse, config: Any = None
) -> None:
    for translation in response.translations:
        translations.add(
            translated_text=translation.translated_text,
            model=f"{request.parent}/models/{response.model}" if request.model else "",
            detected_language_code=translation.detected_language_code,
            glossary_config=config,
        )


async def detect_language(request: Any, call: FrontCall) -> Any:
    """Detect the language of a text. Raises DragomanError."""
    if not request.HasField("source"):
        raise InvalidArgumentError("content", "is missing")
    [detection] = await call.detect([request.content])
    answer = DetectLanguageResponse()
    for language in detection.languages:
        answer.languages.add(language_code=language.language_code, confidence=language.confidence)
    if not detection.languages:
        answer.languages.add(language_code=UNDETERMINED)
    return answer


async def get_supported_languages(request: Any, call: FrontCall) -> Any:
    """List languages, with their English names if the request asks for names."""
    targets = call.targets(_model(request.model))
    into = {target for each in targets.values() for target in each}
    answer = SupportedLanguages()
    for code in sorted({*targets, *into}):
        answer.languages.add(
            language_code=code,
            display_name=language_name(code) if request.display_language_code else "",
            support_source=code in targets,
            support_target=code in into,
        )
    return answer


@dataclass(frozen=True)
class GoogleCall:
    """A call of Google's contract.

    Attributes:
        request: the name of its message.
        method: the call of our contract that it is counted as.
        answer: from the request to its answer.
        summary: what it does.
    """

    request: str
    method: str
    answer: Callable[[Any, FrontCall], Awaitable[Any]]
    summary: str


CALLS = {
    "TranslateText": GoogleCall(
        "TranslateTextRequest", "Translate", translate_text, "Translate texts"
    ),
    "DetectLanguage": GoogleCall(
        "DetectLanguageRequest", "DetectLanguage", detect_language, "Detect a language"
    ),
    "GetSupportedLanguages": GoogleCall(
        "GetSupportedLanguagesRequest", "ListLanguages", get_supported_languages, "List languages"
    ),
}


def _target(request: Any) -> str:
    if not request.target_language_code:
        raise InvalidArgumentError("target_language_code", "is missing")
    return str(request.target_language_code)


def _glossary(config: Any) -> str:
    """Our name of a glossary such as projects/P/locations/L/glossaries/NAME."""
    for field in ("ignore_case", "contextual_translation_enabled"):
        if getattr(config, field):
            raise InvalidArgumentError(f"glossary_config.{field}", "not supported")
    name = str(config.glossary).rpartition("/glossaries/")[2]
    if not name:
        raise InvalidArgumentError("glossary_config.glossary", "is missing")
    return name


def _model(name: str) -> str:
    """Our name of a model such as projects/P/locations/L/models/NAME; "" for Google's own."""
    _, found, model = name.rpartition("/models/")
    model = model if found else name
    return "" if model.startswith(_GENERAL) else model
