"""Front processes: those that end are replaced, and their calls end once whatever they say."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import math
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Any

import grpc
import pytest

from service.errors import StartupError
from service.ports.certificates import TlsMaterial
from service.ports.grpc.accepting_server import AcceptingServer
from service.ports.grpc.front_processes import group, process
from service.ports.grpc.front_processes.calls import FrontCalls
from service.ports.grpc.front_processes.connection import FrameConnection
from service.ports.grpc.front_processes.frames import (
    MESSAGE_BYTES,
    WINDOW_BYTES,
    Frame,
    FrameKind,
    FrameReader,
)
from service.ports.grpc.front_processes.group import FrontProcesses, FrontSettings
from tests.client_errors import status_error_of

SETTINGS = FrontSettings(1, [("grpc.so_reuseport", 1)], 8, [], 1, 30.0, "info", "json")


def echoing(on_silence: Callable[[int], None] = lambda num_silent: None) -> FrontProcesses:
    """A server in a front process, with a method that answers with its request."""

    async def answer(data: bytes, context: object) -> bytes:
        return data

    server = FrontProcesses(
        SETTINGS, lambda service, method, handler: handler, on_silence=on_silence
    )
    handler: Any = grpc.unary_unary_rpc_method_handler(answer, response_serializer=bytes)
    server.add_registered_method_handlers("Service", {"Echo": handler})
    return server


def no_thread(*arguments: object) -> None:
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize(("name", "value"), [("_MODULE", "no.such"), ("start_child", no_thread)])
async def test_a_process_that_can_t_be_replaced_is_tried_again(
    name: str, value: object, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(group, "_RESTART_SECONDS", 0.05)
    server = echoing()
    port = server.bind("127.0.0.1", 0)
    await server.start()
    try:
        with monkeypatch.context() as broken:
            broken.setattr(group, name, value)
            os.kill(server.pids[0], signal.SIGKILL)
            while "no front process takes its place yet" not in caplog.text:
                await asyncio.sleep(0.01)
            assert not server.pids
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call: Any = channel.unary_unary("/Service/Echo")
            assert await call(b"text", wait_for_ready=True) == b"text"
    finally:
        await server.stop(None)
    assert not server.pids


class FrontWithoutProcess:
    """A front process that keeps the frames it was sent."""

    def __init__(self, frames: Sequence[Frame]) -> None:
        self.frames = list(frames)
        self.ended = asyncio.Event()
        self.started_at = 0.0
        self.pid = 1
        self.is_silent = False

    def check(self, now: float) -> None:
        pass

    def send(self, frame: Frame) -> None:
        self.frames.append(frame)

    async def how_it_ended(self) -> str:
        return "it was told to"

    async def kill(self) -> None:
        self.ended.set()


class ChangingTls:
    """The server's TLS, with a certificate that can be changed."""

    def __init__(self) -> None:
        self.material = TlsMaterial(b"old", b"key", None, 0.0)


async def test_a_process_that_starts_while_the_certificate_changes_gets_the_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group, "_CERTIFICATE_SECONDS", 0.01)
    started: list[FrontWithoutProcess] = []
    may_start = asyncio.Event()
    may_start.set()

    class Starting(FrontWithoutProcess):
        @classmethod
        async def start(cls, settings: Any, handlers: Any, opening: Sequence[Frame]) -> Any:
            front = cls(opening)
            started.append(front)
            await may_start.wait()
            return front

    monkeypatch.setattr(group, "FrontProcess", Starting)
    tls: Any = ChangingTls()
    server = FrontProcesses(dataclasses.replace(SETTINGS, count=2), lambda s, m, h: h, tls)
    await server.start()
    may_start.clear()
    dead, other = started
    dead.ended.set()
    while len(started) < 3:
        await asyncio.sleep(0)
    tls.material = TlsMaterial(b"new", b"key", None, 0.0)
    while other.frames[-1].fields[0] != b"new":
        await asyncio.sleep(0.001)
    may_start.set()
    while started[2].frames[-1].fields[0] != b"new":
        await asyncio.sleep(0.001)
    for front in started:
        front.ended.set()
    await server.stop(None)


async def read_frames(connected: socket.socket, count: int) -> list[Frame]:
    reader, frames = FrameReader(), list[Frame]()
    while len(frames) < count:
        frames += reader.feed(await asyncio.get_running_loop().sock_recv(connected, 2**20))
    return frames


async def test_a_small_frame_waits_for_one_large_frame_at_most() -> None:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    connection = await FrameConnection.over(ours, lambda frame: None, lambda: None)
    large = [Frame(FrameKind.CALL, number, fields=[bytes(2**22)]) for number in range(3)]
    sending = [asyncio.create_task(connection.send_large(frame)) for frame in large]
    await sending[0]
    connection.send(Frame(FrameKind.CANCEL, 7))
    frames = await read_frames(theirs, 4)
    assert [frame.call for frame in frames] == [0, 7, 1, 2]
    await asyncio.gather(*sending)
    connection.close()
    theirs.close()


async def test_large_requests_that_wait_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_MOST_WAITING_BYTES", 200_000)
    taken: list[Frame] = []
    may_go = asyncio.Event()

    class Connection:
        def send(self, frame: Frame) -> None:
            taken.append(frame)

        async def send_large(self, frame: Frame) -> None:
            taken.append(frame)
            await may_go.wait()

    connection: Any = Connection()
    forwarder = process.Forwarder(lambda: connection)
    server = AcceptingServer(options=[], max_calls=8)
    server.add_registered_method_handlers("Service", {"Echo": forwarder.handler(0, streams=False)})
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call: Any = channel.unary_unary("/Service/Echo")
        waiting = [asyncio.ensure_future(call(bytes(90_000))) for _ in range(2)]
        while len(taken) < 2:
            await asyncio.sleep(0.001)
        error = await status_error_of(call(bytes(90_000)), "wait to be read")
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        small = asyncio.ensure_future(call(b"small"))
        while len(taken) < 3:
            await asyncio.sleep(0.001)
        may_go.set()
        for frame in taken:
            forwarder.take(Frame(FrameKind.ANSWER, frame.call, fields=[b"done"]))
        assert await asyncio.gather(*waiting, small) == [b"done"] * 3
    await server.stop(None)


async def test_processes_that_can_t_start_stop_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    server = echoing()
    server.bind("127.0.0.1", 0)
    monkeypatch.setattr(group, "_MODULE", "no.such.module")
    with pytest.raises(StartupError, match="ended while it started"):
        await server.start()
    server = echoing()
    server.bind("127.0.0.1", 0)
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(StartupError, match="can't be started"):
        await server.start()


# --- calls ----------------------------------------------------------------------------------------


class Calls:
    """The calls of a front process that the test plays, of one method that answers when told.

    Attributes:
        sent: frames to the front process.
        released: number of calls that have been released.
    """

    def __init__(self) -> None:
        self.sent: list[Frame] = []
        self.released = 0
        self.may_answer = asyncio.Event()
        handler: Any = grpc.unary_unary_rpc_method_handler(self._answer, response_serializer=bytes)
        self.calls = FrontCalls([handler])
        connection: Any = self
        self.calls.connection = connection

    def send(self, frame: Frame) -> None:
        """Take a frame in place of a connection."""
        self.sent.append(frame)

    async def _answer(self, data: bytes, context: Any) -> bytes:
        context.add_done_callback(self._release)
        await self.may_answer.wait()
        return data

    def _release(self, context: object) -> None:
        self.released += 1

    def take(self, kind: FrameKind, *fields: bytes) -> None:
        """Take a frame of call 1 from the front process."""
        self.calls.take(Frame(kind, 1, 0, math.inf, fields))


async def iterations(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("last", [FrameKind.SENT, FrameKind.CANCEL])
@pytest.mark.parametrize("when", range(8))
async def test_an_answer_is_released_when_it_has_left_or_never_will(
    last: FrameKind, when: int
) -> None:
    """However many iterations of the loop after the answer the front process says so."""
    front = Calls()
    front.take(FrameKind.CALL, b"peer", b"text")
    await iterations(3)
    front.may_answer.set()
    while not front.sent:
        await asyncio.sleep(0)
    assert front.sent == [Frame(FrameKind.ANSWER, 1, 1, math.inf, [b"text"])]
    await iterations(when)
    assert front.released == 0
    front.take(last)
    await iterations(8)
    assert front.released == 1
    front.take(FrameKind.CANCEL)  # too late, and without effect
    await iterations(3)
    assert (front.released, len(front.sent)) == (1, 1)


@pytest.mark.parametrize("when", range(6))
@pytest.mark.parametrize("end", ["cancel", "death"])
async def test_a_call_that_is_cancelled_is_released(end: str, when: int) -> None:
    front = Calls()
    front.take(FrameKind.CALL, b"peer", b"text")
    await iterations(when)
    if end == "cancel":
        front.take(FrameKind.CANCEL)
    else:
        front.calls.cancel_all()
    await iterations(8)
    assert front.released == (when > 0)  # before that, its handler has not begun
    assert not front.calls._running
    assert not front.calls._leaving


async def test_answers_on_their_way_are_released_when_the_process_dies() -> None:
    front = Calls()
    front.may_answer.set()
    front.take(FrameKind.CALL, b"peer", b"text")
    for _ in itertools.takewhile(lambda _: not front.calls._leaving, itertools.count()):
        await asyncio.sleep(0)
    front.calls.cancel_all()
    assert front.released == 1


async def test_an_error_of_a_handler_is_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(data: bytes, context: Any) -> bytes:
        raise ValueError("secret")

    front = Calls()
    handler: Any = grpc.unary_unary_rpc_method_handler(fail, response_serializer=bytes)
    front.calls._handlers = [handler]
    front.take(FrameKind.CALL, b"peer", b"text")
    await iterations(4)
    internal = grpc.StatusCode.INTERNAL.value[0]
    assert front.sent == [Frame(FrameKind.STATUS, 1, internal, math.inf, [b"internal error"])]
    assert "secret" in caplog.text


async def test_messages_wait_while_too_much_has_not_been_taken() -> None:
    """As many are sent ahead as the window has room for, and one more."""

    async def stream(data: bytes, context: Any) -> None:
        for number in range(100):
            await context.write(bytes([number]) * 1000)

    front = Calls()
    handler: Any = grpc.unary_stream_rpc_method_handler(stream, response_serializer=bytes)
    front.calls._handlers = [handler]
    front.take(FrameKind.CALL, b"peer", b"text")
    await iterations(4)
    size = 1000 + MESSAGE_BYTES
    ahead = WINDOW_BYTES // size + 1
    assert len(front.sent) == ahead
    front.calls.take(Frame(FrameKind.WRITTEN, 1, size))
    await iterations(4)
    assert len(front.sent) == ahead + 1
    while front.calls._running:
        front.calls.take(Frame(FrameKind.WRITTEN, 1, 10 * size))
        await iterations(4)
    *messages, status = front.sent
    assert [frame.fields for frame in messages] == [[bytes([n]) * 1000] for n in range(100)]
    assert (status.kind, status.number) == (FrameKind.STATUS, 0)
