"""Google's contract, version 3, over gRPC and HTTP, with the messages of the server's own copy."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import json_format

from dragoman.client import Glossary
from service.fronts.google_v3.calls import CALLS
from service.fronts.google_v3.messages import POOL, SERVICE, message_class
from service.settings import shipped_models
from tests.client_errors import status_error_of
from tests.integration.fronts.conftest import Serving
from tests.integration.http_client import Answer, ask, post
from tests.integration.keyed import KeyFile
from tests.integration.servers import Running, running_bundle

PARENT = "projects/p/locations/global"
TEXT, GERMAN = "A dog is running across the green field.", "Ein Hund rennt über die grüne Wiese."
PLAIN = {"mime_type": "text/plain", "target_language_code": "de"}


async def over_grpc(server: Running, name: str, metadata: Any = (), **fields: Any) -> Any:
    """The answer to a call, as JSON."""
    call = CALLS[name]
    output = POOL.FindServiceByName(SERVICE).methods_by_name[name].output_type.name
    request = json_format.ParseDict({"parent": PARENT, **fields}, message_class(call.request)())
    async with grpc.aio.insecure_channel(server.address) as channel:
        method: Any = channel.unary_unary(
            f"/{SERVICE}/{name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=message_class(output).FromString,
        )
        return json_format.MessageToDict(await method(request, metadata=metadata))


async def over_http(server: Running, name: str, **fields: Any) -> Answer:
    if name == "GetSupportedLanguages":
        query = "&".join(f"{key}={value}" for key, value in fields.items())
        return await ask(server, "GET", f"/v3/{PARENT}/supportedLanguages?{query}")
    verb = name[0].lower() + name[1:]
    return await post(server, f"/v3/{PARENT}:{verb}?$alt=json;enum-encoding=int", fields)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("TranslateText", {"contents": [TEXT, "1", "World"], **PLAIN}),
        ("TranslateText", {"contents": [TEXT], "source_language_code": "en-US", **PLAIN}),
        (
            "TranslateText",
            {"contents": [TEXT], **PLAIN, "model": f"{PARENT}/models/general/nmt"},
        ),
        ("TranslateText", {"contents": [TEXT], **PLAIN, "model": f"{PARENT}/models/en-de"}),
        ("DetectLanguage", {"content": GERMAN}),
        ("DetectLanguage", {"content": "1"}),
        ("GetSupportedLanguages", {}),
        ("GetSupportedLanguages", {"display_language_code": "en"}),
        ("GetSupportedLanguages", {"model": f"{PARENT}/models/de-fr"}),
    ],
)
async def test_both_give_the_same_answer(
    server: Running, name: str, fields: dict[str, Any]
) -> None:
    answer = await over_http(server, name, **fields)
    assert answer.status == 200
    assert answer.json == await over_grpc(server, name, **fields)
    if name == "TranslateText":
        own = await server.client.translate([TEXT], source="en", target="de")
        first = answer.json["translations"][0]
        assert first["translatedText"] == own.translations[0].text
        assert ("detectedLanguageCode" in first) == ("source_language_code" not in fields)
    if name == "GetSupportedLanguages" and not fields:
        german = {"languageCode": "de", "supportSource": True, "supportTarget": True}
        assert german in answer.json["languages"]


@pytest.mark.parametrize(
    ("name", "fields", "code", "word"),
    [
        ("TranslateText", {"contents": [], **PLAIN}, "INVALID_ARGUMENT", "contents"),
        ("TranslateText", {"contents": ["a\0"], **PLAIN}, "INVALID_ARGUMENT", "contents[0]"),
        ("TranslateText", {"contents": ["a", ""], **PLAIN}, "INVALID_ARGUMENT", "contents[1]"),
        (
            "TranslateText",
            {"contents": ["a"], "mime_type": "text/plain"},
            "INVALID_ARGUMENT",
            "target_language_code",
        ),
        (
            "TranslateText",
            {"contents": ["a"], **PLAIN, "transliteration_config": {}},
            "INVALID_ARGUMENT",
            "transliteration_config",
        ),
        ("TranslateText", {"contents": ["a"], **PLAIN, "model": "x"}, "NOT_FOUND", "no model"),
        (
            "TranslateText",
            {"contents": ["a"], **PLAIN, "mime_type": "x"},
            "INVALID_ARGUMENT",
            "mime",
        ),
        (
            "TranslateText",
            {"contents": ["a"], **PLAIN, "glossary_config": {"glossary": "none"}},
            "NOT_FOUND",
            "glossary_config.glossary: there is no",
        ),
        (
            "TranslateText",
            {"contents": ["a"], **PLAIN, "source_language_code": "A dog."},
            "INVALID_ARGUMENT",
            "source_language_code: 'A dog.' is not a language code",
        ),
        (
            "TranslateText",
            {"contents": ["a"], **PLAIN, "source_language_code": "pt"},
            "NOT_FOUND",
            "does not translate from 'pt'",
        ),
        ("DetectLanguage", {}, "INVALID_ARGUMENT", "content"),
        ("DetectLanguage", {"content": "x" * 100_001}, "INVALID_ARGUMENT", "content: 100,001"),
        ("GetSupportedLanguages", {"model": "x"}, "NOT_FOUND", "no model"),
        *(
            ("GetSupportedLanguages", {"model": model}, "INVALID_ARGUMENT", "model: must be a name")
            for model in (f"{PARENT}/models/", "models/x", f"{PARENT}/glossaries/x", "x" * 201)
        ),
        *(
            (
                "TranslateText",
                {"contents": ["a"], **PLAIN, "glossary_config": {"glossary": name}},
                "INVALID_ARGUMENT",
                "glossary_config.glossary: must be a name",
            )
            for name in (f"{PARENT}/glossaries/", f"{'x' * 101}/glossaries/house", "a/b")
        ),
    ],
)
async def test_errors(
    server: Running, name: str, fields: dict[str, Any], code: str, word: str
) -> None:
    error = (await over_http(server, name, **fields)).json["error"]
    assert (error["status"], word in error["message"]) == (code, True)
    caught = await status_error_of(over_grpc(server, name, **fields), code)
    assert caught.details() == error["message"]


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("parent", ["", "p", "projects/", f"{PARENT}/", "projects/" + "p" * 101])
async def test_a_parent_is_a_resource_name(server: Running, name: str, parent: str) -> None:
    """An answer may repeat the parent for each text, so a long one could cause gigabytes."""
    fields: dict[str, Any] = {"contents": ["1"], **PLAIN} if name == "TranslateText" else {}
    error = await status_error_of(
        over_grpc(server, name, parent=parent, **fields), "INVALID_ARGUMENT"
    )
    words = "parent: is missing; it must be" if not parent else "parent: must be"
    assert f"{words} such as projects/" in str(error.details())


# Values in place of a name, a language, a type or a text.
ODD = (
    *("", " ", "x", "\0", "a\0b", "\u202e", "x" * 5000, "../../etc/passwd", "%00", "😀" * 100),
    *("projects/", f"{PARENT}/models/", f"{PARENT}/models/en-de", f"{PARENT}/models/general/nmt"),
    *("general/", "/models//models/", f"{PARENT}/glossaries/none", "en", "EN-us", "zz", "auto"),
    *("und", "en-", "x-klingon", "de\n", "text/html", "TEXT/HTML; q=1", "image/png", "<b>a"),
)


def odd_request(rng: random.Random, name: str) -> bytes:
    """A request with some odd fields."""
    request = message_class(CALLS[name].request)()
    usual = {"parent": PARENT, "source_language_code": "en", "target_language_code": "de"}
    usual |= {"mime_type": "text/plain", "content": "A dog."}
    for field in request.DESCRIPTOR.fields:
        if field.name == "contents":
            count = rng.choice((0, 1, 1, 1, 2, 1100))
            request.contents.extend(rng.choice(("1", *ODD)) for _ in range(count))
        elif field.name == "labels":
            for _ in range(rng.choice((0, 0, 1, 50))):
                request.labels[rng.choice(ODD)] = rng.choice(ODD)
        elif field.message_type is not None:
            if rng.random() < 0.2:
                part = getattr(request, field.name)
                part.SetInParent()
                for inner in field.message_type.fields:
                    is_name = inner.type == inner.TYPE_STRING
                    setattr(part, inner.name, rng.choice(ODD) if is_name else rng.random() < 0.3)
        elif value := rng.choice(ODD) if rng.random() < 0.2 else usual.get(field.name):
            setattr(request, field.name, value)
    data = bytearray(request.SerializeToString())
    if data and rng.random() < 0.1:
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


async def test_odd_requests_are_answered_or_refused_with_a_reason(server: Running) -> None:
    async with grpc.aio.insecure_channel(server.address) as channel:

        async def outcome(seed: int) -> tuple[str, str]:
            rng = random.Random(seed)
            name = rng.choice(tuple(CALLS))
            request = odd_request(rng, name)
            method: Any = channel.unary_unary(f"/{SERVICE}/{name}")
            try:
                answer = await method(request, timeout=120)
            except grpc.aio.AioRpcError as refused:
                return refused.code().name, refused.details() or f"no reason: {seed}"
            # With languages and names.
            assert len(answer) <= 50 * (len(request) + 1000), seed
            return "OK", ""

        found = await asyncio.gather(*(outcome(seed) for seed in range(300)))
    assert {code for code, _ in found} == {"OK", "INVALID_ARGUMENT", "NOT_FOUND"}
    assert not [words for _, words in found if words.startswith("no reason")]


async def test_a_glossary_of_the_server(tmp_path: Path) -> None:
    (tmp_path / "house.en-de.tsv").write_text("dog\tHündchen\n")
    settings: dict[str, Any] = {"http_port": 0, "glossary_dir": (tmp_path,)}
    texts = ["The <b>dog</b> reads.", "She is reading a book."]
    async with running_bundle(*shipped_models(), **settings) as server:
        languages: dict[str, Any] = {"source": "en", "target": "de", "mime_type": "text/html"}
        plain = await server.client.translate(texts, **languages)
        named = await server.client.translate(texts, **languages, glossary=Glossary(name="house"))
        name = f"{PARENT}/glossaries/house"
        fields = {
            "contents": texts,
            "source_language_code": "en",
            "target_language_code": "de",
            "glossary_config": {"glossary": name},
        }
        found = await over_grpc(server, "TranslateText", **fields)
        assert [each["translatedText"] for each in found["translations"]] == [
            each.text for each in plain.translations
        ]
        assert [each["translatedText"] for each in found["glossaryTranslations"]] == [
            each.text for each in named.translations
        ]
        assert found["glossaryTranslations"][0]["glossaryConfig"]["glossary"] == name
        assert (await over_http(server, "TranslateText", **fields)).json == found
        for config, word in (
            ({"glossary": f"{PARENT}/glossaries/none"}, "there are: house"),
            ({"glossary": name, "ignore_case": True}, "glossary_config.ignore_case"),
            ({}, "glossary_config.glossary: is missing"),
        ):
            answer = await over_http(
                server, "TranslateText", **{**fields, "glossary_config": config}
            )
            assert word in answer.json["error"]["message"]


async def test_keys(serving: Serving, tmp_path: Path) -> None:
    key = KeyFile(tmp_path / "keys").add("blog")
    async with serving(keys=str(tmp_path / "keys")) as server:
        with pytest.raises(grpc.aio.AioRpcError, match="UNAUTHENTICATED"):
            await over_grpc(server, "DetectLanguage", content=TEXT)
        sent = (("x-goog-api-key", key),)
        assert await over_grpc(server, "DetectLanguage", sent, content=TEXT)
        answer = await over_http(server, "DetectLanguage", content=TEXT)
        assert (answer.status, answer.json["error"]["status"]) == (401, "UNAUTHENTICATED")


async def test_calls_count_as_the_contracts(server: Running) -> None:
    await over_grpc(server, "TranslateText", contents=[TEXT], **PLAIN)
    assert server.metric("dragoman_requests_total", method="Translate", code="OK") == 1


def test_the_copy_leaves_googles_names_to_googles_library() -> None:
    program = """
import service.server
from google.protobuf import descriptor_pool
descriptor_pool.Default().FindServiceByName("google.cloud.translation.v3.TranslationService")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert b"KeyError" in done.stderr
