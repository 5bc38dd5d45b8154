"""HTML and XML in the APIs of other services, as their clients send it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.fronts.calls import DEEPL, GOOGLE, LIBRE, TEXT
from tests.integration.fronts.conftest import form
from tests.integration.http_client import post
from tests.integration.servers import Running

HTML = "A <b>dog</b> is running.<br>Two &amp; three."


@pytest.mark.parametrize(
    ("path", "body", "read"),
    [
        # As Mastodon sends it.
        (
            LIBRE,
            {"q": [HTML], "source": "auto", "target": "de", "format": "html", "api_key": ""},
            lambda found: found["translatedText"][0],
        ),
        (
            DEEPL,
            {"text": [HTML], "target_lang": "DE", "tag_handling": "html"},
            lambda found: found["translations"][0]["text"],
        ),
        (
            GOOGLE,
            {"q": HTML, "target": "de"},
            lambda found: found["data"]["translations"][0]["translatedText"],
        ),
        (
            "/v3/projects/p:translateText",
            {"contents": [HTML], "targetLanguageCode": "de"},
            lambda found: found["translations"][0]["translatedText"],
        ),
    ],
)
async def test_html_keeps_its_tags(
    server: Running, path: str, body: dict[str, Any], read: Callable[[Any], str]
) -> None:
    translated = read((await post(server, path, body)).json)
    own = {"contents": [HTML], "sourceLanguageCode": "en", "mimeType": "text/html"}
    answer = await post(server, "/v1/translate", {**own, "targetLanguageCode": "de"})
    assert translated == answer.json["translations"][0]["translatedText"]
    assert [translated.count(tag) for tag in ("<b>", "</b>", "<br>", "&amp;")] == [1] * 4


async def test_a_string_as_weblate_sends_it_to_deepl(server: Running) -> None:
    text = 'Hello <x id="7"></x> &lt;world&gt;, how are you? <x id="8">%s</x>'
    body = {
        "text": [text],
        "source_lang": "EN",
        "target_lang": "DE",
        "formality": "default",
        "tag_handling": "xml",
        "ignore_tags": ["x"],
    }
    [item] = (await post(server, DEEPL, body)).json["translations"]
    assert item["text"].count('<x id="7"></x>') == 1
    assert item["text"].count('<x id="8">%s</x>') == 1
    pairs = [("text", text), ("target_lang", "DE"), ("tag_handling", "xml")]
    again = await form(server, DEEPL, *pairs, ("ignore_tags", "x,y"))
    assert again.json["translations"][0]["text"] == item["text"]


@pytest.mark.parametrize(
    ("given", "lines"),
    [
        ({}, 2),
        ({"split_sentences": "nonewlines"}, 1),
        ({"tag_handling": "xml"}, 2),
        ({"tag_handling": "xml", "split_sentences": "1"}, 2),
        ({"tag_handling": "html", "split_sentences": "1"}, 2),
    ],
)
async def test_deepls_defaults_of_line_breaks(
    server: Running, given: dict[str, Any], lines: int
) -> None:
    text = "A dog is running\nacross the green field."
    [item] = (await post(server, DEEPL, {"text": [text], "target_lang": "DE", **given})).json[
        "translations"
    ]
    assert len(item["text"].split("\n")) == lines


async def test_a_form_as_discourse_sends_it(server: Running) -> None:
    pairs = [("q", f"<p>{TEXT}</p>"), ("source", "en"), ("target", "de"), ("format", "html")]
    answer = await form(server, LIBRE, *pairs, ("api_key", ""))
    assert answer.json["translatedText"].startswith("<p>")
    detected = await form(server, "/detect", ("q", TEXT), ("api_key", ""))
    assert detected.json[0]["language"] == "en"


async def test_alternatives_of_html_are_escaped(server: Running) -> None:
    body = {"q": "Two &amp; three.", "source": "en", "target": "de", "format": "html"}
    answer = (await post(server, LIBRE, {**body, "alternatives": 3})).json
    assert answer["translatedText"].count("&amp;") == answer["translatedText"].count("&")
    for text in answer["alternatives"]:
        assert text.count("&amp;") == text.count("&")
