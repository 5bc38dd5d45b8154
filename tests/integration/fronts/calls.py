"""Calls of the fronts, and their answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from tests.integration.http_client import Answer
from tests.integration.servers import Running

TEXT, OTHER = "A dog is running across the green field.", "Two men are playing chess."
GERMAN = "Ein Hund rennt über die grüne Wiese."
LIBRE, DEEPL, GOOGLE = "/translate", "/v2/translate", "/language/translate/v2"
GOOGLE_3 = "/v3/projects/p:translateText"


@dataclass(frozen=True)
class FrontCase:
    """A front, for the tests that all fronts pass.

    Attributes:
        path: where it translates, by POST.
        body: a valid request to translate `TEXT`.
        error: reads the message of an error.
        field: the parameter that is the text.
        takes_lists: whether that can be a list of texts.
        no_key: status without a key.
        used_up: status for a key that has no characters left.
        with_key: arguments of `post` that send a key, beside the path and the body.
    """

    path: str
    body: Mapping[str, Any]
    error: Callable[[Answer], str]
    field: str = "text"
    takes_lists: bool = True
    no_key: int = 401
    used_up: int = 429
    with_key: Callable[[str], Mapping[str, Any]] = lambda key: {"x_api_key": key}


_LIBRE_BODY = {"q": TEXT, "source": "en", "target": "de"}
FRONTS = (
    FrontCase(
        LIBRE,
        _LIBRE_BODY,
        lambda answer: answer.json["error"],
        field="q",
        no_key=403,
        with_key=lambda key: {"body": {**_LIBRE_BODY, "api_key": key}},
    ),
    FrontCase(
        DEEPL,
        {"text": [TEXT], "target_lang": "DE"},
        lambda answer: answer.json["message"],
        no_key=403,
        used_up=456,
        with_key=lambda key: {"authorization": f"DeepL-Auth-Key {key}"},
    ),
    FrontCase(
        GOOGLE,
        {"q": TEXT, "target": "de", "format": "text"},
        lambda answer: answer.json["error"]["errors"][0]["message"],
        field="q",
        with_key=lambda key: {"path": f"{GOOGLE}?key={key}"},
    ),
    FrontCase(
        GOOGLE_3,
        {"contents": [TEXT], "targetLanguageCode": "de", "mimeType": "text/plain"},
        lambda answer: answer.json["error"]["message"],
        field="contents",
        with_key=lambda key: {"x_goog_api_key": key},
    ),
)
each_front = pytest.mark.parametrize("front", FRONTS, ids=[front.path for front in FRONTS])


async def translated(server: Running, text: str = TEXT) -> str:
    batch = await server.client.translate([text], source="en", target="de")
    return batch.translations[0].text
