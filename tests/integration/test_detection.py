"""Texts in languages that the request does not name, over real ports."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
import pytest

from dragoman.client import TranslationError
from model.bundle.tokenizer import Tokenizer
from tests.client_errors import error_of, refused
from tests.integration.http_client import post
from tests.integration.servers import Running, done, running_echoes, streamed

ENGLISH = "A dog is running across the green field."
GERMAN = "Ein Hund rennt über die grüne Wiese."
DUTCH = "Dit is een Nederlandse zin over het weer."


@pytest.fixture
async def server(tokenizer: Tokenizer) -> AsyncIterator[Running]:
    """Models that echo their texts, English to German and back, and German to French."""
    async with running_echoes(tokenizer, "en-de", "de-en", "de-fr", http_port=0) as made:
        yield made


async def test_texts_of_several_languages_each_take_their_model_and_keep_their_order(
    server: Running,
) -> None:
    texts = [GERMAN, ENGLISH, "", "bad\0text", DUTCH, GERMAN, "12.5"]
    batch = await server.client.translate(texts, source="auto", target="fr")
    found = [translation.detected_language for translation in batch.translations]
    assert found == ["de", "en", "und", *found[3:4], "nl", "de", "und"]
    assert batch.model == "", "through English and German, and from German"
    good = [batch.translations[index] for index in (0, 1, 5)]
    assert [translation.error for translation in good] == [None] * 3
    assert good[0].detection_confidence > 0.5
    assert batch.translations[2].text == ""
    assert batch.translations[6].text == "12.5"
    for index, word in ((3, "NUL"), (4, "'nl'")):
        error = batch.translations[index].error
        assert error is not None
        assert error.code is grpc.StatusCode.INVALID_ARGUMENT
        assert error.field == f"contents[{index}]"
        assert word in error.message
    alone = await server.client.translate([GERMAN], source="de", target="fr")
    assert good[0].text == alone.translations[0].text


async def test_a_text_in_the_target_language_is_returned_unchanged(server: Running) -> None:
    batch = await server.client.translate([GERMAN, ENGLISH], source="AUTO", target="de")
    assert batch.translations[0].text == GERMAN
    assert batch.translations[0].num_source_tokens == 0
    assert batch.model == "en-de"
    text, end = await streamed(server.client, GERMAN, target="de", source="auto")
    assert text == GERMAN
    assert (end.detected_language, end.model) == ("de", "")


async def test_an_empty_source_language_is_detected_only_where_there_is_a_choice(
    server: Running,
) -> None:
    one = await server.client.translate([GERMAN], target="de")
    assert (one.model, one.translations[0].detected_language) == ("en-de", "")
    several = await server.client.translate([GERMAN])
    assert several.translations[0].error is not None, "into English or French?"
    named = await server.client.translate([GERMAN], model="de-fr")
    assert (named.model, named.translations[0].detected_language) == ("de-fr", "")


async def test_a_stream_is_routed_by_its_text(server: Running) -> None:
    text, end = await streamed(server.client, GERMAN, source="auto", target="en")
    assert (end.model, end.detected_language) == ("de-en", "de")
    assert text
    error = await error_of(streamed(server.client, DUTCH, source="auto", target="en"), "'nl'")
    assert error.field == "content"


async def test_a_target_that_nothing_translates_into_fails_the_call(server: Running) -> None:
    await refused(server.client.translate([GERMAN], source="auto", target="xx"), "NOT_FOUND")
    with pytest.raises(TranslationError, match="there is no model"):
        await server.client.translate([GERMAN], source="auto", target="de", model="none")


async def test_detect_language(server: Running) -> None:
    english, dutch, nothing = await server.client.detect([ENGLISH, DUTCH, "1"])
    assert (english[0].language, english[0].is_served) == ("en", True)
    assert (dutch[0].language, dutch[0].is_served) == ("nl", False)
    assert len(english) == 5
    assert nothing == ()
    with pytest.raises(TranslationError, match="contents: at least one text"):
        await server.client.detect([])
    answer = await post(server, "/v1/detect", {"contents": [ENGLISH]})
    assert answer.json["detections"][0]["languages"][0]["languageCode"] == "en"


async def test_the_command_detects(server: Running) -> None:
    _, output, _ = await done("detect", "--server", server.address, GERMAN, "1")
    first, second = output.splitlines()
    assert first.startswith("de\t0.")
    assert second == "und\t0.000"
