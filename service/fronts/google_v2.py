"""Google's Cloud Translation API, version 2 ("Basic"), at its paths.

https://cloud.google.com/translate/docs/reference/rest
"""

from __future__ import annotations

from typing import Any

from service.calls.detect import detect
from service.calls.languages import reachable_targets
from service.calls.requests import TextRequest
from service.calls.translate import translate_all
from service.fronts.http.fields import Fields
from service.fronts.http.front_endpoint import Failure, Front, FrontCall, operation
from service.fronts.language_names import language_name
from service.text.detection import UNDETERMINED

_ROOT = "/language/translate/v2"
_FORMATS = {"html": "text/html", "text": ""}
_OWN_MODELS = ("", "nmt", "base")
_REASONS = {
    **{400: "invalid", 401: "required", 403: "forbidden", 404: "notFound"},
    405: "methodNotAllowed",
}
_RELIABLE = 0.5
_TRANSLATE = {
    "q": "a text, or several",
    "source": "the language of the texts; detected if it is left out",
    "target": "the language to translate into",
    "format": "html (default) or text",
    "model": "nmt, or a model of the server",
}
_DETECT = {"q": "a text, or several"}
_LIST = {"target": "if given, languages have their English names"}
_FIELD_NAMES = {
    "contents": "q",
    "source_language_code": "source",
    "target_language_code": "target",
}


class GoogleV2(Front):
    """The front for clients of Google, version 2."""

    name = "google-v2"
    title = "Google, version 2"
    prefixes = (_ROOT,)
    field_names = _FIELD_NAMES

    def error(self, failure: Failure) -> tuple[int, Any]:
        """`{"error": {"code": ..., "message": ..., "errors": [...]}}`."""
        status, message = failure.http_status, failure.message
        reason = _REASONS.get(status, "backendError")
        detail = {"message": message, "domain": "global", "reason": reason}
        error = {"code": status, "message": message, "errors": [detail]}
        return status, {"error": {**error, "status": failure.code.name}}

    @operation("GET POST", _ROOT, "Translate", "Translate texts", _TRANSLATE)
    async def _translate(self, fields: Fields, call: FrontCall) -> Any:
        source, model = fields.text("source"), fields.text("model")
        texts = fields.needed_texts("q")
        request = TextRequest(
            source=source or "auto",
            target=fields.needed("target"),
            model="" if model in _OWN_MODELS else model,
            mime_type=_FORMATS[fields.choice("format", _FORMATS, "html")],
        )
        translations = []
        translated = await translate_all(call.backend, texts, request)
        for index, result in enumerate(translated.results):
            item = {"translatedText": result.text}
            if not source:
                item["detectedSourceLanguage"], _ = translated.language(index)
            if model:
                item["model"] = model
            translations.append(item)
        return {"data": {"translations": translations}}

    @operation("GET POST", f"{_ROOT}/detect", "DetectLanguage", "Detect languages", _DETECT)
    async def _detect(self, fields: Fields, call: FrontCall) -> Any:
        detections = []
        for languages in await detect(call.backend, fields.needed_texts("q")):
            best = languages[0] if languages else None
            confidence = float(best.confidence) if best else 0.0
            item = {
                "language": best.code if best else UNDETERMINED,
                "confidence": confidence,
                "isReliable": confidence >= _RELIABLE,
            }
            detections.append([item])
        return {"data": {"detections": detections}}

    @operation("GET POST", f"{_ROOT}/languages", "ListLanguages", "List languages", _LIST)
    async def _languages(self, fields: Fields, call: FrontCall) -> Any:
        names = bool(fields.text("target"))
        targets = reachable_targets(call.backend)
        codes = sorted({*targets}.union(*targets.values()))
        languages = [
            {"language": code, "name": language_name(code)} if names else {"language": code}
            for code in codes
        ]
        return {"data": {"languages": languages}}
