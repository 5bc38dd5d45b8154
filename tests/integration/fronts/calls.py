"""Calls of the fronts, and their answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.integration.http_client import Answer
from tests.integration.servers import Running

TEXT, OTHER = "A dog is running across the green field.", "Two men are playing chess."
GERMAN = "Ein Hund rennt über die grüne Wiese."
LIBRE, DEEPL, GOOGLE = "/translate", "/v2/translate", "/language/translate/v2"
# For each front: a path, a valid request, and the form of its errors.
FRONTS: list[tuple[str, dict[str, Any], Callable[[Answer], str]]] = [
    (LIBRE, {"q": TEXT, "source": "en", "target": "de"}, lambda a: a.json["error"]),
    (DEEPL, {"text": [TEXT], "target_lang": "DE"}, lambda a: a.json["message"]),
    (
        GOOGLE,
        {"q": TEXT, "target": "de", "format": "text"},
        lambda a: a.json["error"]["errors"][0]["message"],
    ),
]


async def translated(server: Running, text: str = TEXT) -> str:
    batch = await server.client.translate([text], source="en", target="de")
    return batch.translations[0].text
