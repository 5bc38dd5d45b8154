"""Answers the calls of Google's contract with the use cases."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from service.calls.backend import Backend
from service.calls.call_context import current_call
from service.calls.detect import detect
from service.calls.languages import reachable_targets
from service.calls.requests import TextRequest
from service.calls.translate import Translated, translate_all
from service.errors import InvalidArgumentError, NotFoundError
from service.fronts.google_v3.messages import (
    DetectLanguageResponse,
    SupportedLanguages,
    TranslateTextResponse,
)
from service.fronts.language_names import language_name
from service.text.detection import UNDETERMINED

# Google's own models, for each of which the server takes its own choice.
_GENERAL = "general/"
# Of a call's log line, over both translations of a text.
_SUMS = ("texts", "source_tokens", "target_tokens")
# Resource names. An answer repeats them for each text, so their parts are bounded.
_PART = "[^/\\s]{1,100}"
_NAME = "[^/]{1,200}"
_PARENT = f"projects/{_PART}(?:/locations/{_PART})?"
_BAD_LANGUAGE = re.compile(r"((?:source|target)_language_code): (.*)", re.DOTALL)
_PARENT_EXAMPLE = "projects/my-project/locations/global"


async def translate_text(request: Any, backend: Backend) -> Any:
    """Translate texts: HTML, unless the request says otherwise. Raises DragomanError."""
    _check_parent(request)
    if request.HasField("transliteration_config"):
        raise InvalidArgumentError("transliteration_config", "not supported")
    for index, text in enumerate(request.contents):
        if not text:
            raise InvalidArgumentError(f"contents[{index}]", "is empty")
    asked = TextRequest(
        source=request.source_language_code or "auto",
        target=_target(request),
        model=_model(request.model),
        mime_type=request.mime_type or "text/html",
    )
    with _renaming("glossary.name", "glossary_config.glossary"):
        return await _translated(request, asked, backend)


async def _translated(request: Any, asked: TextRequest, backend: Backend) -> Any:
    answer = TranslateTextResponse()
    texts = list(request.contents)
    if not request.HasField("glossary_config"):
        _add(answer.translations, request, await translate_all(backend, texts, asked))
        return answer
    config = request.glossary_config
    with_terms = replace(asked, glossary=_glossary(config))
    translated = await translate_all(backend, texts, with_terms)
    _add(answer.glossary_translations, request, translated, config)
    plain = await _without_terms(texts, asked, translated, backend)
    _add(answer.translations, request, plain)
    return answer


async def _without_terms(
    texts: Sequence[str], asked: TextRequest, translated: Translated, backend: Backend
) -> Translated:
    """The answer without a glossary. Only texts that have terms of it are translated again."""
    having = [index for index, result in enumerate(translated.results) if result.terms]
    if not having:
        return translated
    facts = current_call().facts
    before = dict(facts)
    plain = await translate_all(backend, [texts[index] for index in having], asked)
    facts.update({name: before[name] + facts[name] for name in _SUMS})  # type: ignore[operator]
    results = list(translated.results)
    for index, result in zip(having, plain.results, strict=True):
        results[index] = result
    return replace(translated, results=results)


def _add(translations: Any, request: Any, translated: Translated, config: Any = None) -> None:
    model = translated.route.model.name if translated.route else ""
    for index, result in enumerate(translated.results):
        translations.add(
            translated_text=result.text,
            model=f"{request.parent}/models/{model}" if request.model else "",
            detected_language_code=translated.language(index)[0],
            glossary_config=config,
        )


async def detect_language(request: Any, backend: Backend) -> Any:
    """Detect the language of a text. Raises DragomanError."""
    _check_parent(request)
    if not request.HasField("source"):
        raise InvalidArgumentError("content", "is missing")
    with _renaming("contents[0]", "content"):
        [languages] = await detect(backend, [request.content])
    answer = DetectLanguageResponse()
    for language in languages:
        answer.languages.add(language_code=language.code, confidence=language.confidence)
    if not languages:
        answer.languages.add(language_code=UNDETERMINED)
    return answer


async def get_supported_languages(request: Any, backend: Backend) -> Any:
    """List languages, with their English names if the request asks for names.

    Raises:
        DragomanError: a bad resource name, or there is no such model.
    """
    _check_parent(request)
    targets = reachable_targets(backend, _model(request.model))
    into = set[str]().union(*targets.values())
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
        answer: function from the request to its answer.
        summary: description of the call.
    """

    request: str
    method: str
    answer: Callable[[Any, Backend], Awaitable[Any]]
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
    if not config.glossary:
        raise InvalidArgumentError("glossary_config.glossary", "is missing")
    return _last_part("glossary_config.glossary", str(config.glossary), "glossaries")


def _model(name: str) -> str:
    """Our name of a model such as projects/P/locations/L/models/NAME; "" for Google's own."""
    model = _last_part("model", name, "models") if name else ""
    return "" if model.startswith(_GENERAL) else model


def _last_part(field: str, name: str, kind: str) -> str:
    """The name of a thing, by itself or at the end of a resource name."""
    found = re.fullmatch(rf"(?:{_PARENT}/{kind}/)?((?:{_GENERAL})?{_NAME})", name)
    if found is None:
        raise InvalidArgumentError(
            field, f"must be a name, or such as {_PARENT_EXAMPLE}/{kind}/my-name"
        )
    return found[1]


def _check_parent(request: Any) -> None:
    if not re.fullmatch(_PARENT, request.parent):
        is_missing = "is missing; it " if not request.parent else ""
        raise InvalidArgumentError("parent", f"{is_missing}must be such as {_PARENT_EXAMPLE}")


@contextlib.contextmanager
def _renaming(field: str, name: str) -> Iterator[None]:
    """Raise errors of the block with the name of a field in Google's contract, and its codes."""
    try:
        yield
    except InvalidArgumentError as exc:
        if exc.field != field:
            raise
        raise InvalidArgumentError(name, exc.description) from exc
    except NotFoundError as exc:
        if found := _BAD_LANGUAGE.fullmatch(str(exc)):  # no language code at all
            raise InvalidArgumentError(found[1], found[2]) from exc
        raise NotFoundError(str(exc).replace(f"{field}:", f"{name}:", 1)) from exc
