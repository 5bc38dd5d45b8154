"""The HTTP front on a real port: the same calls as gRPC's, in JSON."""

import asyncio
import contextlib
import json
import logging
import socket
from collections.abc import AsyncIterator
from typing import Any

import h11
import pytest
from google.protobuf import json_format

from dragoman.client import AsyncClient
from dragoman.v1 import translation_pb2 as pb
from model.bundle.tokenizer import Tokenizer
from service.calls.backend import Backend
from service.calls.call_context import Context
from service.calls.call_tracker import CallTracker
from service.calls.request_parsing import RequestParser
from service.errors import StartupError
from service.fronts.dragoman.servicer import SERVICE, TranslationServicer
from service.fronts.http.call_endpoint import CallEndpoint
from service.fronts.http.front_endpoint import FrontEndpoint
from service.fronts.http.transfers import HttpLimits
from service.models.registry import Registry
from service.observability.metrics import ServerMetrics
from service.ports.http.contract_server import ContractServer
from service.server import Server
from tests.integration.http_client import ask, post, raw_post
from tests.integration.servers import Running, any_ports, fake_runner, running_fake, served
from tests.integration.test_going_away import until_inside

TRANSLATE, STREAM = "/v1/translate", "/v1/translate:stream"
TEXT = "A dog is running. The children are playing."


@contextlib.asynccontextmanager
async def serving(tokenizer: Tokenizer, **settings: Any) -> AsyncIterator[Running]:
    chosen = {"http_port": 0, **settings}
    async with running_fake(fake_runner(tokenizer), tokenizer, **chosen) as made:
        yield made


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
    runner = fake_runner(tokenizer)
    async with running_fake(runner, tokenizer, http_port=0) as made:
        runner.hold()
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


def held(made: Running) -> tuple[int, ...]:
    """The units of quotas held by calls and transfers."""
    tracker, http = made.server._tracker, made.server._http
    assert http is not None
    transfers = http.app._transfers
    quotas = (tracker.calls, tracker.bytes, transfers.arriving, transfers.leaving)
    return tuple(quota.num_taken for quota in quotas)


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


async def test_unfinished_bodies_keep_no_call_out(tokenizer: Tokenizer) -> None:
    async with serving(tokenizer) as made:
        assert made.server._http is not None
        arriving = made.server._http.app._transfers.arriving
        size = 3 * made.server._tracker.max_message_bytes
        writers = []
        for number in range(8):
            _, writer = await asyncio.open_connection("127.0.0.1", made.server.http_port)
            name = f"x-client-id: c{number}\r\n".encode()
            writer.write(raw_post(TRANSLATE, b"", size).replace(b"\r\n", b"\r\n" + name, 1))
            writers.append(writer)
        while made.metric("dragoman_requests_in_flight", method="Translate") < len(writers):
            await asyncio.sleep(0)
        assert held(made) == (0, 0, 0, 0)  # what a header says takes nothing
        for writer in writers:
            writer.write(b" " * (size - 1))
        while not made.metric("dragoman_http_responses_total", code="429"):
            assert arriving.num_taken <= arriving.capacity
            await asyncio.sleep(0)
        assert held(made)[:2] == (0, 0)
        assert (await made.client.translate(["A dog."])).translations[0].text == "A dog."
        for writer in writers:
            writer.transport.abort()
        while made.metric("dragoman_requests_in_flight", method="Translate"):
            await asyncio.sleep(0)
        assert held(made) == (0, 0, 0, 0)


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


async def test_a_slow_reader_is_within_the_quotas_and_the_least_rate(tokenizer: Tokenizer) -> None:
    limits = HttpLimits(write_seconds=0.2, write_bytes_per_second=2**40)
    calls = _LargeAnswers(2**25)
    tracker = CallTracker(ServerMetrics(), RequestParser(SERVICE, {}), 8)
    server = ContractServer(calls, tracker, lambda: "", "127.0.0.1", 0, limits)
    await server.start()
    leaving = server.app._transfers.leaving
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(connection, ("127.0.0.1", server.port))
    await loop.sock_sendall(connection, raw_post(TRANSLATE, b"{}"))
    count = tracker.metrics.registry.get_sample_value
    while not count("dragoman_http_responses_total", {"code": "200"}):
        await asyncio.sleep(0)
    assert tracker.calls.num_taken == 1
    assert leaving.num_taken >= calls.size
    received = 0
    with contextlib.suppress(ConnectionError):
        # Fast enough for progress, and too slowly for the whole.
        while piece := await loop.sock_recv(connection, 1024 if tracker.calls.num_taken else 2**20):
            received += len(piece)
            await asyncio.sleep(0)
    connection.close()
    assert 0 < received < calls.size
    while tracker.calls.num_taken:
        await asyncio.sleep(0)
    assert (leaving.num_taken, tracker.bytes.num_taken) == (0, 0)
    labels = {"method": "Translate", "code": "CANCELLED"}
    assert count("dragoman_requests_total", labels) == 1
    await server.close()


class _LargeAnswers(TranslationServicer):
    """A servicer that returns translations of `size` bytes."""

    def __init__(self, size: int) -> None:
        super().__init__(Backend(ServerMetrics()))
        self.size = size

    async def Translate(
        self, request: pb.TranslateRequest, context: Context
    ) -> pb.TranslateResponse:
        return pb.TranslateResponse(model="x" * self.size)


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


async def test_a_call_beyond_the_limit_says_when_to_retry(tokenizer: Tokenizer) -> None:
    runner = fake_runner(tokenizer)
    async with running_fake(runner, tokenizer, http_port=0, max_concurrent_requests=1) as made:
        runner.hold()
        first = asyncio.ensure_future(made.client.translate([TEXT]))
        await until_inside(made, 1)
        answer = await post(made, TRANSLATE, {"contents": [TEXT]})
        assert (answer.status, answer.json["code"]) == (429, 8)
        assert answer.headers["retry-after"] == "1"
        assert answer.json["details"][0]["retryDelay"] == "1s"
        runner.release()
        await first


async def test_a_deadline_ends_a_call(tokenizer: Tokenizer) -> None:
    runner = fake_runner(tokenizer)
    async with running_fake(runner, tokenizer, http_port=0) as made:
        runner.hold()
        answer = await post(made, TRANSLATE, {"contents": [TEXT]}, grpc_timeout="300m")
        assert (answer.status, answer.json["code"]) == (504, 4)
        assert made.metric("dragoman_requests_total", method="Translate", code="DEADLINE_EXCEEDED")
        runner.release()


@pytest.mark.parametrize(("path", "field"), [(TRANSLATE, "contents"), (STREAM, "content")])
async def test_a_client_that_goes_frees_its_rows(
    tokenizer: Tokenizer, path: str, field: str
) -> None:
    runner, method = fake_runner(tokenizer), "Translate" if path == TRANSLATE else "StreamTranslate"
    async with running_fake(runner, tokenizer, http_port=0) as made:
        runner.hold()
        body = json.dumps({field: [TEXT] if path == TRANSLATE else TEXT}).encode()
        _, writer = await asyncio.open_connection("127.0.0.1", made.server.http_port)
        writer.write(raw_post(path, body))
        await until_inside(made, 1)
        writer.close()
        while not made.metric("dragoman_requests_total", method=method, code="CANCELLED"):
            await asyncio.sleep(0)
        runner.release()
        assert (await made.client.translate(["A dog."])).translations[0].text == "A dog."
        assert made.metric("dragoman_rows_used", model="fake") == 0


@pytest.mark.parametrize("when", ["with the body", "after the body"])
@pytest.mark.parametrize("late", [b"\r\n", b"GET /"])
async def test_a_client_that_goes_after_more_bytes_frees_its_rows(
    tokenizer: Tokenizer, late: bytes, when: str
) -> None:
    runner = fake_runner(tokenizer)
    async with running_fake(runner, tokenizer, http_port=0) as made:
        runner.hold()
        body = raw_post(TRANSLATE, json.dumps({"contents": [TEXT]}).encode())
        _, writer = await asyncio.open_connection("127.0.0.1", made.server.http_port)
        writer.write(body + late if when == "with the body" else body)
        await until_inside(made, 1)
        if when == "after the body":
            writer.write(late)
        writer.close()
        while not made.metric("dragoman_requests_total", method="Translate", code="CANCELLED"):
            await asyncio.sleep(0)
        runner.release()
        assert held(made) == (0, 0, 0, 0)


async def test_requests_sent_ahead_are_answered_in_turn(tokenizer: Tokenizer) -> None:
    async with serving(tokenizer) as made:
        reader, writer = await asyncio.open_connection("127.0.0.1", made.server.http_port)
        texts = [f"Number {number}." for number in range(20)]
        bodies = [json.dumps({"contents": [text]}).encode() for text in texts]
        writer.write(b"".join(raw_post(TRANSLATE, body) for body in bodies))
        for text in texts:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            answer = json.loads(await reader.readexactly(length))
            assert answer["translations"][0]["translatedText"] == text
        writer.close()


async def test_a_connection_idles_after_an_early_answer() -> None:
    limits = HttpLimits(head_seconds=0.2, idle_seconds=60.0)
    server = ContractServer(*_unserved(), "127.0.0.1", 0, limits)
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    early = raw_post(TRANSLATE, b"", 10).replace(b"application/json", b"text/plain")
    writer.write(early)
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 415 ")
    writer.write(b"0123456789")
    connection: Any = next(iter(server._state.connections))
    while connection.conn.their_state is not h11.IDLE:
        await asyncio.sleep(0)
    assert connection._timers == {}
    assert connection.timeout_keep_alive_task is not None
    writer.close()
    await server.close()


async def test_an_early_answer_waits_for_the_rest_of_the_body() -> None:
    """A client that still sends when the connection is closed would lose the answer."""
    rest = b"0123456789" * 300_000  # nearly the largest message
    server = ContractServer(*_unserved(), "127.0.0.1", 0)
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    early = raw_post(TRANSLATE, b"", len(rest)).replace(b"POST", b"PUT")
    writer.write(early.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 405 ")
    (connection,) = server._state.connections
    assert not connection.transport.is_closing()
    writer.write(rest)
    assert b"takes POST only" in await reader.read()  # to the end, without a reset
    writer.close()
    await server.close()


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


SAME, OTHER = "localhost:1", "evil.example:1"


@pytest.mark.parametrize(
    ("allowed", "host", "origin", "status"),
    [
        ((), SAME, None, 200),
        ((), "LOCALHOST", "http://localhost", 200),
        ((), "127.0.0.1:1", "http://127.0.0.1:1", 200),
        ((), "[::1]:1", "http://[::1]:1", 200),
        ((), "192.0.2.1", None, 200),
        ((), "[::1]evil.example", None, 400),
        ((), OTHER, None, 403),
        ((), OTHER, f"http://{OTHER}", 403),
        ((), SAME, f"http://{OTHER}", 403),
        ((), SAME, "http://localhost:2", 403),
        ((), SAME, "null", 403),
        (("public.example",), "public.example", "https://public.example", 200),
        (("public.example",), SAME, "https://public.example", 200),  # a proxy with its own Host
        (("public.example",), OTHER, None, 403),
        (("public.example",), SAME, f"http://{OTHER}", 403),
    ],
)
async def test_pages_of_other_sites_are_refused(
    allowed: tuple[str, ...], host: str, origin: str | None, status: int
) -> None:
    server = ContractServer(*_unserved(), "127.0.0.1", 0, allowed_hosts=allowed)
    await server.start()
    made: Any = type("", (), {"server": type("", (), {"http_port": server.port})})
    headers = {"host": host} | ({"origin": origin} if origin else {})
    answer = await ask(made, "GET", "/style.css", **headers)
    assert answer.status == status
    if status == 403:
        assert "--http-allowed-hosts" in answer.json["message"]
    assert (await ask(made, "GET", "/readyz", **headers)).status == 503  # probes may use any
    await server.close()


async def test_a_page_of_another_site_makes_no_call(tokenizer: Tokenizer) -> None:
    """This holds for all paths and methods: browsers request the URL of any image."""
    async with serving(tokenizer) as made:
        http = made.server._http
        assert http is not None
        calls = [
            (method, route.path)
            for route in http.app._app.routes  # type: ignore[attr-defined]
            if isinstance(route.endpoint, CallEndpoint | FrontEndpoint)
            for method in sorted(route.methods)
        ]
        assert {("GET", "/language/translate/v2"), ("POST", TRANSLATE)} <= {*calls}
        for method, path in calls:
            for further in ({}, {"referer": "https://evil.example/"}, {"x_api_key": "invented"}):
                refused = await ask(made, method, path, sec_fetch_site="cross-site", **further)
                assert refused.status == 403, (method, path)
        asked = "/language/translate/v2?q=A%20dog.&target=de&source=en"
        assert (await ask(made, "GET", asked)).status == 200  # a program, or a typed URL
        assert (await ask(made, "GET", asked, sec_fetch_site="same-origin")).status == 200
        for path in ("/", "/docs", "/openapi.json", "/health", "/readyz"):
            assert (await ask(made, "GET", path, sec_fetch_site="cross-site")).status == 200


APP = "https://app.example.org"


async def test_pages_of_allowed_origins_may_ask(tokenizer: Tokenizer) -> None:
    async with serving(tokenizer, http_allow_origin=(APP.upper(),)) as made:
        asked = {
            "access_control_request_method": "POST",
            "access_control_request_headers": "authorization,content-type",
        }
        preflight = await ask(made, "OPTIONS", TRANSLATE, origin=APP, **asked)
        assert preflight.status == 200
        assert preflight.headers["access-control-allow-origin"] == APP
        assert "POST" in preflight.headers["access-control-allow-methods"]
        for bad in (
            {"access_control_request_method": "TRACE"},
            {**asked, "access_control_request_headers": "cookie"},
        ):
            assert (await ask(made, "OPTIONS", TRANSLATE, origin=APP, **bad)).status == 400
        for path, body, status in (
            (TRANSLATE, {"contents": [TEXT]}, 200),
            (TRANSLATE, {}, 400),
            ("/v2/translate", {"text": [TEXT], "target_lang": "de"}, 200),
            ("/nowhere", {}, 404),
        ):
            answer = await post(made, path, body, origin=APP)
            assert answer.status == status
            assert answer.headers["access-control-allow-origin"] == APP
            assert "x-request-id" in answer.headers["access-control-expose-headers"]
            assert "access-control-allow-credentials" not in answer.headers
            assert "Origin" in answer.headers["vary"]
        streamed = await post(made, STREAM, {"content": TEXT}, origin=APP)
        assert streamed.headers["access-control-allow-origin"] == APP
        assert streamed.events[-1][0] == "message"
        for origin in ("https://evil.example", f"{APP}.evil.example", "null"):
            for method in ("OPTIONS", "POST"):
                refused = await ask(made, method, TRANSLATE, {}, origin=origin, **asked)
                assert refused.status == 403
                assert "access-control-allow-origin" not in refused.headers


async def test_any_origin_or_none(tokenizer: Tokenizer) -> None:
    async with serving(tokenizer, http_allow_origin=("*",)) as made:
        answer = await post(made, TRANSLATE, {"contents": [TEXT]}, origin="null")
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, "*")
        # A site's name that resolves to loopback is still refused.
        assert (await post(made, TRANSLATE, {}, origin=APP, host=OTHER)).status == 403
    async with serving(tokenizer) as made:
        answer = await post(made, TRANSLATE, {"contents": [TEXT]})
        assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_all_answers_have_a_policy(tokenizer: Tokenizer) -> None:
    async with serving(tokenizer) as made:
        for answer in (
            await ask(made, "GET", "/nowhere"),
            await ask(made, "GET", "/readyz"),
            await ask(made, "GET", "/v1/models"),
            await ask(made, "GET", TRANSLATE),
            await post(made, STREAM, {"content": TEXT}),
            await post(made, TRANSLATE, {}),
        ):
            policy = "default-src 'none'; frame-ancestors 'none'"
            assert answer.headers["content-security-policy"] == policy
            assert answer.headers["cache-control"] == "no-store"
            assert answer.headers["x-content-type-options"] == "nosniff"


async def test_a_client_that_goes_within_a_stream_leaves_no_warning(
    tokenizer: Tokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tokenizer) as made:
        reader, writer = await asyncio.open_connection("127.0.0.1", made.server.http_port)
        body = json.dumps({"content": f"{TEXT} " * 200}).encode()
        writer.write(raw_post(STREAM, body))
        await reader.readuntil(b"data: ")
        writer.transport.abort()
        while not made.metric(
            "dragoman_requests_total", method="StreamTranslate", code="CANCELLED"
        ):
            await asyncio.sleep(0)
    assert {record.levelname for record in caplog.records} <= {"DEBUG", "INFO"}


async def test_a_client_that_goes_while_it_sends(tokenizer: Tokenizer) -> None:
    async with serving(tokenizer) as made:
        _, writer = await asyncio.open_connection("127.0.0.1", made.server.http_port)
        writer.write(raw_post(TRANSLATE, b'{"contents"', length=100))
        while not made.metric("dragoman_requests_in_flight", method="Translate"):
            await asyncio.sleep(0)
        writer.close()
        while not made.metric("dragoman_requests_total", method="Translate", code="CANCELLED"):
            await asyncio.sleep(0)


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
    server = ContractServer(*_unserved(), "127.0.0.1", 0)
    await server.start()
    made: Any = type("", (), {"server": type("", (), {"http_port": server.port})})
    assert (await post(made, TRANSLATE, {"contents": ["x"]})).status == 503
    assert (await ask(made, "GET", "/")).status == 200
    await server.close()


def _unserved() -> tuple[Any, Any, Any]:
    server = Server(any_ports(), lambda: pytest.fail("not started"), ServerMetrics())
    return server._servicer, server._tracker, server.probes.known_reason


async def test_slow_clients_are_disconnected() -> None:
    limits = HttpLimits(head_seconds=0.05, body_seconds=0.05, write_seconds=0.05, idle_seconds=0.05)
    server = ContractServer(*_unserved(), "127.0.0.1", 0, limits)
    await server.start()
    whole = b"GET /style.css HTTP/1.1\r\nhost: localhost\r\n\r\n"
    for data, begins in (
        (b"", b""),
        (b"GET / HTTP/1.1\r\n", b""),
        (whole + b"GET", b"HTTP/1.1 200"),
        (whole, b"HTTP/1.1 200"),
        (raw_post(TRANSLATE, b"{", length=10), b"HTTP/1.1 408"),
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(data)
        answer = b""
        with contextlib.suppress(ConnectionError):
            while piece := await reader.read(2**16):
                answer += piece
        assert answer.startswith(begins)
        writer.close()
    # One that does not read, and asks for more than the buffers of both sides hold.
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(connection, ("127.0.0.1", server.port))
    asking = loop.create_task(_send_for_ever(connection, whole * 100))
    with pytest.raises(ConnectionError):
        await asking
    connection.close()
    await server.close()


async def _send_for_ever(connection: socket.socket, data: bytes) -> None:
    while True:
        await asyncio.get_running_loop().sock_sendall(connection, data)


async def test_connections_are_limited_and_idle_ones_give_way() -> None:
    server = ContractServer(*_unserved(), "127.0.0.1", 0, max_connections=8)
    await server.start()

    async def connect(data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(data)
        return reader, writer

    async def until_closed(reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read()

    begun = raw_post(TRANSLATE, b"", 10)  # a call whose body is on its way
    open_connections = [await connect(begun) for _ in range(7)]  # the last is for other hosts
    while len(server._state.tasks) < 7:
        await asyncio.sleep(0)
    await until_closed((await connect(b""))[0])
    reader, writer = open_connections[3]
    writer.write(b"0123456789")
    assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 400")  # it is idle now
    further, _ = await connect(b"GET /icon.svg HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert (await further.readline()).startswith(b"HTTP/1.1 200")
    await until_closed(reader)
    assert len(server._state.connections) == 7
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


async def test_the_page_brings_everything_along(tokenizer: Tokenizer) -> None:
    async with serving(tokenizer) as made:
        page = await ask(made, "GET", "/")
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert "unsafe" not in page.headers["content-security-policy"]
        text = page.body.decode()
        assert "style=" not in text
        assert "onclick" not in text
        assert "//" not in text.replace("http://www.w3.org", "")  # no other server
        names = [
            part.split('"')[0] for mark in ('src="', 'href="') for part in text.split(mark)[1:]
        ]
        assert {"main.js", "style.css", "icon.svg"} == set(names)
        for name in names:
            file = await ask(made, "GET", f"/{name}")
            assert file.status == 200
            again = await ask(made, "GET", f"/{name}", if_none_match=file.headers["etag"])
            assert (again.status, again.body) == (304, b"")
