"""Limits, keys, logs and metrics of calls through the APIs of other services."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.fronts.calls import DEEPL, GERMAN, LIBRE, TEXT, FrontCase, each_front
from tests.integration.fronts.conftest import Serving, form
from tests.integration.http_client import ask, post
from tests.integration.keyed import KeyFile
from tests.integration.servers import Running


@each_front
async def test_limits_of_texts_hold_and_name_the_fronts_field(
    serving: Serving, front: FrontCase
) -> None:
    async def problem(texts: str | list[str]) -> str:
        answer = await post(server, front.path, {**front.body, front.field: texts})
        assert answer.status == 400
        return front.error(answer)

    name, too_long = front.field, "b" * 51
    async with serving(max_texts=2, max_characters=50) as server:
        found = await problem([too_long] if front.takes_lists else too_long)
        assert found == f"{name}[0]: 51 characters, the limit is 50"
        if front.takes_lists:
            assert await problem(["a"] * 3) == f"{name}: 3 texts, the limit is 2"
            found = await problem(["a", too_long])
            assert found == f"{name}[1]: 51 characters, the limit is 50"


@each_front
async def test_keys_and_quotas(serving: Serving, tmp_path: Path, front: FrontCase) -> None:
    key = KeyFile(tmp_path / "keys").add("blog", characters_per_month=len(TEXT))
    async with serving(keys=str(tmp_path / "keys")) as server:
        assert (await post(server, front.path, front.body)).status == front.no_key
        if front.path == LIBRE:
            assert (await ask(server, "GET", "/languages")).status == 200
            assert (await ask(server, "GET", "/frontend/settings")).json["keyRequired"]
        given: dict[str, Any] = {"path": front.path, "body": front.body, **front.with_key(key)}
        assert (await post(server, **given)).status == 200
        refused = await post(server, **given)
        assert refused.status == front.used_up
        assert "characters" in front.error(refused)
        assert int(refused.headers["retry-after"]) > 0
        if front.path == DEEPL:
            usage = await ask(server, "GET", "/v2/usage", authorization=given["authorization"])
            assert usage.json == {"character_count": len(TEXT), "character_limit": len(TEXT)}
        assert server.metric("dragoman_key_characters_total", key="blog") == len(TEXT)


async def test_a_large_form_is_read(server: Running) -> None:
    text = "äöü " * 20_000
    answer = await form(server, LIBRE, ("q", text), ("source", "en"), ("target", "en"))
    assert answer.json == {"translatedText": text}
    answer = await form(server, "/detect", ("q", text))
    assert answer.status == 200
    many = await form(server, LIBRE, *[("q", "a")] * 40_000)
    assert "values" in many.json["error"]


async def test_a_call_is_logged_and_counted_as_the_contracts(
    server: Running, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "dragoman.access")
    headers = {"x_client_id": "blog", "x_request_id": "r-1"}
    answer = await post(server, DEEPL, {"text": [TEXT], "target_lang": "DE"}, **headers)
    assert answer.headers["x-request-id"] == "r-1"
    assert server.metric("dragoman_requests_total", method="Translate", code="OK") == 1
    [record] = [vars(record) for record in caplog.records if record.name == "dragoman.access"]
    assert (record["front"], record["client"], record["texts"]) == ("deepl", "id:blog", 1)
    assert TEXT not in str(record)


async def test_a_key_for_some_models_sees_their_languages(serving: Serving, tmp_path: Path) -> None:
    key = KeyFile(tmp_path / "keys").add("blog", models=["de-fr"])
    async with serving(keys=str(tmp_path / "keys")) as server:
        languages = await ask(server, "GET", "/v2/languages?type=target", x_api_key=key)
        assert [item["language"] for item in languages.json] == ["FR"]
        for given in (
            {"path": "/languages", "x_api_key": key},
            {"path": f"/languages?api_key={key}"},
        ):
            seen = (await ask(server, "GET", **given)).json
            assert {item["code"]: item["targets"] for item in seen} == {"de": ["fr"], "fr": []}
        everything = (await ask(server, "GET", "/languages")).json
        assert len(everything) > 2
        assert (await ask(server, "GET", "/languages", x_api_key="wrong")).json == everything
        refused = await post(server, DEEPL, {"text": [TEXT], "target_lang": "DE"}, x_api_key=key)
        assert refused.status == 403
        allowed = {"text": [GERMAN], "target_lang": "FR"}
        assert (await post(server, DEEPL, allowed, x_api_key=key)).status == 200
