"""The HTTP front on a real port: the same calls as gRPC's, in JSON."""

import asyncio
import json
import logging
import socket
from typing import Any

import pytest
from google.protobuf import json_format

from dragoman.client import AsyncClient
from dragoman.v1 import translation_pb2 as pb
from model.bundle.tokenizer import Tokenizer
from service.errors import StartupError
from service.models.registry import Registry
from service.observability.metrics import ServerMetrics
from service.ports.http.contract_server import ContractServer
from service.server import Server
from tests.integration.http_client import ask, post, raw_post
from tests.integration.http_serving import STREAM, TEXT, TRANSLATE, held, serving, unserved
from tests.integration.servers import any_ports, fake_runner, running_fake, running_held, served
from tests.integration.test_going_away import until_inside


async def test_json_is_what_grpc_answers(tokenizer: Tokenizer) -> None:
    options = {"num_hypotheses": 2, "return_tokens": True, "search": {"beam_size": 2}}
    async with serving(tokenizer) as made:
        answer = await post(made, TRANSLATE, {"contents": [TEXT, "x\0"], "options": options})
        over_grpc = await made.client._stub.Translate(
            json_format.ParseDict(
                {"contents": [TEXT, "x\0"], "options": options}, pb.TranslateRequest()
            )
        )
        assert answer.status == 200
        over_http = json_format.ParseDict(answer.json, pb.TranslateResponse())
        for each in (over_http, over_grpc):
            each.ClearField("timing")
        assert over_http == over_grpc
        assert over_http.translations[1].status.code == 3  # a bad text fails alone
        models, languages = (
            await ask(made, "GET", "/v1/models"),
            await ask(made, "GET", "/v1/languages"),
        )
        assert [model["name"] for model in models.json["models"]] == ["fake"]
        assert languages.json["groups"][0]["targetLanguageCodes"] == ["de"]
        assert (await ask(made, "GET", "/v1/models/fake")).json == models.json["models"][0]


async def test_a_stream_is_events_that_join_to_the_translation(tokenizer: Tokenizer) -> None:
    async with serving(tokenizer) as made:
        answer = await post(made, STREAM, {"content": TEXT})
        *deltas, (_, last) = answer.events
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert "".join(event["delta"]["text"] for _, event in deltas) == TEXT
        assert last["summary"]["finishReason"] == "FINISH_REASON_EOS"


async def test_an_error_within_a_stream_is_its_last_event(tokenizer: Tokenizer) -> None:
    async with running_held(tokenizer, http_port=0) as (made, runner):
        pending = asyncio.ensure_future(post(made, STREAM, {"content": TEXT}))
        runner.allow(len(tokenizer.encode("A dog is running.")) + 2)
        await asyncio.to_thread(runner.wait_until_blocked)
        runner.fail_next(RuntimeError("scripted"))
        runner.release()
        answer = await pending
        assert answer.status == 200
        name, status = answer.events[-1]
        assert (name, status["code"]) == ("error", 13)
        assert "scripted" not in status["message"]


LONG = json.dumps({"contents": ["x"] * 20}).encode()
BAD: list[tuple[str, bytes, int, str]] = [
    (TRANSLATE, b'{"content": "x"}', 400, "content"),
    (TRANSLATE, b'{"options": {"search": {"beamSiz": 2}}}', 400, "options.search.beamSiz"),
    (TRANSLATE, b'{"options": {"search": {"beamSize": "x"}}}', 400, "options.search.beamSize"),
    (
        TRANSLATE,
        b'{"contents": ["x"], "options": {"search": {"beamSize": 99}}}',
        400,
        "options.search.beam_size",
    ),
    (TRANSLATE, b'{"contents": "x"}', 400, "contents"),
    (TRANSLATE, b'{"contents": [1]}', 400, "contents"),
    (TRANSLATE, b'{"contents": ["x"], "contents": ["y"]}', 400, "contents"),
    (TRANSLATE, b'{"contents": ["\\ud800"]}', 400, "contents"),
    (TRANSLATE, b'{"contents": ["x"], "\\ud800": 1}', 400, "\\ud800"),
    (TRANSLATE, b'{"\\ud800": 1, "\\ud800": 2}', 400, "\\ud800"),
    (TRANSLATE, b'{"contents": ["x"], "options": "\\ud800"}', 400, "options"),
    (TRANSLATE, b'{"options": {"priority": "\\ud800"}}', 400, "options.priority"),
    (
        TRANSLATE,
        b'{"options": {"search": {"lengthPenalty": "\\ud800"}}}',
        400,
        "options.search.lengthPenalty",
    ),
    (TRANSLATE, '{"contents": ["x"]}'.encode("utf-16-le"), 400, "body"),
    (TRANSLATE, LONG, 400, "contents"),
    (TRANSLATE, b"{}", 400, "contents"),
    (TRANSLATE, b"", 400, "contents"),
    (TRANSLATE, b"[]", 400, "body"),
    (TRANSLATE, b"nonsense", 400, "body"),
    (TRANSLATE, b'{"contents": ["\xff"]}', 400, "body"),
    (TRANSLATE, b"[" * 10_000, 400, "body"),
    (TRANSLATE, b"[" + b"{}," * 10_000 + b"{}]", 400, "body"),
    (TRANSLATE, b'"' * 50_001 + b"," * 2000, 400, "body"),
    (TRANSLATE, b'{"contents": [' + b"9" * 5000 + b"]}", 400, "body"),
    ("/v1/score", b'{"pairs": [{"source": "x"}]}', 400, "pairs[0].source"),
    (f"{TRANSLATE}?alt=json", b"{}", 400, "alt"),
]


@pytest.fixture(scope="module")
def small() -> dict[str, Any]:
    """Settings with low limits."""
    return {"max_texts": 8, "max_request_characters": 20_000, "max_characters": 20_000}


async def test_bad_requests_name_the_field(tokenizer: Tokenizer, small: dict[str, Any]) -> None:
    async with serving(tokenizer, **small) as made:
        for path, body, status, field in BAD:
            answer = await post(made, path, body)
            assert (answer.status, answer.json["code"]) == (status, 3), body[:60]
            assert answer.field == field, body[:60]
            assert answer.headers["content-type"] == "application/json"
        assert held(made) == (0, 0, 0, 0)
        again = await post(made, TRANSLATE, {"contents": ["A dog."]})
        assert again.json["translations"][0]["translatedText"] == "A dog."


async def test_what_http_alone_can_get_wrong(tokenizer: Tokenizer, small: dict[str, Any]) -> None:
    message = b'{"contents": ["A dog."]}'
    async with serving(tokenizer, **small) as made:

        async def status(*arguments: Any, **headers: str) -> tuple[int, str]:
            answer = await ask(made, *arguments, **headers)
            assert answer.json["message"]
            return answer.status, answer.headers.get("allow", "")

        assert await status("GET", "/nowhere") == (404, "")
        assert await status("GET", TRANSLATE) == (405, "POST")
        assert await status("POST", TRANSLATE, message, content_type="text/plain") == (415, "")
        assert await status("POST", TRANSLATE, message, content_encoding="gzip") == (415, "")
        assert await status("POST", TRANSLATE, message, grpc_timeout="soon") == (400, "")
        assert await status("POST", TRANSLATE, b" " * 10**6) == (413, "")
        many = {f"x-{number}": "" for number in range(100)}
        assert await status("GET", "/v1/models", **many) == (431, "")
        assert await status("GET", "/v1/models", x="a" * 33_000) == (431, "")
        assert await status("GET", f"/v1/models?{'a' * 33_000}") == (431, "")


async def test_too_many_bytes_without_a_length(tokenizer: Tokenizer, small: dict[str, Any]) -> None:
    async with serving(tokenizer, **small) as made:
        reader, writer = await asyncio.open_connection("127.0.0.1", made.server.http_port)
        head = (
            b"POST /v1/translate HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        )
        writer.write(head + b"transfer-encoding: chunked\r\n\r\n")
        chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
        writer.write(chunk * 16)
        assert (await reader.readline()).split()[1] == b"413"
        writer.close()


async def test_two_lengths_are_refused(tokenizer: Tokenizer) -> None:
    async with serving(tokenizer) as made:

        async def refusal(version: bytes, headers: bytes) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", made.server.http_port)
            head = b"POST /v1/translate HTTP/" + version + b"\r\nhost: localhost\r\n"
            writer.write(head + b"content-type: application/json\r\n" + headers + b"\r\n")
            answer = await reader.read()  # to its end, which comes after seconds
            writer.close()
            return answer

        answers = await asyncio.gather(
            refusal(b"1.1", b"content-length: 1\r\ntransfer-encoding: chunked\r\n"),
            refusal(b"1.1", b"transfer-encoding: chunked\r\ncontent-length: 1\r\n"),
            refusal(b"1.0", b"transfer-encoding: chunked\r\n"),
        )
        for answer in answers:
            assert answer.startswith(b"HTTP/1.1 400 ")
            assert b"transfer-encoding" in answer


async def test_what_is_no_http_gets_an_answer(tokenizer: Tokenizer) -> None:
    async with serving(tokenizer) as made:
        for data in (
            b"hello\r\n\r\n",
            b"GET / HTTP/1.1\r\nx: " + b"y" * 100_000,
            b"\x16\x03\x01\r\n\r\n",
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", made.server.http_port)
            writer.write(data)
            assert (await reader.readline()).startswith(b"HTTP/1.1 400 ")
            writer.close()


@pytest.mark.parametrize("method", ["POST", "HEAD"])
async def test_a_broken_body_of_a_refused_request_gets_one_answer(
    tokenizer: Tokenizer, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    """Both the head and the body are wrong, and arrive together."""
    async with serving(tokenizer) as made:
        reader, writer = await asyncio.open_connection("127.0.0.1", made.server.http_port)
        head = (
            f"{method} {TRANSLATE} HTTP/1.1\r\nhost: evil.example\r\n"
            "transfer-encoding: chunked\r\n\r\n"
        )
        writer.write(head.encode() + b"no number\r\n")
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert answer.count(b"content-length") == 1
        writer.close()
        assert (await ask(made, "GET", "/readyz")).status == 200
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_the_target_may_be_a_url(tokenizer: Tokenizer) -> None:
    async with serving(tokenizer) as made:
        message = {"contents": ["A dog."]}
        answer = await post(made, f"http://localhost{TRANSLATE}", message)
        assert (answer.status, answer.json["translations"][0]["translatedText"]) == (200, "A dog.")
        evil = f"http://evil.example{TRANSLATE}"
        assert (await post(made, evil, message, host="localhost")).status == 403


async def test_a_call_beyond_the_limit_says_when_to_retry(tokenizer: Tokenizer) -> None:
    async with running_held(tokenizer, http_port=0, max_concurrent_requests=1) as (made, runner):
        first = asyncio.ensure_future(made.client.translate([TEXT]))
        await until_inside(made, 1)
        answer = await post(made, TRANSLATE, {"contents": [TEXT]})
        assert (answer.status, answer.json["code"]) == (429, 8)
        assert answer.headers["retry-after"] == "1"
        assert answer.json["details"][0]["retryDelay"] == "1s"
        runner.release()
        await first


async def test_a_deadline_ends_a_call(tokenizer: Tokenizer) -> None:
    async with running_held(tokenizer, http_port=0) as (made, runner):
        answer = await post(made, TRANSLATE, {"contents": [TEXT]}, grpc_timeout="300m")
        assert (answer.status, answer.json["code"]) == (504, 4)
        assert made.metric("dragoman_requests_total", method="Translate", code="DEADLINE_EXCEEDED")
        runner.release()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_a_client_is_the_same_over_both_ports(
    tokenizer: Tokenizer, host: str, caplog: pytest.LogCaptureFixture
) -> None:
    if host == "::1" and not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    settings = any_ports(host=host, http_host=host, http_port=0)
    metrics = ServerMetrics()
    registry = Registry([served(fake_runner(tokenizer), tokenizer, settings, metrics)])
    caplog.set_level("INFO", "dragoman.access")
    async with Server(settings, registry, metrics) as server:
        name = f"[{host}]" if ":" in host else host
        async with AsyncClient(f"{name}:{server.port}") as client:
            await client.translate(["A dog."])
        reader, writer = await asyncio.open_connection(host, server.http_port)
        writer.write(raw_post(TRANSLATE, b'{"contents": ["A dog."]}'))
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()
    [over_grpc, over_http] = [vars(each)["client"] for each in caplog.records if each.msg == "call"]
    assert over_grpc == over_http


async def test_ids_and_metrics_are_those_of_grpc(tokenizer: Tokenizer) -> None:
    async with serving(tokenizer) as made:
        message = {"contents": [TEXT]}
        answer = await post(made, TRANSLATE, message, x_request_id="mine", x_client_id="me")
        assert answer.headers["x-request-id"] == "mine"
        refused = await post(made, TRANSLATE, {}, x_request_id="not a valid id")
        assert len(refused.headers["x-request-id"]) == 32
        count = made.metric("dragoman_client_requests_total", client="id:me", code="OK")
        assert count == 1
        assert made.metric("dragoman_requests_total", method="Translate", code="OK") == 1
        assert made.metric("dragoman_http_responses_total", code="200") == 1
        assert made.metric("dragoman_http_responses_total", code="400") == 1
        assert made.metric("dragoman_requests_in_flight", method="Translate") == 0


async def test_a_drain_finishes_calls(tokenizer: Tokenizer) -> None:
    runner = fake_runner(tokenizer)
    async with running_fake(runner, tokenizer, http_port=0, drain_seconds=60.0) as made:
        assert (await ask(made, "GET", "/readyz")).status == 200
        runner.hold()
        pending = asyncio.ensure_future(post(made, TRANSLATE, {"contents": [TEXT]}))
        await until_inside(made, 1)
        draining = asyncio.ensure_future(made.server.drain())
        await asyncio.sleep(0)
        not_ready = await ask(made, "GET", "/readyz")
        assert (not_ready.status, not_ready.body) == (503, b"draining\n")
        assert not_ready.headers["connection"] == "close"
        runner.release()
        answer = await pending
        assert answer.json["translations"][0]["translatedText"] == TEXT
        await draining
        with pytest.raises(ConnectionError):
            await ask(made, "GET", "/readyz")


async def test_it_answers_before_the_models_are_loaded(tokenizer: Tokenizer) -> None:
    server = ContractServer(*unserved(), "127.0.0.1", 0)
    await server.start()
    made: Any = type("", (), {"server": type("", (), {"http_port": server.port})})
    assert (await post(made, TRANSLATE, {"contents": ["x"]})).status == 503
    assert (await ask(made, "GET", "/")).status == 200
    await server.close()


async def test_a_port_in_use_stops_the_start(tokenizer: Tokenizer) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(StartupError, match="--http-port"):
            async with serving(tokenizer, http_port=other.getsockname()[1]):
                pass


async def test_there_is_no_http_unless_asked_for(tokenizer: Tokenizer) -> None:
    async with running_fake(fake_runner(tokenizer), tokenizer) as made:
        assert made.server.http_port == -1
