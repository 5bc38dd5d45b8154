"""Front processes that end are replaced, also when that fails at first."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any

import grpc
import pytest

from service.errors import StartupError
from service.ports.certificates import TlsMaterial
from service.ports.grpc.accepting_server import AcceptingServer
from service.ports.grpc.front_processes import group, process
from service.ports.grpc.front_processes.connection import FrameConnection
from service.ports.grpc.front_processes.frames import Frame, FrameKind, FrameReader
from service.ports.grpc.front_processes.group import FrontProcesses, FrontSettings

SETTINGS = FrontSettings(1, [("grpc.so_reuseport", 1)], 8, [], 1, 30.0, "info", "json")


def echoing() -> FrontProcesses:
    """A server in a front process, with a method that answers with its request."""

    async def answer(data: bytes, context: object) -> bytes:
        return data

    server = FrontProcesses(SETTINGS, lambda service, method, handler: handler)
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
        with pytest.raises(grpc.aio.AioRpcError, match="wait to be read") as refused:
            await call(bytes(90_000))
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
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
