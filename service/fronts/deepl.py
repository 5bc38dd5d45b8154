"""DeepL's API, version 2, at its paths (https://developers.deepl.com/api-reference).

Errors are `{"message": ...}`. Options that are not supported are refused if they change the meaning
of a request, and ignored if they only advise a translation (proto/FRONTS.md lists both).
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import grpc

from service.calls.call_context import current_call
from service.calls.languages import reachable_targets
from service.calls.requests import TextRequest
from service.calls.translate import translate_all
from service.errors import InvalidArgumentError
from service.fronts.deepl_glossaries import DeepLGlossaries
from service.fronts.http.fields import Fields
from service.fronts.http.front_endpoint import Failure, FrontCall, operation
from service.fronts.language_names import language_name
from service.text.options import LineBreaks

_QUOTA_EXCEEDED = 456
_STATUSES = {grpc.StatusCode.NOT_FOUND: 400, grpc.StatusCode.UNAUTHENTICATED: 403}
_REFUSED = ("style_id", "custom_instructions", "translation_memory_id")
_FORMALITIES = ("default", "prefer_more", "prefer_less")
# DeepL's servers return this limit for plans without one.
_NO_LIMIT = 1_000_000_000_000
_TRANSLATE = {
    "text": "a list of texts",
    "source_lang": "the language of the texts; detected if it is left out",
    "target_lang": "the language to translate into",
    "tag_handling": "xml or html",
    "ignore_tags": "tags whose content is not translated",
    "split_sentences": "1, 0 or nonewlines; 1 by default, but nonewlines with tag_handling html",
    "glossary_id": "of a glossary that was made here, or the name of one of the server",
    "formality": "default, prefer_more or prefer_less: without effect",
    "show_billed_characters": "whether to return the characters that count",
}
_LANGUAGES = {"type": "source (default) or target"}
_FIELD_NAMES = {
    "contents": "text",
    "source_language_code": "source_lang",
    "target_language_code": "target_lang",
    "glossary.name": "glossary_id",
}


class DeepL(DeepLGlossaries):
    """The front for clients of DeepL."""

    name = "deepl"
    title = "DeepL"
    prefixes = ("/v2", "/v3")
    field_names = _FIELD_NAMES
    statuses = _STATUSES

    def credential(self, fields: Fields) -> str:
        """The old parameter `auth_key`; newer clients send a header."""
        return fields.text("auth_key")

    def error(self, failure: Failure) -> tuple[int, Any]:
        """`{"message": ...}`."""
        status = _QUOTA_EXCEEDED if failure.is_quota_used_up else failure.http_status
        return status, {"message": failure.message}

    @operation("POST", "/v2/translate", "Translate", "Translate texts", _TRANSLATE)
    async def _translate(self, fields: Fields, call: FrontCall) -> Any:
        texts, source = fields.needed_texts("text"), fields.text("source_lang")
        target = fields.needed("target_lang")
        request = with_options(TextRequest(source=source or "auto", target=target), fields)
        shows_characters = fields.flag("show_billed_characters")
        translations = []
        translated = await translate_all(call.backend, texts, request)
        for index, result in enumerate(translated.results):
            language = source.partition("-")[0] or translated.language(index)[0]
            item: dict[str, Any] = {
                "detected_source_language": language.upper(),
                "text": result.text,
            }
            if shows_characters:
                item["billed_characters"] = len(texts[index])
            translations.append(item)
        return {"translations": translations}

    @operation("GET POST", "/v2/languages", "ListLanguages", "List languages", _LANGUAGES)
    async def _languages(self, fields: Fields, call: FrontCall) -> Any:
        kind = fields.choice("type", ("source", "target"), "source")
        targets = reachable_targets(call.backend)
        into = itertools.chain(*targets.values())
        codes = targets if kind == "source" else dict.fromkeys(into)
        languages = []
        for code in codes:
            item: dict[str, Any] = {"language": code.upper(), "name": language_name(code)}
            if kind == "target":
                item["supports_formality"] = False
            languages.append(item)
        return languages

    @operation("GET POST", "/v2/usage", "ListLanguages", "Tell what the key has used")
    async def _usage(self, fields: Fields, call: FrontCall) -> Any:
        """The usage of the month; that of the day if the key only has a limit for a day."""
        figures = current_call().grant.figures()
        if figures is None:
            return _usage_of(0, None)
        if figures.characters_per_month is None and figures.characters_per_day is not None:
            return _usage_of(figures.characters_in_day, figures.characters_per_day)
        return _usage_of(figures.characters_in_month, figures.characters_per_month)


def _usage_of(count: int, limit: int | None) -> Any:
    return {"character_count": count, "character_limit": _NO_LIMIT if limit is None else limit}


def with_options(request: TextRequest, fields: Fields) -> TextRequest:
    """The request, with the options that its parameters set.

    Raises:
        InvalidArgumentError: an option is not supported.
    """
    for name in _REFUSED:
        if name in fields:
            raise InvalidArgumentError(name, "not supported")
    fields.choice("formality", _FORMALITIES, "default")
    request = replace(request, glossary=fields.text("glossary_id"))
    kind = fields.choice("tag_handling", ("", "xml", "html"))
    # In HTML, a line break is a space unless the request says otherwise.
    split = fields.text_or_flag("split_sentences", "nonewlines" if kind == "html" else "1")
    if split not in ("0", "1", "nonewlines"):
        raise InvalidArgumentError("split_sentences", "must be one of 0, 1, nonewlines")
    if split == "0":
        request = replace(request, options=lambda default: replace(default, split_sentences=False))
    if split == "nonewlines":
        request = replace(request, line_breaks=LineBreaks.JOIN)
    elif kind == "xml" or (kind and split == "1"):
        request = replace(request, line_breaks=LineBreaks.KEEP)
    if kind:
        request = replace(request, mime_type=f"text/{kind}", ignore_tags=_tags(fields))
    return request


def _tags(fields: Fields) -> list[str]:
    """The tags whose content is not translated, from a list or from names between commas."""
    tags = (tag.strip() for text in fields.texts("ignore_tags") for tag in text.split(","))
    return [tag for tag in tags if tag]
