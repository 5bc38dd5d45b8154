"""Clients of the HTTP port that go away, are slow, or send ahead."""

import asyncio
import contextlib
import json
import socket
from typing import Any

import h11
import pytest

from dragoman.v1 import translation_pb2 as pb
from model.bundle.tokenizer import Tokenizer
from service.calls.backend import Backend
from service.calls.call_context import Context
from service.calls.call_tracker import CallTracker
from service.calls.request_parsing import RequestParser
from service.fronts.dragoman.servicer import SERVICE, TranslationServicer
from service.fronts.http.transfers import HttpLimits
from service.observability.metrics import ServerMetrics
from service.ports.http.contract_server import ContractServer
from tests.integration.http_client import raw_post
from tests.integration.http_serving import STREAM, TEXT, TRANSLATE, held, serving, unserved
from tests.integration.servers import fake_runner, running_fake, running_held
from tests.integration.test_going_away import until_inside


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
        await made.until_cancelled(method)
        runner.release()
        assert (await made.client.translate(["A dog."])).translations[0].text == "A dog."
        assert made.metric("dragoman_rows_used", model="fake") == 0


@pytest.mark.parametrize("when", ["with the body", "after the body"])
@pytest.mark.parametrize("late", [b"\r\n", b"GET /"])
async def test_a_client_that_goes_after_more_bytes_frees_its_rows(
    tokenizer: Tokenizer, late: bytes, when: str
) -> None:
    async with running_held(tokenizer, http_port=0) as (made, runner):
        body = raw_post(TRANSLATE, json.dumps({"contents": [TEXT]}).encode())
        _, writer = await asyncio.open_connection("127.0.0.1", made.server.http_port)
        writer.write(body + late if when == "with the body" else body)
        await until_inside(made, 1)
        if when == "after the body":
            writer.write(late)
        writer.close()
        await made.until_cancelled()
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
    server = ContractServer(*unserved(), "127.0.0.1", 0, limits)
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
    server = ContractServer(*unserved(), "127.0.0.1", 0)
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


async def test_a_client_that_goes_within_a_stream_leaves_no_warning(
    tokenizer: Tokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tokenizer) as made:
        reader, writer = await asyncio.open_connection("127.0.0.1", made.server.http_port)
        body = json.dumps({"content": f"{TEXT} " * 200}).encode()
        writer.write(raw_post(STREAM, body))
        await reader.readuntil(b"data: ")
        writer.transport.abort()
        await made.until_cancelled("StreamTranslate")
    assert {record.levelname for record in caplog.records} <= {"DEBUG", "INFO"}


async def test_a_client_that_goes_while_it_sends(tokenizer: Tokenizer) -> None:
    async with serving(tokenizer) as made:
        _, writer = await asyncio.open_connection("127.0.0.1", made.server.http_port)
        writer.write(raw_post(TRANSLATE, b'{"contents"', length=100))
        while not made.metric("dragoman_requests_in_flight", method="Translate"):
            await asyncio.sleep(0)
        writer.close()
        await made.until_cancelled()


async def test_slow_clients_are_disconnected() -> None:
    limits = HttpLimits(head_seconds=0.05, body_seconds=0.05, write_seconds=0.05, idle_seconds=0.05)
    server = ContractServer(*unserved(), "127.0.0.1", 0, limits)
    await server.start()
    whole = b"GET /style.css HTTP/1.1\r\nhost: localhost\r\n\r\n"
    for data, begins in (
        (b"", b""),
        (b"GET / HTTP/1.1\r\n", b""),
        (whole + b"GET", b"HTTP/1.1 200"),
        (whole, b"HTTP/1.1 200"),
        (raw_post(TRANSLATE, b"{", length=10), b"HTTP/1.1 408"),
    ):
        # Sent before the server, which is in this thread, begins to measure.
        connection = socket.create_connection(("127.0.0.1", server.port))
        connection.sendall(data)
        reader, writer = await asyncio.open_connection(sock=connection)
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
    server = ContractServer(*unserved(), "127.0.0.1", 0, max_connections=8)
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
