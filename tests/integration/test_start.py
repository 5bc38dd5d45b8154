"""The behaviour of a server before it serves."""

import asyncio
import json
import os
import signal
import socket
import sys
import threading
import urllib.error
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dragoman.client import AsyncClient
from dragoman.v1 import translation_pb2 as pb
from dragoman.v1 import translation_pb2_grpc
from model.bundle.tokenizer import Tokenizer
from service.errors import StartupError
from service.models.registry import Registry
from service.observability.metrics import ServerMetrics
from service.server import Server
from tests.integration import signalled_start
from tests.integration.listening import ports_of
from tests.integration.servers import (
    any_ports,
    command_environment,
    dragoman,
    fake_runner,
    page,
    python_process,
    served,
)


def never() -> Registry:
    raise AssertionError("models are loaded although a port is taken")


@pytest.mark.parametrize("setting", ["port", "metrics_port"])
async def test_a_port_in_use_is_found_before_models_are_loaded(setting: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        flag = setting.replace("_", "-")
        with pytest.raises(StartupError, match=rf"127\.0\.0\.1:{port}.*--{flag}"):
            await Server(any_ports(**{setting: port}), never, ServerMetrics()).start()


async def test_while_models_load_health_says_so_and_calls_are_refused(
    tokenizer: Tokenizer,
) -> None:
    settings, metrics, loaded = any_ports(), ServerMetrics(), threading.Event()

    def load() -> Registry:
        loaded.wait()
        return Registry([served(fake_runner(tokenizer), tokenizer, settings, metrics)])

    server = Server(settings, load, metrics)
    starting = asyncio.ensure_future(server.start())
    while not server.metrics_port:
        await asyncio.sleep(0)
    url = f"http://127.0.0.1:{server.metrics_port}"
    with pytest.raises(urllib.error.HTTPError) as caught:
        await page(f"{url}/readyz")
    assert (caught.value.code, caught.value.read()) == (503, b"starting\n")
    assert await page(f"{url}/livez") == "ok\n"
    address = f"127.0.0.1:{server.port}"
    async with grpc.aio.insecure_channel(address) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)
        answer = await health.Check(health_pb2.HealthCheckRequest())
        assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING
        watch = health.Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        service: Any = translation_pb2_grpc.TranslationServiceStub(channel)
        for call in (
            service.Translate(pb.TranslateRequest(contents=["A dog."])),
            service.ListModels(pb.ListModelsRequest()),
        ):
            assert await call.code() is grpc.StatusCode.UNAVAILABLE
            assert "the server is starting" in await call.details()
        loaded.set()
        await starting
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
    assert await page(f"{url}/readyz") == "ok\n"
    async with AsyncClient(address, timeout=60) as client:
        assert (await client.translate(["A dog."])).translations[0].text == "A dog."
    await server.drain()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_models_that_can_t_be_loaded_free_the_metrics_port() -> None:
    def fail() -> Registry:
        raise StartupError("no such bundle")

    server = Server(any_ports(), fail, ServerMetrics())
    with pytest.raises(StartupError, match="no such bundle"):
        await server.start()
    assert server.metrics_port
    assert server.metrics_port not in ports_of(os.getpid())


EARLY = {"import:'typer'", "import:'service.observability.logs'"}  # before there is a log
MOMENTS = (
    *sorted(EARLY),
    "import:'grpc'",
    "socket.bind:127.0.0.1",
    "open:bundle.json",
    "subprocess.Popen:service.worker",
    "log:loaded",
)


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_signal_before_it_serves_ends_the_server_at_once(
    moment: str, bundle_path: Path, tmp_path: Path
) -> None:
    """Also one whose models take forever to be loaded, and nothing stays behind."""
    status, log = await started(f"SIGTERM:{moment}", model=bundle_path, temporary=tmp_path)
    assert status == 0
    assert log[-1:] == ([] if moment in EARLY else ["stopped before it served"])
    assert [*tmp_path.iterdir()] == []


async def test_ctrl_c_before_it_serves_ends_the_server_too(
    bundle_path: Path, tmp_path: Path
) -> None:
    """A signal to replace models that are not loaded yet is none to end."""
    moments = "SIGHUP:import:'typer'", "SIGINT:import:'cli.serve'"
    status, _ = await started(*moments, model=bundle_path, temporary=tmp_path)
    assert status == 0


async def test_a_signal_while_it_begins_to_serve_drains_it(
    bundle_path: Path, tmp_path: Path
) -> None:
    status, log = await started("SIGTERM:log:serving", model=bundle_path, temporary=tmp_path)
    assert (status, log[-3:]) == (0, ["serving", "draining", "stopped"])


async def started(*moments: str, model: Path, temporary: Path) -> tuple[int | None, list[str]]:
    """The exit status and the messages of a server that gets signals while it starts."""
    options = ("--port", "0", "--metrics-port", "0", "--model", str(model))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, signalled_start.__file__, *moments, "serve", *options),
        env={**command_environment(), "TMPDIR": str(temporary)},
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, log = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    return process.returncode, [json.loads(line)["message"] for line in log.splitlines()]


async def test_a_signal_while_models_are_pulled_ends_the_server(tmp_path: Path) -> None:
    with socket.socket() as mirror:  # which never answers
        mirror.bind(("127.0.0.1", 0))
        mirror.listen()
        mirror.setblocking(False)
        process = await dragoman(
            *("serve", "en-de", "--pull", "--models-dir", tmp_path / "models"),
            *("--models-url", f"http://127.0.0.1:{mirror.getsockname()[1]}"),
            stderr=asyncio.subprocess.PIPE,
        )
        connection, _ = await asyncio.get_running_loop().sock_accept(mirror)
        with connection:
            process.terminate()
            _, log = await process.communicate()
    assert process.returncode == 0
    assert b"stopped before it served" in log


async def test_a_start_that_fails_stops_engines_that_started(tokenizer: Tokenizer) -> None:
    settings, metrics = any_ports(), ServerMetrics()
    models = [
        served(fake_runner(tokenizer), tokenizer, settings, metrics, name=name)
        for name in ("first", "second")
    ]
    await models[1].engine.start()  # an engine starts once
    with pytest.raises(AssertionError, match="starts once"):
        await Server(settings, Registry(models), metrics).start()
    async with asyncio.timeout(60):
        for model in models:
            await model.engine.wait_until_ended()


FEW_FILES = (
    "import resource\n"
    "from cli.main import app\n"
    "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
    "app()\n"
)


async def test_connections_beyond_the_open_files_are_refused_and_told_of(bundle_path: Path) -> None:
    options = ("serve", "--model", bundle_path, "--port", "0", "--metrics-port", "0")
    async with python_process("-c", FEW_FILES, *options) as server:
        told = next(entry for entry in server.log if "ulimit -n" in entry["message"])
        assert (told["level"], told["open_files"], told["connections"]) == ("warning", 64, 32)
        host, port = server.address.split(":")
        opened = [await asyncio.open_connection(host, int(port)) for _ in range(64)]
        told = await server.read_log_until(
            "file descriptors run out: further connections are refused"
        )
        assert told["level"] == "error"
        assert await server.metric("dragoman_serving") == 1
        # The server greets those it has taken, and closes the others.
        greeted = [await reader.read(1) for reader, _ in opened]
        assert 0 < sum(map(bool, greeted)) <= 33
        for _, writer in opened:
            writer.close()
        async with AsyncClient(server.address, timeout=60) as client:
            assert (await client.translate(["A dog."])).translations[0].error is None


async def test_a_server_whose_terminal_is_closed_ends(bundle_path: Path) -> None:
    """While the terminal is open, SIGHUP replaces models, also of a server in a terminal."""
    terminal, its_end = os.openpty()
    process = await dragoman(
        *("serve", "--port", "0", "--metrics-port", "0", "--in-process", "--model", bundle_path),
        *("--log-format", "json"),
        preexec_fn=lambda: os.login_tty(its_end),
    )
    os.close(its_end)
    with os.fdopen(terminal, "rb") as screen:

        def read_until(message: str) -> None:
            while json.loads(screen.readline())["message"] != message:
                pass

        await asyncio.to_thread(read_until, "serving")
        process.send_signal(signal.SIGHUP)
        await asyncio.to_thread(read_until, "not reloaded: its bundle is unchanged")
    assert await process.wait() == 0


async def test_a_server_under_nohup_outlives_its_terminal(bundle_path: Path) -> None:
    terminal, its_end = os.openpty()
    log_reader, log_writer = os.pipe()

    def nohup() -> None:
        os.login_tty(its_end)
        os.dup2(log_writer, 2)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    process = await dragoman(
        *("serve", "--port", "0", "--metrics-port", "0", "--in-process", "--model", bundle_path),
        *("--log-format", "json"),
        preexec_fn=nohup,
    )
    os.close(its_end)
    os.close(log_writer)
    with os.fdopen(log_reader, "rb") as log:

        def read_until(*messages: str) -> str:
            for line in log:
                if (message := json.loads(line)["message"]) in messages:
                    return str(message)
            return ""

        await asyncio.to_thread(read_until, "serving")
        os.close(terminal)
        unchanged = "not reloaded: its bundle is unchanged"
        seen = await asyncio.to_thread(read_until, unchanged, "draining")
        process.terminate()
        await asyncio.to_thread(log.read)
    assert await process.wait() == 0
    assert seen == unchanged
