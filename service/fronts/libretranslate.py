"""LibreTranslate's API, at its paths (https://docs.libretranslate.com/).

The texts are a string or a list of strings, and so is the translation. Errors are
`{"error": ...}`.
"""

from __future__ import annotations

import dataclasses
import functools
import html
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

import grpc

from service.calls.call_context import current_call
from service.calls.detect import detect
from service.calls.document import translate_document
from service.calls.languages import reachable_targets
from service.calls.requests import TextRequest
from service.calls.translate import translate_or_copy
from service.documents.formats import READERS
from service.errors import InvalidArgumentError
from service.fronts.http.fields import Fields, NamedFile
from service.fronts.http.front_endpoint import (
    Front,
    FrontAnswer,
    FrontCall,
    operation,
)
from service.fronts.http.translated_files import TranslatedFiles
from service.fronts.language_names import language_name
from service.text.detection import UNDETERMINED
from service.translation.options import TranslateOptions
from service.translation.results import TextResult

_AUTO = "auto"
_DOCUMENT = "TranslateDocument"
_MAX_ALTERNATIVES = 31
# LibreTranslate's servers answer with these statuses.
_STATUSES = {
    grpc.StatusCode.NOT_FOUND: 400,
    grpc.StatusCode.UNAUTHENTICATED: 403,
    grpc.StatusCode.CANCELLED: 500,
}
_KEY = {"api_key": "a key of the server, if it has keys"}
# Fields that LibreTranslate lacks.
_TERMS = {
    "glossary": "the name of a glossary of the server",
    "do_not_translate": "a term, or a list of terms, that stay as they are",
}
_TRANSLATE = {
    "q": "a text, or a list of texts",
    "source": "the language of the texts, or auto",
    "target": "the language to translate into",
    "format": "text (default) or html",
    "alternatives": "how many other translations to return",
    **_TERMS,
    **_KEY,
}
_FILE = {
    "file": f"a document: {', '.join(READERS)}",
    "source": "the language of the document, or auto",
    "target": "the language to translate into",
    **_TERMS,
    **_KEY,
}
_DETECT = {"q": "a text", **_KEY}
# The limit of files that wait to be fetched, in files of the largest size; at least:
_KEPT_FILES = 4
_MIN_KEPT_BYTES = 64 * 2**20
_MAX_NAME = 100
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
_FIELD_NAMES = {
    "contents": "q",
    "content": "file",
    "file_name": "file",
    "source_language_code": "source",
    "target_language_code": "target",
    "glossary.name": "glossary",
    "glossary.entries": "do_not_translate",
}


class LibreTranslate(Front):
    """The front for clients of LibreTranslate."""

    name = "libretranslate"
    title = "LibreTranslate"
    prefixes = (
        *("/translate", "/translate_file", "/download_file", "/suggest"),
        *("/detect", "/languages", "/frontend", "/health", "/spec"),
    )
    field_names = _FIELD_NAMES
    statuses = _STATUSES

    def __init__(self, needs_keys: bool, max_file_bytes: int) -> None:
        self._needs_keys = needs_keys
        self._max_file_bytes = max_file_bytes
        self._files = TranslatedFiles(max(_MIN_KEPT_BYTES, _KEPT_FILES * max_file_bytes))

    def credential(self, fields: Fields) -> str:
        """The field `api_key`."""
        return fields.text("api_key")

    @operation("POST", "/translate", "Translate", "Translate texts", _TRANSLATE)
    async def _translate(self, fields: Fields, call: FrontCall) -> Any:
        source, target = fields.needed("source"), fields.needed("target")
        num_alternatives = fields.number("alternatives", 0, 0, _MAX_ALTERNATIVES)
        texts = fields.needed_texts("q")
        is_html = fields.choice("format", ("text", "html"), "text") == "html"
        request = TextRequest(
            source=source,
            target=target,
            mime_type="text/html" if is_html else "",
            glossary=fields.text("glossary"),
            entries=_kept_terms(fields),
        )
        if num_alternatives:
            options = functools.partial(_with_hypotheses, num_alternatives + 1)
            request = dataclasses.replace(request, options=options)
        translated = await translate_or_copy(call.backend, texts, request)
        results = translated.results
        answer: dict[str, list[Any]] = {"translatedText": [each.text for each in results]}
        if source.lower() == _AUTO:
            answer["detectedLanguage"] = [
                _detected(*translated.language(index)) for index in range(len(texts))
            ]
        if num_alternatives:
            escape = functools.partial(html.escape, quote=False) if is_html else str
            answer["alternatives"] = [
                alternatives(each, num_alternatives, escape) for each in results
            ]
        if fields.is_list("q"):
            return answer
        return {name: values[0] for name, values in answer.items()}

    @operation("POST", "/translate_file", _DOCUMENT, "Translate a file", _FILE, file="file")
    async def _translate_file(self, fields: Fields, call: FrontCall) -> Any:
        file, target = fields.file("file"), fields.needed("target")
        size, limit = len(file.content), self._max_file_bytes
        if size > limit:
            raise InvalidArgumentError("file", f"{size:,} bytes, the limit is {limit:,}")
        request = TextRequest(
            source=fields.needed("source"),
            target=target,
            glossary=fields.text("glossary"),
            entries=_kept_terms(fields),
        )
        translated = await translate_document(call.backend, file.name, file.content, request)
        path = PurePath(file.name.replace("\\", "/"))
        name = f"{path.stem[:_MAX_NAME]}_{target.lower()}{path.suffix}"
        file_id = self._files.add(NamedFile(name, translated.content), current_call().grant.owner)
        return {"translatedFileUrl": f"{call.origin}/download_file/{file_id}.{quote(name, '')}"}

    @operation("GET", "/download_file/{file}", _DOCUMENT, "Fetch a translated file", _KEY)
    async def _download_file(self, fields: Fields, call: FrontCall) -> Any:
        file = self._files.get(call.path["file"].partition(".")[0], current_call().grant.owner)
        plain = _UNSAFE.sub("_", file.name)  # for clients that don't know the other (RFC 6266)
        names = f"filename=\"{plain}\"; filename*=UTF-8''{quote(file.name, '')}"
        headers = [("content-disposition", f"attachment; {names}")]
        return FrontAnswer(file.content, kind="application/octet-stream", headers=headers)

    @operation("POST", "/detect", "DetectLanguage", "Detect the language of a text", _DETECT)
    async def _detect(self, fields: Fields, call: FrontCall) -> Any:
        # A list is one text, as on LibreTranslate's servers.
        text = " ".join(fields.needed_texts("q"))
        # And only languages that are listed are named.
        [languages] = await detect(call.backend, [text], _listed(reachable_targets(call.backend)))
        found = [_detected(each.code, each.confidence) for each in languages]
        return found or [_detected(UNDETERMINED, 0.0)]

    @operation("GET", "/languages", "ListLanguages", "List languages", needs_key=False)
    async def _languages(self, fields: Fields, call: FrontCall) -> Any:
        targets = reachable_targets(call.backend)
        return [
            {"code": code, "name": language_name(code), "targets": list(targets.get(code, ()))}
            for code in _listed(targets)
        ]

    @operation("GET", "/frontend/settings", "ListLanguages", "Describe the server", needs_key=False)
    async def _settings(self, fields: Fields, call: FrontCall) -> Any:
        targets = reachable_targets(call.backend)
        first = next((target for each in targets.values() for target in each), "")
        return {
            "apiKeys": self._needs_keys,
            "keyRequired": self._needs_keys,
            "charLimit": call.backend.any_translator.limits.max_characters,
            "frontendTimeout": 500,
            "suggestions": False,
            "filesTranslation": True,
            "supportedFilesFormat": list(READERS),
            "language": {
                "source": {"code": _AUTO, "name": "Auto Detect"},
                "target": {"code": first, "name": language_name(first)},
            },
        }


def _listed(targets: Mapping[str, Sequence[str]]) -> Iterable[str]:
    """All languages, by the targets of each source.

    Those that are only targets too: clients take what is not listed for not supported.
    """
    return dict.fromkeys(itertools.chain(targets, *targets.values()))


def _kept_terms(fields: Fields) -> list[tuple[str, str]]:
    """The terms that stay as they are, as entries of a glossary. Raises InvalidArgumentError."""
    terms = fields.texts("do_not_translate")
    for index, term in enumerate(terms):
        if "|" in term:  # which separates several translations of a term
            raise InvalidArgumentError(f"do_not_translate[{index}]", "must not contain |")
    return [(term, term) for term in terms]


def _detected(code: str, confidence: float) -> dict[str, Any]:
    # A whole number: clients are known that break at another one.
    return {"language": code, "confidence": round(100 * confidence)}


def _with_hypotheses(count: int, default: TranslateOptions) -> TranslateOptions:
    """A model's default options, with a beam that is wide enough for some hypotheses."""
    search = dataclasses.replace(default.search, beam_size=count)
    return dataclasses.replace(default, search=search, num_hypotheses=count)


def alternatives(
    translation: TextResult, count: int, escape: Callable[[str], str] = str
) -> list[str]:
    """Other translations of a text.

    The first has the second-best translation of every sentence, the next the third-best, and so on.

    Args:
        count: the most translations to return. There can be fewer, or none if tags stand within
            sentences.
        escape: writes a sentence in the format of the text.
    """
    made: list[str] = []
    for rank in range(1, count + 1):
        text: list[str] = []
        position, is_other = 0, False
        for sentence in translation.sentences:
            best = escape(sentence.hypotheses[0].text)
            start = translation.text.find(best, position)
            if start < 0:
                return made
            chosen = escape(sentence.hypotheses[min(rank, len(sentence.hypotheses) - 1)].text)
            text += [translation.text[position:start], chosen]
            position, is_other = start + len(best), is_other or chosen != best
        if not is_other:
            break
        made.append("".join([*text, translation.text[position:]]))
    return made
