"""Processes of models that are killed, hang or lose their connection."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bench.submission import submit, submit_many
from service.batching.events import Events
from service.engine.engine import EngineConfig
from service.errors import (
    UnavailableError,
)
from service.worker.client import ProcessLoop
from service.worker.main import Channel
from service.worker.messages import (
    framed,
)
from tests import process_models
from tests.process_models import HANGING, KILLING
from tests.searches import submitted
from tests.unit.service.worker.serving import is_alive, predicted, request, serving


@asynccontextmanager
async def until_it_hangs() -> AsyncIterator[None]:
    """Waits at its end until a step hangs."""
    hangs, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, hangs.set)
    try:
        yield
        await hangs.wait()
    finally:
        loop.remove_signal_handler(signal.SIGUSR1)


async def test_a_process_that_is_killed_answers_everybody_and_ends_the_engine() -> None:
    async with serving(exit_status=-signal.SIGKILL) as (engine, process):
        async with until_it_hangs():
            waiting = submit_many(engine, [request(HANGING), *(request(i) for i in range(10, 30))])
        os.kill(process.pid, signal.SIGKILL)
        for generation in waiting:
            result = await generation.result()
            assert isinstance(result.error, UnavailableError)
        assert await engine.wait_until_ended()
        assert engine.has_failed
        with pytest.raises(UnavailableError):
            submit(engine, request(10))


async def test_a_step_that_kills_its_process_is_told_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(exit_status=-signal.SIGKILL) as (engine, _):
        result = await submit(engine, request(KILLING)).result()
        assert isinstance(result.error, UnavailableError)
        assert engine.has_failed
    (record,) = [each for each in caplog.records if each.msg == "a model's process ended"]
    assert vars(record)["how"] == "was killed by SIGKILL"
    assert vars(record)["model"] == "a-model"
    assert "too little memory" in vars(record)["hint"]


async def test_a_signal_without_a_name_ends_the_engine_as_well() -> None:
    number = signal.SIGRTMIN + 1
    async with serving(exit_status=-number) as (engine, process):
        os.kill(process.pid, number)
        assert await engine.wait_until_ended()


async def test_a_process_that_talks_nonsense_is_killed() -> None:
    async with serving(process_models.talking_nonsense, exit_status=-signal.SIGKILL) as (engine, _):
        result = await submit(engine, request(10)).result()
        assert isinstance(result.error, UnavailableError)
        assert await engine.wait_until_ended()


class Failing(socket.socket):
    """A connection on which one kind of call fails."""

    fails = ""

    @classmethod
    def of(cls, connection: socket.socket, fails: str) -> Failing:
        made = cls(fileno=connection.detach())
        made.fails = fails
        return made

    def recv(self, *arguments: int) -> bytes:
        if self.fails == "recv":
            raise MemoryError
        return super().recv(*arguments)

    def send(self, data: object, *arguments: int) -> int:
        if self.fails == "send":
            raise MemoryError
        return super().send(data, *arguments)  # type: ignore[arg-type]


class Ending:
    """Hears of the end."""

    def __init__(self) -> None:
        self.ends: list[bool] = []

    def on_events(self, events: Events) -> None:
        raise AssertionError("there are no events")

    def on_end(self, failed: bool) -> None:
        self.ends.append(failed)


@pytest.mark.parametrize("fails", ["recv", "send"])
async def test_a_connection_that_fails_has_ended_and_is_told_of_once(
    fails: str, caplog: pytest.LogCaptureFixture
) -> None:
    ours, theirs = socket.socketpair()
    listener = Ending()
    process = subprocess.Popen(["sleep", "600"])
    steps = ProcessLoop("a-model", process, Failing.of(ours, fails), EngineConfig(), listener)
    with theirs:
        theirs.send(b"something")
        steps.start()
        steps.add([submitted(request(10), 40)])
        assert await asyncio.to_thread(process.wait) == -signal.SIGKILL
        await asyncio.sleep(0)
        steps.add([submitted(request(10), 40)])
        await asyncio.sleep(0)
    assert listener.ends == [True]
    (told,) = caplog.records
    assert (told.levelname, vars(told)["model"]) == ("ERROR", "a-model")
    assert "connection to a model's process failed" in told.message


@pytest.mark.parametrize("fails", ["recv", "send"])
def test_the_other_end_takes_a_connection_that_fails_as_ended(
    fails: str, caplog: pytest.LogCaptureFixture
) -> None:
    ours, theirs = socket.socketpair()
    with ours:
        channel = Channel(Failing.of(theirs, fails))
        ours.sendall(framed("hello"))
        for _ in range(3):
            channel.send("hello")
        assert fails == "send" or list(channel.messages()) == []
        received = b"".join(iter(lambda: ours.recv(65536), b""))  # until its end
        assert bool(received) == (fails == "recv")
    assert [record.message for record in caplog.records] == ["the connection to the server failed"]


async def test_a_step_that_hangs_is_killed_with_its_process() -> None:
    async with serving(exit_status=-signal.SIGKILL) as (engine, process):
        async with until_it_hangs():
            hanging = submit(engine, request(HANGING))
        await engine.stop(timeout_seconds=0.2)
        assert engine.has_failed
        assert isinstance((await hanging.result()).error, UnavailableError)
        assert not is_alive(process.pid)


async def test_signals_that_mean_the_server_do_not_end_the_process() -> None:
    async with serving() as (engine, process):
        asked = request(10, 11)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(process.pid, number)
            assert (await submit(engine, asked).result()).token_ids == predicted(asked)[0]


async def test_a_process_that_takes_nothing_does_not_stop_the_event_loop() -> None:
    sources = [tuple(range(10, 12 + i)) * 5000 for i in range(20)]  # more than a socket holds
    async with serving(config=EngineConfig(encode_token_budget=10**6)) as (engine, process):
        os.kill(process.pid, signal.SIGSTOP)
        waiting = submit_many(engine, [request(*source) for source in sources])
        await asyncio.sleep(0)  # sends, and must not wait
        os.kill(process.pid, signal.SIGCONT)
        for generation in waiting:
            result = await generation.result()
            assert result.error is None
            assert (result.token_ids, result.finish_reason) == predicted(generation.request)
