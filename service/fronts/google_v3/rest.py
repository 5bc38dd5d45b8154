"""Google's Cloud Translation API, version 3 ("Advanced"), over HTTP.

https://cloud.google.com/translate/docs/reference/rest/v3
"""

from __future__ import annotations

import functools
from typing import Any

from google.protobuf import json_format

from service.fronts.google_v3.calls import CALLS, GoogleCall
from service.fronts.google_v3.messages import message_class
from service.fronts.http.fields import Fields
from service.fronts.http.front_endpoint import Failure, Front, FrontCall, Operation
from service.fronts.http.request_json import fill

_PARENTS = ("/v3/projects/{project}", "/v3/projects/{project}/locations/{location}")
_PATHS = {
    ("POST", ":translateText"): "TranslateText",
    ("POST", ":detectLanguage"): "DetectLanguage",
    ("GET", "/supportedLanguages"): "GetSupportedLanguages",
}


class GoogleV3(Front):
    """The front."""

    name = "google-v3"
    title = "Google, version 3"
    prefixes = ("/v3/projects",)

    def operations(self) -> dict[tuple[str, str], Operation]:
        """The operations of the front, by HTTP method and path."""
        return {
            (verb, parent + path): Operation(
                CALLS[name].method,
                functools.partial(_answer, CALLS[name]),
                CALLS[name].summary,
                _parameters(CALLS[name]),
            )
            for (verb, path), name in _PATHS.items()
            for parent in _PARENTS
        }

    def error(self, failure: Failure) -> tuple[int, Any]:
        """`{"error": {"code": ..., "message": ..., "status": ...}}`."""
        error = {"code": failure.http_status, "message": failure.message}
        return failure.http_status, {"error": {**error, "status": failure.code.name}}


def _parameters(call: GoogleCall) -> dict[str, str]:
    fields = message_class(call.request).DESCRIPTOR.fields
    return {field.json_name: "" for field in fields if field.name != "parent"}


async def _answer(google: GoogleCall, fields: Fields, call: FrontCall) -> Any:
    request = message_class(google.request)()
    fill(request, fields.of_message(request.DESCRIPTOR))
    request.parent = "/".join(f"{name}s/{value}" for name, value in call.path.items())
    return json_format.MessageToDict(await google.answer(request, call.backend))
