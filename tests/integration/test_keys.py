"""API keys, over gRPC and HTTP on real ports."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path

import grpc
import pytest

from dragoman.v1 import translation_pb2 as pb
from model.bundle.tokenizer import Tokenizer
from service.errors import StartupError
from tests.fake_runner import FakeRunner
from tests.integration.http_client import ask, post
from tests.integration.keyed import TEXT, KeyFile, by_bearer, failure, request, serving
from tests.integration.servers import fake_runner, running_fake


@pytest.fixture
def file(tmp_path: Path) -> KeyFile:
    made = KeyFile(tmp_path / "keys.jsonl")
    made.add("somebody-else")
    return made


@pytest.mark.parametrize(
    ("name", "template"),
    [
        ("authorization", "Bearer {}"),
        ("authorization", "bearer {}"),
        ("authorization", "DeepL-Auth-Key {}"),
        ("x-api-key", "{}"),
        ("x-goog-api-key", "{}"),
    ],
)
async def test_a_key_opens_the_server_in_each_header(
    runner: FakeRunner, tokenizer: Tokenizer, file: KeyFile, name: str, template: str
) -> None:
    value = template.format(file.add("me"))
    async with serving(runner, tokenizer, file) as (server, stub):
        answer = await stub.Translate(request(), metadata=((name, value),))
        assert answer.translations[0].translated_text
        over_http = await post(server, "/v1/translate", {"contents": [TEXT]}, **{name: value})
        assert over_http.status == 200
        models = await ask(server, "GET", "/v1/models", **{name: value})
        assert models.json["models"]


async def test_a_key_among_the_parameters(
    runner: FakeRunner, tokenizer: Tokenizer, file: KeyFile
) -> None:
    key = file.add("me")
    async with serving(runner, tokenizer, file) as (server, _):
        body = {"contents": [TEXT]}
        assert (await post(server, f"/v1/translate?key={key}", body)).status == 200
        assert (await post(server, f"/v1/translate?key={key}x", body)).status == 401
        other = await post(server, f"/v1/translate?key={key}&x=1", body)
        assert (other.status, other.field) == (400, "x")


WRONG = "drg_0123456789abcdef_" + "A" * 43


@pytest.mark.parametrize("given", ["", "nonsense", WRONG, "é" * 20, "x" * 5000])
async def test_without_a_valid_key_there_is_no_answer(
    runner: FakeRunner, tokenizer: Tokenizer, file: KeyFile, given: str
) -> None:
    sent = {"x-api-key": given.encode().decode("latin-1")} if given else {}
    async with serving(runner, tokenizer, file) as (server, stub):
        if given.isascii():
            metadata = tuple(sent.items())
            code, message, _ = await failure(stub.Translate(request(), metadata=metadata))
            assert code is grpc.StatusCode.UNAUTHENTICATED
            assert "API key" in message
            code, _, _ = await failure(stub.ListModels(pb.ListModelsRequest(), metadata=metadata))
            assert code is grpc.StatusCode.UNAUTHENTICATED
        answer = await post(server, "/v1/translate", {"contents": [TEXT]}, **sent)
        assert answer.status == 401
        assert answer.json["code"] == 16
        assert answer.headers["www-authenticate"] == "Bearer"
        assert (await ask(server, "GET", "/readyz")).status == 200
        assert (await ask(server, "GET", "/")).status == 200
    assert not runner.plans


async def test_a_key_allows_some_models_and_calls_only(
    runner: FakeRunner, tokenizer: Tokenizer, file: KeyFile
) -> None:
    other_model = by_bearer(file.add("other-model", models=["another"]))
    other_call = by_bearer(file.add("other-call", calls=["Score"]))
    low = by_bearer(file.add("low", max_priority="low"))
    async with serving(runner, tokenizer, file) as (server, stub):
        code, message, _ = await failure(stub.Translate(request(), metadata=other_model))
        assert (code, "fake" in message) == (grpc.StatusCode.PERMISSION_DENIED, True)
        # With detected languages, only the texts that need the model fail.
        detected = request(
            "The dog is running over the green field.",
            "Der Hund läuft über die grüne Wiese und bellt laut.",
            source_language_code="auto",
            target_language_code="de",
        )
        english, german = (await stub.Translate(detected, metadata=other_model)).translations
        assert english.status.code == grpc.StatusCode.PERMISSION_DENIED.value[0]
        assert german.translated_text == detected.contents[1]
        assert not (await stub.ListModels(pb.ListModelsRequest(), metadata=other_model)).models
        languages = pb.ListLanguagesRequest()
        assert not (await stub.ListLanguages(languages, metadata=other_model)).groups
        code, _, _ = await failure(
            stub.GetModel(pb.GetModelRequest(name="fake"), metadata=other_model)
        )
        assert code is grpc.StatusCode.PERMISSION_DENIED
        code, message, _ = await failure(stub.Translate(request(), metadata=other_call))
        assert (code, "Translate" in message) == (grpc.StatusCode.PERMISSION_DENIED, True)
        assert (await stub.Translate(request(), metadata=low)).translations
        high = request(options=pb.TranslateOptions(priority=pb.PRIORITY_NORMAL))
        code, message, _ = await failure(stub.Translate(high, metadata=low))
        assert (code, "low" in message) == (grpc.StatusCode.PERMISSION_DENIED, True)
        name, value = other_call[0]
        over_http = await post(server, "/v1/translate", {"contents": [TEXT]}, **{name: value})
        assert over_http.status == 403


async def test_used_up_quotas_say_when_they_come_back(
    runner: FakeRunner, tokenizer: Tokenizer, file: KeyFile
) -> None:
    rate = by_bearer(file.add("rate", requests_per_minute=0))
    day = by_bearer(file.add("day", characters_per_day=2 * len(TEXT)))
    async with serving(runner, tokenizer, file) as (server, stub):
        code, _, seconds = await failure(stub.Translate(request(), metadata=rate))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert 0 < seconds <= 60
        refused = {"key": "rate", "code": "RESOURCE_EXHAUSTED"}
        assert server.metric("dragoman_key_requests_total", **refused) == 1
        code, _, seconds = await failure(stub.Translate(request(TEXT, TEXT, "x"), metadata=day))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert 0 < seconds <= 86_400
        assert await stub.Translate(request(TEXT, TEXT), metadata=day)
        name, value = day[0]
        over_http = await post(server, "/v1/translate", {"contents": ["x"]}, **{name: value})
        assert over_http.status == 429
        assert 1 <= int(over_http.headers["retry-after"]) <= 86_400
        assert server.metric("dragoman_key_characters_total", key="day") == 2 * len(TEXT)
        refused = {"key": "day", "code": "RESOURCE_EXHAUSTED"}
        assert server.metric("dragoman_key_requests_total", **refused) == 2
        assert server.metric("dragoman_requests_refused_total") == 0  # those for load


async def test_what_fails_on_the_server_s_side_costs_nothing(
    runner: FakeRunner, tokenizer: Tokenizer, file: KeyFile
) -> None:
    key = by_bearer(file.add("me", characters_per_day=len(TEXT)))
    async with serving(runner, tokenizer, file, max_characters=3) as (_, stub):
        code, _, _ = await failure(stub.StreamTranslate(_stream(), metadata=key).read())
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        code, _, _ = await failure(stub.StreamTranslate(_stream(), metadata=key).read())
        assert code is grpc.StatusCode.INVALID_ARGUMENT


def _stream() -> pb.StreamTranslateRequest:
    return pb.StreamTranslateRequest(content=TEXT)


async def test_a_revoked_key_stops_working_and_a_broken_file_changes_nothing(
    runner: FakeRunner, tokenizer: Tokenizer, file: KeyFile
) -> None:
    key = by_bearer(file.add("me"))
    async with serving(runner, tokenizer, file) as (server, stub):
        store = server.server._access._keys
        assert store is not None
        good = file.path.read_text()
        file.path.write_text(good + "{broken\n")
        await store.refresh()
        assert server.metric("dragoman_keys_last_reload_successful") == 0
        assert await stub.Translate(request(), metadata=key)
        file.revoke("me")
        await store.refresh()
        assert server.metric("dragoman_keys_last_reload_successful") == 1
        code, _, _ = await failure(stub.Translate(request(), metadata=key))
        assert code is grpc.StatusCode.UNAUTHENTICATED


async def test_a_file_that_is_missing_stops_the_start(
    runner: FakeRunner, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    with pytest.raises(StartupError, match="--keys"):
        async with running_fake(runner, tokenizer, keys=str(tmp_path / "none")):
            pass


async def test_quotas_hold_over_a_restart(
    tokenizer: Tokenizer, file: KeyFile, tmp_path: Path
) -> None:
    key = by_bearer(file.add("me", characters_per_month=3 * len(TEXT)))
    usage = str(tmp_path / "usage.db")
    for _ in range(3):
        async with serving(fake_runner(tokenizer), tokenizer, file, usage=usage) as (_, stub):
            assert await stub.Translate(request(), metadata=key)
    async with serving(fake_runner(tokenizer), tokenizer, file, usage=usage) as (_, stub):
        code, message, _ = await failure(stub.Translate(request("x"), metadata=key))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert message.endswith(": 0")


async def test_concurrent_calls_take_exactly_the_quota(
    runner: FakeRunner, tokenizer: Tokenizer, file: KeyFile
) -> None:
    key = by_bearer(file.add("me", characters_per_month=10 * len(TEXT)))
    async with serving(runner, tokenizer, file) as (server, stub):
        calls = [stub.Translate(request(), metadata=key) for _ in range(30)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(isinstance(answer, pb.TranslateResponse) for answer in answers) == 10
        assert server.metric("dragoman_key_characters_total", key="me") == 10 * len(TEXT)


async def test_each_call_with_texts_is_counted(
    runner: FakeRunner, tokenizer: Tokenizer, file: KeyFile
) -> None:
    key = by_bearer(file.add("me"))
    async with serving(runner, tokenizer, file) as (server, stub):

        def used() -> float:
            return server.metric("dragoman_key_characters_total", key="me")

        stream = stub.StreamTranslate(pb.StreamTranslateRequest(content=TEXT), metadata=key)
        assert [response async for response in stream]
        assert used() == len(TEXT)
        await stub.DetectLanguage(pb.DetectLanguageRequest(contents=[TEXT]), metadata=key)
        assert used() == 2 * len(TEXT)
        # The scripted model scores nothing, and a call that fails costs nothing.
        pairs = pb.ScoreRequest(pairs=[pb.ScorePair(source_text=TEXT, translated_text=TEXT)])
        code, _, _ = await failure(stub.Score(pairs, metadata=key))
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert used() == 2 * len(TEXT)
        await stub.ListModels(pb.ListModelsRequest(), metadata=key)
        assert used() == 2 * len(TEXT)
        # Equal parts of a document are translated, and charged, once.
        document = pb.TranslateDocumentRequest(
            content=f"{TEXT}\n\n{TEXT}\n".encode(), file_name="a.txt"
        )
        await stub.TranslateDocument(document, metadata=key)
        assert used() == 3 * len(TEXT)
        document.content = b"\xff"
        code, _, _ = await failure(stub.TranslateDocument(document, metadata=key))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert used() == 3 * len(TEXT)


async def test_wrong_keys_are_one_line_a_second_in_the_log_and_no_series(
    runner: FakeRunner, tokenizer: Tokenizer, file: KeyFile, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "dragoman.access")
    async with serving(runner, tokenizer, file) as (server, stub):
        series = len((await server.scrape()).splitlines())
        started = time.monotonic()
        for number in range(0, 500, 100):
            calls = [
                stub.Translate(request(), metadata=by_bearer(f"wrong-{number + each}"))
                for each in range(100)
            ]
            answers = await asyncio.gather(*calls, return_exceptions=True)
            assert all(isinstance(each, grpc.aio.AioRpcError) for each in answers)
        seconds = time.monotonic() - started
        lines = [line for line in caplog.records if line.name == "dragoman.access"]
        assert len(lines) <= seconds + 2
        assert {line.getMessage() for line in lines} == {"unauthenticated calls"}
        assert "wrong" not in caplog.text
        refused = {"method": "Translate", "code": "UNAUTHENTICATED"}
        assert server.metric("dragoman_requests_total", **refused) == 500
        assert len((await server.scrape()).splitlines()) < series + 60


async def test_calls_over_a_quota_are_one_line_a_second_for_each_key(
    runner: FakeRunner, tokenizer: Tokenizer, file: KeyFile, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "dragoman.access")
    names = ("one", "other")
    made = [file.add(name, requests_per_minute=0) for name in names]
    async with serving(runner, tokenizer, file) as (_, stub):
        started = time.monotonic()
        refused = [stub.Translate(request(), metadata=by_bearer(key)) for key in made * 50]
        answers = await asyncio.gather(*refused, return_exceptions=True)
        seconds = time.monotonic() - started
    assert all(isinstance(each, grpc.aio.AioRpcError) for each in answers)
    lines = [each for each in caplog.records if each.getMessage() == "calls over quota"]
    by_key = Counter(vars(each)["client"] for each in lines)
    assert set(by_key) == {f"key:{name}" for name in names}
    assert max(by_key.values()) <= seconds + 2
