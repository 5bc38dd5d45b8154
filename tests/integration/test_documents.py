"""TranslateDocument over real ports, with models that echo their texts."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from model.bundle.tokenizer import Tokenizer
from tests.client_errors import error_of
from tests.integration.http_client import post
from tests.integration.servers import Running, running_echoes
from tests.unit.service.documents import samples

TEXT = b"A dog runs.\r\n\r\n- It barks!\r\n"
PAGE = b"<!doctype html>\n<title>A dog</title><p class=x>A <b>dog</b> runs.<p>A <b>dog</b> runs."


@pytest.fixture
async def server(tokenizer: Tokenizer) -> AsyncIterator[Running]:
    settings = {"http_port": 0, "max_request_characters": 500}
    async with running_echoes(tokenizer, "en-de", "de-en", **settings) as made:
        yield made


@pytest.mark.parametrize(
    ("name", "content", "count"),
    [
        ("a.txt", TEXT, 2),
        ("A.HTML", PAGE, 3),
        ("a.md", samples.MARKDOWN.encode(), 7),
        ("a.srt", samples.SUBTITLES.encode(), 3),
    ],
)
async def test_an_echo_of_a_document_is_the_document(
    server: Running, name: str, content: bytes, count: int
) -> None:
    answer = await server.client.translate_document(content, name, source="en", target="de")
    assert answer.content == content
    assert (answer.num_segments, answer.model) == (count, "en-de")
    assert answer.num_source_tokens == answer.num_target_tokens > 0


async def test_word_documents_pass_through(server: Running) -> None:
    data = samples.word(samples.letter())
    answer = await server.client.translate_document(data, "a.docx", source="en", target="de")
    assert answer.content == data


async def test_the_language_of_a_document_is_detected_once(server: Running) -> None:
    text = "Ein Hund rennt über die grüne Wiese.\n\nOK\n".encode()
    answer = await server.client.translate_document(text, "a.txt", source="auto", target="en")
    assert (answer.detected_language, answer.model) == ("de", "de-en")
    assert answer.content == text
    answer = await server.client.translate_document(text, "a.txt", source="auto", target="de")
    assert (answer.detected_language, answer.model, answer.content) == ("de", "", text)


@pytest.mark.parametrize("source", ["en", "auto"])
async def test_tags_of_a_page_can_be_ignored(server: Running, source: str) -> None:
    """The sample for the detection of its language is plain text."""
    body = {
        "content": base64.b64encode(PAGE).decode(),
        "fileName": "a.html",
        "sourceLanguageCode": source,
        "targetLanguageCode": "de",
        "options": {"ignoreTags": ["b"]},
    }
    answer = await post(server, "/v1/translate:document", body)
    assert answer.status == 200, answer.json
    assert base64.b64decode(answer.json["content"]) == PAGE


async def test_over_http_the_file_is_base64(server: Running) -> None:
    content = base64.b64encode(TEXT).decode()
    body = {
        "content": content,
        "fileName": "a.txt",
        "sourceLanguageCode": "en",
        "targetLanguageCode": "de",
    }
    answer = await post(server, "/v1/translate:document", body)
    assert (answer.status, answer.json["content"]) == (200, content)


@pytest.mark.parametrize(
    ("content", "name", "arguments", "field", "reason"),
    [
        (TEXT, "a.exe", {}, "file_name", "has an unsupported type: expected"),
        (b"\xff", "a.txt", {}, "content", "not UTF-8"),
        (b"x", "a.docx", {}, "content", "no zip file"),
        (b"a " * 300, "a.txt", {}, "content", "600 characters of text, the limit is 500|599"),
        (TEXT, "a.txt", {"max_new_tokens": -1}, "options.max_new_tokens", "between 1"),
    ],
)
async def test_errors_name_the_field(
    server: Running, content: bytes, name: str, arguments: dict[str, Any], field: str, reason: str
) -> None:
    error = await error_of(
        server.client.translate_document(content, name, source="en", target="de", **arguments),
        reason,
    )
    assert (error.code, error.field) == (grpc.StatusCode.INVALID_ARGUMENT, field)
    batch = await server.client.translate(["A dog."], source="en", target="de")
    assert batch.translations[0].error is None
