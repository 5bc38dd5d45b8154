"""Processes of models: opening a model in one, and ends that nobody wants."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bench.submission import submit, submit_many
from service.batching.events import Events
from service.engine.engine import Engine, EngineConfig
from service.errors import (
    StartupError,
    UnavailableError,
)
from service.worker.client import ProcessLoop
from service.worker.main import Channel
from service.worker.messages import framed
from service.worker.opening import OpenModel
from service.worker.process import ModelProcess
from tests import process_models
from tests.factories import tiny_bundle
from tests.integration.replacing import model_processes
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


async def test_a_process_without_work_that_ends_late_is_no_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(exit_status=-signal.SIGKILL) as (engine, process):
        os.kill(process.pid, signal.SIGSTOP)  # as one that gets no core
        await engine.stop(timeout_seconds=0.1)
        assert not engine.has_failed
        assert not is_alive(process.pid)
    assert not caplog.records


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


# --- opening --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("open_model", "message"),
    [
        (process_models.unusable, "export it again"),
        (process_models.broken, "could not be opened; the log says why"),
        (process_models.killed, "model a-model was killed by SIGKILL while it was opened.*memory"),
    ],
)
def test_a_model_that_can_t_be_opened_says_why(
    open_model: Callable[[], OpenModel], message: str
) -> None:
    with pytest.raises(StartupError, match=message) as caught:
        ModelProcess("a-model", open_model)
    assert "secret" not in str(caught.value)


def test_a_process_that_ends_before_it_is_told_what_to_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(StartupError, match="a-model ended with status 1 while it was opened"):
        ModelProcess("a-model", process_models.touchy)


async def test_while_it_is_opened_a_process_is_the_first_to_be_killed_for_memory() -> None:
    process = ModelProcess("a-model", process_models.with_its_oom_score)
    score = Path("/proc/self/oom_score_adj").read_text()
    assert process.cache_bytes == 1000
    assert Path(f"/proc/{process.pid}/oom_score_adj").read_text() == score
    await Engine(process).stop()


async def test_no_thread_that_serves_stays_as_nice_as_the_threads_that_opened_the_model(
    tmp_path: Path,
) -> None:
    """Without privileges, none could be made faster again."""
    bundle = tiny_bundle(tmp_path / "bundle")
    opening = functools.partial(
        process_models.opened_in_background, bundle.path, bundle.manifest_sha256
    )
    process = ModelProcess("a-model", opening, niceness=process_models.BACKGROUND_NICENESS)
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert process.cache_bytes == own
    engine = Engine(process)
    await engine.start()
    await engine.prepare_scoring()
    tasks = [int(task.name) for task in Path(f"/proc/{process.pid}/task").iterdir()]
    assert len(tasks) > process_models.NUM_THREADS
    assert {os.getpriority(os.PRIO_PROCESS, task) for task in tasks} == {own}
    await engine.stop()


async def test_an_engine_that_never_started_leaves_no_process() -> None:
    process = ModelProcess("a-model", process_models.touchy)
    await Engine(process).stop()
    assert process.exit_status == 0


def test_a_process_that_does_not_open_its_model_in_time_is_killed(pipe: Path) -> None:
    opening = functools.partial(process_models.slow_to_open, pipe)
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # sent if it gets so far
    try:
        with pytest.raises(StartupError, match="a-model had not opened it after 0 s: killed"):
            ModelProcess("a-model", opening, open_seconds=0.1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert model_processes(os.getpid()) == []


def test_a_server_that_dies_while_a_model_is_opened_takes_its_process_along(pipe: Path) -> None:
    script = (
        "import functools, pathlib, signal, sys\n"
        "from service.worker.process import ModelProcess\n"
        "from tests.process_models import slow_to_open\n"
        "signal.signal(signal.SIGUSR1, lambda *_: sys.exit(7))\n"
        "ModelProcess('a-model', functools.partial(slow_to_open, pathlib.Path(sys.argv[1])))\n"
    )
    # The model's process has the pipe of standard error too: it closes when both have gone.
    command = [sys.executable, "-c", script, str(pipe)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250)
    assert (ended.returncode, ended.stderr) == (7, "")
