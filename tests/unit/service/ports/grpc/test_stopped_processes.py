"""Front processes that are stopped: told of, killed and replaced."""

from __future__ import annotations

import asyncio
import math
import os
import signal
from typing import Any

import grpc
import pytest

from service.ports.grpc.front_processes import group
from tests.unit.service.ports.grpc.test_front_processes import echoing


@pytest.fixture
def short_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes be killed soon when they give no sign of life."""
    monkeypatch.setattr(group, "_SILENT_SECONDS", 0.4)
    monkeypatch.setattr(group, "_HANG_SECONDS", 0.4)


@pytest.mark.usefixtures("short_silence")
async def test_a_process_that_is_stopped_is_told_of_and_replaced(
    caplog: pytest.LogCaptureFixture,
) -> None:
    silent: list[int] = []
    server = echoing(silent.append)
    port = server.bind("127.0.0.1", 0)
    await server.start()
    try:
        [stopped] = server.pids
        os.kill(stopped, signal.SIGSTOP)
        while stopped in server.pids:
            await asyncio.sleep(0.01)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call: Any = channel.unary_unary("/Service/Echo")
            assert await call(b"text", wait_for_ready=True) == b"text"
        while silent[-1]:
            await asyncio.sleep(0.01)
        assert 1 in silent
    finally:
        await server.stop(None)
    told = [vars(record) for record in caplog.records if record.levelname == "ERROR"]
    assert [each["msg"] for each in told if each.get("pid") == stopped][-3:] == [
        "a front process does not answer",
        "a front process hangs: it is killed",
        "a front process ended; its calls are cancelled",
    ]


@pytest.mark.usefixtures("short_silence")
async def test_a_process_that_is_stopped_does_not_hold_the_end() -> None:
    server = echoing()
    server.bind("127.0.0.1", 0)
    await server.start()
    os.kill(server.pids[0], signal.SIGSTOP)
    await server.stop(10_000)
    assert not server.pids


async def test_a_process_that_is_stopped_briefly_keeps_its_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group, "_SILENT_SECONDS", 0.4)
    monkeypatch.setattr(group, "_HANG_SECONDS", math.inf)
    silent: list[int] = []
    server = echoing(silent.append)
    port = server.bind("127.0.0.1", 0)
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call: Any = channel.unary_unary("/Service/Echo")
            assert await call(b"text", wait_for_ready=True) == b"text"
            [stopped] = server.pids
            os.kill(stopped, signal.SIGSTOP)
            answer = asyncio.ensure_future(call(b"text"))
            while silent[-1:] != [1]:
                await asyncio.sleep(0.01)
            os.kill(stopped, signal.SIGCONT)
            assert await answer == b"text"
            while silent[-1]:
                await asyncio.sleep(0.01)
            assert server.pids == [stopped]
    finally:
        await server.stop(None)
