"""Front processes that end are replaced, also when that fails at first."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

import grpc
import pytest

from service.errors import StartupError
from service.ports.grpc.front_processes import group
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


async def test_a_process_that_can_t_be_replaced_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(group, "_RESTART_SECONDS", 0.05)
    server = echoing()
    port = server.bind("127.0.0.1", 0)
    await server.start()
    try:
        with monkeypatch.context() as broken:
            broken.setattr(group, "_MODULE", "no.such.module")
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
