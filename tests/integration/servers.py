"""Servers for the tests: real ports, with a scripted model or a real tiny one."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import math
import os
import signal
import sys
import urllib.error
import urllib.request
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dragoman.client import AsyncClient, StreamEnd
from model.bundle.directions import Directions
from model.bundle.processor import num_usable_cores
from model.bundle.tokenizer import Tokenizer
from service.cache.setup import response_cache
from service.documents.worker_pool import READERS_MODULE
from service.domain.plan import ModelRunner, RunnerLimits
from service.engine.engine import Engine, EngineConfig
from service.engine.metrics import ModelMetrics
from service.models.loading import load_models
from service.models.registry import Registry
from service.models.served_model import ServedModel
from service.observability import loop_monitor
from service.observability.metrics import ServerMetrics
from service.server import Server
from service.settings import Settings
from service.translation.options import TranslatorLimits
from service.translation.translator import Translator
from tests.fake_runner import FakeRunner, echo

ROOT = Path(__file__).resolve().parents[2]

num_fronts = 0
"""Front processes of servers without another number; `test_front_processes.py` changes it."""

# Options of `dragoman serve` for tests of neither limit, so that a slow machine refuses no call.
NO_HURRY = ("--drain-seconds", "250", "--max-queue-seconds", "250")

# For the last lines of the log of a server that was killed.
_LAST_LINES_SECONDS = 5.0

# On one core, models stay in the server's own process.
needs_two_cores = pytest.mark.skipif(num_usable_cores() < 2, reason="needs two cores")


def any_ports(**values: Any) -> Settings:
    """Settings for a test: free ports, one thread, and `values`; otherwise defaults."""
    ports = {"port": 0, "metrics_port": 0, "front_processes": num_fronts}
    return Settings(**{**ports, "threads": 1, **values})


def fake_runner(tokenizer: Tokenizer, **limits: int) -> FakeRunner:
    """A scripted model over the vocabulary of `tokenizer`."""
    sizes = {"max_rows": 4, "max_source_positions": 64, "max_target_positions": 64, **limits}
    return FakeRunner(RunnerLimits(top_k=4, vocab_size=tokenizer.vocab_size, **sizes), echo)


def served(
    runner: ModelRunner,
    tokenizer: Tokenizer,
    settings: Settings,
    metrics: ServerMetrics,
    *,
    name: str = "fake",
    source: str = "en",
    target: str = "de",
    refuses_overload: bool = False,
) -> ServedModel:
    """A model that runs on `runner`; texts may wait forever unless it `refuses_overload`."""
    observer = ModelMetrics(metrics, name)
    config = EngineConfig(
        max_waiting=settings.max_waiting,
        max_queue_seconds=None if refuses_overload else math.inf,
    )
    engine = Engine.of_runner(runner, config, observer)
    cache = response_cache(settings, metrics)
    return ServedModel(
        name=name,
        version="1",
        directions=Directions.one(source, target),
        precision="fp32",
        device="cpu",
        engine=engine,
        translator=Translator(
            engine,
            tokenizer,
            source_language=source,
            limits=TranslatorLimits(
                settings.max_texts, settings.max_characters, settings.max_request_characters
            ),
            cache=None if cache is None else cache.of_model(name, name, tokenizer.vocab_size),
        ),
    )


def echoing(
    tokenizer: Tokenizer, settings: Settings, metrics: ServerMetrics, *pairs: str
) -> Registry:
    """Models that echo their texts, one for each pair of languages, such as "en-de"."""
    models = []
    for pair in pairs:
        source, target = pair.split("-")
        runner = fake_runner(tokenizer, max_source_positions=256, max_target_positions=256)
        models.append(
            served(runner, tokenizer, settings, metrics, name=pair, source=source, target=target)
        )
    return Registry(models)


@dataclass(frozen=True)
class Running:
    """A server that runs in this process, and a client of it."""

    server: Server
    client: AsyncClient
    metrics: ServerMetrics
    registry: Registry

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return f"127.0.0.1:{self.server.port}"

    def metric(self, name: str, **labels: str) -> float:
        """The value of a sample; 0 if there is none yet."""
        return self.metrics.registry.get_sample_value(name, labels) or 0.0

    async def until_cancelled(self, method: str = "Translate") -> None:
        """Wait until a call has been counted as cancelled."""
        while not self.metric("dragoman_requests_total", method=method, code="CANCELLED"):
            await asyncio.sleep(0)

    async def scrape(self) -> str:
        """The text of /metrics over HTTP."""
        return await page(f"http://127.0.0.1:{self.server.metrics_port}/metrics")


async def page(url: str) -> str:
    """The body of a GET of `url`."""

    def get() -> str:
        with urllib.request.urlopen(url) as response:
            text: str = response.read().decode()
            return text

    return await asyncio.to_thread(get)


async def streamed(client: AsyncClient, text: str, **options: Any) -> tuple[str, StreamEnd]:
    """The joined pieces of a stream, and its end."""
    *pieces, end = [event async for event in client.stream(text, **options)]
    assert isinstance(end, StreamEnd)
    return "".join(map(str, pieces)), end


def total(metrics: str, name: str, **labels: str) -> float:
    """The sum of the samples with these labels on a page of metrics; 0 if there are none."""
    return sum(
        sample.value
        for family in text_string_to_metric_families(metrics)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


@contextlib.asynccontextmanager
async def running(
    settings: Settings,
    metrics: ServerMetrics,
    registry: Registry,
    readers: str = READERS_MODULE,
) -> AsyncIterator[Running]:
    """Run a server of `registry`'s models in this process, which must not block the event loop."""
    async with (
        Server(settings, registry, metrics, readers) as server,
        AsyncClient(f"127.0.0.1:{server.port}", timeout=250) as client,
    ):
        with unblocked():
            yield Running(server, client, metrics, registry)
        server.cut_drain_short()  # no call is left to wait for


def blocked(seconds: float, stack: str) -> str:
    """The message of a failure, with which pytest runs the test a second time."""
    return f"{loop_monitor.MESSAGE} for {seconds:.3f} s:\n{stack}"


@contextlib.contextmanager
def unblocked() -> Iterator[None]:
    """Check that the service does not block the event loop, which the test's own code may do."""
    blocks: list[loop_monitor.LoopBlock] = []
    was_enabled = gc.isenabled()
    gc.disable()  # here it would look at the objects of clients and of other tests, for 0.2 s
    try:
        with loop_monitor.LoopMonitor(blocks.append):
            yield
    finally:
        if was_enabled:
            gc.enable()
    for block in blocks:
        seconds = block.seconds_in(ROOT / "service")
        assert seconds < loop_monitor.LIMIT_SECONDS, blocked(seconds, block.stack)


@contextlib.asynccontextmanager
async def running_fake(
    runner: FakeRunner, tokenizer: Tokenizer, **settings: Any
) -> AsyncIterator[Running]:
    """Run a server of one scripted model."""
    metrics, chosen = ServerMetrics(), any_ports(**{"drain_seconds": 5.0, **settings})
    registry = Registry([served(runner, tokenizer, chosen, metrics)])
    async with running(chosen, metrics, registry) as made:
        try:
            yield made
        finally:
            runner.release()  # a step that is held holds the drain


@contextlib.asynccontextmanager
async def running_held(
    tokenizer: Tokenizer, **settings: Any
) -> AsyncIterator[tuple[Running, FakeRunner]]:
    """Run a server of one scripted model that makes no step until its runner is released."""
    runner = fake_runner(tokenizer)
    async with running_fake(runner, tokenizer, **settings) as made:
        runner.hold()
        yield made, runner


@contextlib.asynccontextmanager
async def running_echoes(
    tokenizer: Tokenizer, *pairs: str, **settings: Any
) -> AsyncIterator[Running]:
    """Run a server of models that echo their texts, one for each pair of languages."""
    metrics, chosen = ServerMetrics(), any_ports(**settings)
    async with running(chosen, metrics, echoing(tokenizer, chosen, metrics, *pairs)) as made:
        yield made


@contextlib.asynccontextmanager
async def running_bundle(*bundles: Path, **settings: Any) -> AsyncIterator[Running]:
    """Run a server of the bundles in some directories."""
    metrics, chosen = ServerMetrics(), any_ports(model=bundles, **settings)
    # A server loads before it listens. In the loop it would block another server of the test.
    registry = await asyncio.to_thread(load_models, chosen, metrics)
    async with running(chosen, metrics, registry) as made:
        yield made


@dataclass
class ServerProcess:
    """`dragoman serve` in a process of its own."""

    process: asyncio.subprocess.Process
    log: list[dict[str, Any]]

    @property
    def address(self) -> str:
        """HOST:PORT, from its log."""
        return str(self._serving["address"])

    @property
    def _serving(self) -> dict[str, Any]:
        (line,) = [entry for entry in self.log if entry["message"] == "serving"]
        return line

    async def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples that /metrics gives with these labels; 0 if there are none."""
        return total(await page(self._serving["metrics"]), name, **labels)

    async def probe(self, path: str) -> int:
        """The status of a GET of `/livez` or `/readyz`."""
        url = str(self._serving["metrics"]).replace("/metrics", path)

        def get() -> int:
            try:
                with urllib.request.urlopen(url) as response:
                    return int(response.status)
            except urllib.error.HTTPError as error:
                return error.code

        return await asyncio.to_thread(get)

    async def read_log_until(self, message: str) -> dict[str, Any]:
        """Read the log up to an entry with `message`; returns that entry."""
        assert self.process.stderr is not None
        while line := await self.process.stderr.readline():
            entry = json.loads(line)
            self.log.append(entry)
            if entry["message"] == message:
                return dict(entry)
        raise AssertionError(f"the log ended without {message!r}: {self.log}")

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.process.send_signal(signal.SIGTERM)

    async def end(self) -> int:
        """Wait for the end; returns the exit status. The rest of the log is in `log`."""
        await self.read_rest()
        return await self.process.wait()

    async def read_rest(self) -> None:
        """Read the rest of its log into `log`."""
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            if line.endswith(b"\n"):  # a killed server may end within a line
                self.log.append(json.loads(line))


def command_environment() -> dict[str, str]:
    """The environment of a `dragoman` command run from the checkout."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("DRAGOMAN_")}
    return {**kept, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'proto'}"}


async def dragoman(*arguments: str | Path, **streams: Any) -> asyncio.subprocess.Process:
    """Start a `dragoman` command."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli.main", *map(str, arguments)),
        **{"env": command_environment(), **streams},
    )


class DoneCommand(NamedTuple):
    """The exit status of a command, its output and its errors."""

    status: int
    output: str
    errors: str


async def done(*arguments: str | Path, given: bytes = b"", **variables: str) -> DoneCommand:
    """Run a `dragoman` command to its end, with `given` on its standard input."""
    process = await dragoman(
        *arguments, env={**command_environment(), **variables}, stdin=PIPE, stdout=PIPE, stderr=PIPE
    )
    output, errors = await process.communicate(given)
    assert process.returncode is not None
    assert b"Traceback" not in errors, errors.decode()
    return DoneCommand(process.returncode, output.decode(), errors.decode())


def server_process(
    *arguments: str | Path, variables: Mapping[str, str] | None = None
) -> contextlib.AbstractAsyncContextManager[ServerProcess]:
    """Run `dragoman serve` on free ports until it serves; kill it at the end if it still runs."""
    options = ("--port", "0", "--metrics-port", "0", "--threads", "1")
    fronts = ("--front-processes", str(num_fronts))
    arguments = "-m", "cli.main", "serve", *options, *fronts, *arguments
    return python_process(*arguments, variables=variables)


@contextlib.asynccontextmanager
async def python_process(
    *arguments: str | Path, variables: Mapping[str, str] | None = None
) -> AsyncIterator[ServerProcess]:
    """Run a server with these `arguments` of Python, like `server_process`.

    With further environment `variables`. It must not block its event loop.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *map(str, arguments),
        env={**command_environment(), loop_monitor.VARIABLE: "1", **(variables or {})},
        stderr=asyncio.subprocess.PIPE,
    )
    made = ServerProcess(process, [])
    try:
        await made.read_log_until("serving")
        yield made
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    with contextlib.suppress(TimeoutError):  # its model's process may have hung
        async with asyncio.timeout(_LAST_LINES_SECONDS):
            await made.read_rest()
    blocks = [entry for entry in made.log if entry["message"] == loop_monitor.MESSAGE]
    assert not blocks, blocked(blocks[0]["seconds"], blocks[0]["stack"])
