"""The APIs of other services: the shapes of requests, answers and errors, on a real port."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.ports.http.front_routes import all_fronts, front_of
from tests.integration.fronts.calls import (
    DEEPL,
    FRONTS,
    GERMAN,
    GOOGLE,
    GOOGLE_3,
    LIBRE,
    OTHER,
    TEXT,
    FrontCase,
    each_front,
    translated,
)
from tests.integration.fronts.conftest import Serving, form
from tests.integration.http_client import Answer, ask, post
from tests.integration.keyed import KeyFile
from tests.integration.servers import Running


async def test_libretranslate_mirrors_strings_and_lists(server: Running) -> None:
    good = await translated(server)
    body = {"q": TEXT, "source": "en", "target": "de"}
    assert (await post(server, LIBRE, body)).json == {"translatedText": good}
    # As Weblate sends it.
    weblate = {**body, "q": [TEXT], "format": "text", "api_key": ""}
    assert (await post(server, LIBRE, weblate)).json == {"translatedText": [good]}
    several = {"q": [TEXT], "source": "auto", "target": "de", "alternatives": 2}
    answer = (await post(server, LIBRE, several)).json
    assert answer["translatedText"] == [good]
    [detected] = answer["detectedLanguage"]
    assert detected["language"] == "en"
    assert type(detected["confidence"]) is int
    assert 50 < detected["confidence"] <= 100
    assert len(answer["alternatives"]) == 1
    pairs = [("q", TEXT), ("source", "en"), ("target", "de")]
    assert (await form(server, LIBRE, *pairs)).json == {"translatedText": good}
    assert (await form(server, LIBRE, ("q", OTHER), *pairs)).json == {
        "translatedText": [await translated(server, OTHER), good]
    }
    query = await ask(server, "POST", "/translate?q=A%20dog%20is%20running&source=en&target=de")
    assert query.json == {"translatedText": await translated(server, "A dog is running")}


async def test_libretranslate_lists_and_detects_languages(server: Running) -> None:
    languages = (await ask(server, "GET", "/languages")).json
    assert languages == [
        {"code": "en", "name": "English", "targets": ["de", "fr"]},  # through German
        {"code": "de", "name": "German", "targets": ["fr"]},
        # A target only: Weblate and Discourse look for it among the codes, Mastodon among targets.
        {"code": "fr", "name": "French", "targets": []},
    ]
    detected = (await form(server, "/detect", ("q", GERMAN))).json
    assert detected[0]["language"] == "de"
    assert type(detected[0]["confidence"]) is int
    assert (await post(server, "/detect", {"q": "1"})).json == [
        {"confidence": 0, "language": "und"}
    ]
    # Only languages that are listed are named, though the text is in another.
    russian = (await post(server, "/detect", {"q": "Собака бежит по улице."})).json
    assert {each["language"] for each in russian} == {each["code"] for each in languages}
    assert (await ask(server, "GET", "/health")).json == {"status": "ok"}
    settings = (await ask(server, "GET", "/frontend/settings")).json
    assert settings["charLimit"] == 100_000
    assert not settings["keyRequired"]


@pytest.mark.parametrize("source", ["de", "DE-at", "auto"])
async def test_libretranslate_returns_a_text_in_the_target_language(
    server: Running, source: str
) -> None:
    text = f"<b>{GERMAN}</b>"
    body = {"q": text, "source": source, "target": "de", "format": "html", "alternatives": 2}
    answer = await post(server, LIBRE, body)
    assert answer.status == 200
    assert answer.json["translatedText"] == text
    assert answer.json["alternatives"] == []
    assert ("detectedLanguage" in answer.json) == (source == "auto")
    several = await post(server, LIBRE, {**body, "q": [text, GERMAN]})
    assert several.json["translatedText"] == [text, GERMAN]


async def test_a_text_that_is_returned_has_the_limits_of_one_that_is_translated(
    serving: Serving, tmp_path: Path
) -> None:
    key = KeyFile(tmp_path / "keys").add("blog", models=["de-fr"], characters_per_month=20)
    async with serving(keys=str(tmp_path / "keys"), max_texts=2, max_characters=9) as server:

        async def copied(language: str, *texts: str) -> Answer:
            body = {"q": texts, "source": language, "target": language}
            return await post(server, LIBRE, body, x_api_key=key)

        assert (await copied("fr", "Un chien.")).json == {"translatedText": ["Un chien."]}
        assert server.metric("dragoman_key_characters_total", key="blog") == 9
        assert (await copied("fr", "Un chien. ")).status == 400
        assert (await copied("fr", *"abc")).status == 400
        assert (await copied("ja", "a")).status == 400
        assert (await copied("en", "a")).status == 400, "of a model that is not the key's"
        assert (await copied("fr", "a" * 9, "a" * 9)).status == 429


async def test_deepl(server: Running) -> None:
    good = await translated(server)
    both = [good, await translated(server, OTHER)]
    answer = await post(server, DEEPL, {"text": [TEXT, OTHER], "target_lang": "DE"})
    texts = [{"detected_source_language": "EN", "text": text} for text in both]
    assert answer.json == {"translations": texts}
    pairs = [("text", TEXT), ("text", OTHER), ("target_lang", "DE"), ("source_lang", "EN-GB")]
    assert (await form(server, DEEPL, *pairs)).json == {"translations": texts}
    counted = {"text": [TEXT], "target_lang": "DE", "show_billed_characters": True}
    [item] = (await post(server, DEEPL, counted)).json["translations"]
    assert item["billed_characters"] == len(TEXT)
    sources = await ask(server, "GET", "/v2/languages")
    assert sources.json[0] == {"language": "EN", "name": "English"}
    # DeepL's library for Python sends a body with a GET.
    targets = await ask(server, "GET", "/v2/languages", {"type": "target"})
    assert [item["language"] for item in targets.json] == ["DE", "FR"]
    assert not targets.json[0]["supports_formality"]
    assert (await ask(server, "GET", "/v2/usage")).json["character_count"] == 0


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"formality": "more"}, "formality"),
        ({"style_id": "x"}, "style_id"),
        ({"split_sentences": 7}, "split_sentences"),
        ({"tag_handling": "sgml"}, "tag_handling"),
        ({"text": []}, "text"),
        ({"text": [1]}, "text[0]"),
        ({"text": ["a\0"]}, "text[0]"),
        ({"target_lang": ""}, "target_lang"),
        ({"target_lang": "XX"}, "XX"),
    ],
)
async def test_what_deepl_means_and_we_lack_is_refused(
    server: Running, given: dict[str, Any], word: str
) -> None:
    answer = await post(server, DEEPL, {"text": [TEXT], "target_lang": "DE", **given})
    assert answer.status == 400
    assert word in answer.json["message"]


async def test_google_version_2(server: Running) -> None:
    good = await translated(server)
    body = {"q": [TEXT], "target": "de", "format": "text"}
    [item] = (await post(server, GOOGLE, body)).json["data"]["translations"]
    assert item == {"translatedText": good, "detectedSourceLanguage": "en"}
    query = "?q=A+dog&q=Two+men&source=en&target=de&format=text&model=nmt&prettyPrint=false"
    items = (await ask(server, "GET", GOOGLE + query)).json["data"]["translations"]
    assert items[1] == {"translatedText": await translated(server, "Two men"), "model": "nmt"}
    answer = await post(server, f"{GOOGLE}/detect", {"q": [TEXT, GERMAN, "1"]})
    found = [item for [item] in answer.json["data"]["detections"]]
    assert [item["language"] for item in found] == ["en", "de", "und"]
    assert [item["isReliable"] for item in found] == [True, True, False]
    named = (await ask(server, "GET", f"{GOOGLE}/languages?target=en")).json
    assert {"language": "fr", "name": "French"} in named["data"]["languages"]


@each_front
async def test_errors_have_the_shape_of_the_front(server: Running, front: FrontCase) -> None:
    path, body, error = front.path, front.body, front.error
    nested = b"[" * 100_000
    for data, status, word in (
        (b"{", 400, "not JSON"),
        (b"[]", 400, "object"),
        (b'{"a":' + nested, 400, "nested"),
        (json.dumps({**body, "x": "\ud800"}).encode(), 400, "surrogate"),
        (b'{"q": "\xff"}', 400, "UTF-8"),
        (b"{}", 400, "is missing"),
    ):
        answer = await ask(server, "POST", path, data)
        assert answer.status == status
        assert word in error(answer)
    for headers, status in (
        ({"content_type": "text/plain"}, 415),
        ({"content_encoding": "gzip"}, 415),
        ({"content_length": "100000000"}, 413),
        ({"grpc_timeout": "soon"}, 400),
        ({"grpc_timeout": "0S"}, 504),
    ):
        answer = await ask(server, "POST", path, json.dumps(body).encode(), **headers)
        assert (answer.status, bool(error(answer))) == (status, True)
    assert "not UTF-8" in error(await ask(server, "POST", f"{path}?q=%ff", body))
    for verb, asked, status in (("DELETE", path, 405), ("POST", f"{path}/x", 404)):
        answer = await ask(server, verb, asked)
        assert (answer.status, asked in error(answer)) == (status, True)
    assert (await post(server, path, body)).status == 200


LIBRE_KEYS, DEEPL_KEYS = {"error"}, {"message"}


@pytest.mark.parametrize(
    ("method", "path", "status", "keys"),
    [
        ("GET", LIBRE, 405, LIBRE_KEYS),
        ("POST", "/suggest", 404, LIBRE_KEYS),
        ("DELETE", "/health", 405, LIBRE_KEYS),
        ("GET", DEEPL, 405, DEEPL_KEYS),
        ("POST", "/v2/document", 404, DEEPL_KEYS),
        ("GET", "/v3/glossaries/x/y/z", 404, DEEPL_KEYS),
        ("GET", "/v3/projectsx", 404, DEEPL_KEYS),
    ],
)
async def test_unknown_paths_and_methods_have_the_shape_of_the_front(
    server: Running, method: str, path: str, status: int, keys: set[str]
) -> None:
    answer = await ask(server, method, path)
    assert (answer.status, set(answer.json)) == (status, keys)
    assert answer.headers["content-type"] == "application/json"
    assert path in next(iter(answer.json.values()))
    assert ("allow" in answer.headers) == (status == 405)


@pytest.mark.parametrize(
    ("method", "path", "status", "name"),
    [
        ("DELETE", GOOGLE, 405, "UNIMPLEMENTED"),
        ("GET", f"{GOOGLE}/models", 404, "NOT_FOUND"),
        ("GET", "/v3/projects/p/locations/global/glossaries", 404, "NOT_FOUND"),
        ("GET", GOOGLE_3, 405, "UNIMPLEMENTED"),
    ],
)
async def test_unknown_paths_and_methods_have_googles_shape(
    server: Running, method: str, path: str, status: int, name: str
) -> None:
    answer = await ask(server, method, path)
    error = answer.json["error"]
    assert (answer.status, error["code"], error["status"]) == (status, status, name)
    assert path in error["message"]


@pytest.mark.parametrize("path", ["/v1/translat", "/v2x", "/translated", "/%2e%2e/v1"])
async def test_unknown_paths_elsewhere_have_the_contracts_shape(server: Running, path: str) -> None:
    answer = await ask(server, "POST", path)
    assert (answer.status, answer.json["code"]) == (404, 5)


async def test_a_refused_method_is_answered_with_all_methods_of_the_path(server: Running) -> None:
    answer = await ask(server, "DELETE", "/v2/usage")
    assert answer.headers["allow"] == "GET, HEAD, POST"
    assert answer.json == {"message": "/v2/usage takes GET, HEAD, POST only"}


async def test_each_path_of_a_front_begins_as_the_front_says() -> None:
    fronts = all_fronts(needs_keys=False, max_file_bytes=1)
    for front in fronts:
        for _, path in front.operations():
            assert front_of(path, fronts) is front
    assert {front_of(case.path, fronts) for case in FRONTS} == set(fronts)


# Shows nothing of its language, but is translated; the same of a text that is copied.
WORD, NUMBER = "World", "12.5"


@pytest.mark.parametrize(
    ("path", "body", "read"),
    [
        (
            LIBRE,
            {"q": [WORD, NUMBER], "source": "auto", "target": "de"},
            lambda found: [each["language"] for each in found["detectedLanguage"]],
        ),
        (
            DEEPL,
            {"text": [WORD, NUMBER], "target_lang": "DE"},
            lambda found: [
                each["detected_source_language"].lower() for each in found["translations"]
            ],
        ),
        (
            GOOGLE,
            {"q": [WORD, NUMBER], "target": "de"},
            lambda found: [
                each["detectedSourceLanguage"] for each in found["data"]["translations"]
            ],
        ),
        (
            GOOGLE_3,
            {"contents": [WORD, NUMBER], "targetLanguageCode": "de"},
            lambda found: [each["detectedLanguageCode"] for each in found["translations"]],
        ),
    ],
)
async def test_a_word_has_the_language_that_it_was_translated_from(
    server: Running, path: str, body: dict[str, Any], read: Callable[[Any], list[str]]
) -> None:
    own = {"contents": [WORD, NUMBER], "sourceLanguageCode": "auto", "targetLanguageCode": "de"}
    contract = (await post(server, "/v1/translate", own)).json["translations"]
    assert [each["detectedLanguageCode"] for each in contract] == ["und", "und"]
    assert read((await post(server, path, body)).json) == ["en", "und"]
