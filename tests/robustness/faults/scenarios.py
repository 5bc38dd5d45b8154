"""Faults of processes and clients: each function causes one under load, and waits for its end."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import subprocess
import sys
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc

from bench.server_process import environment
from dragoman.v1 import translation_pb2 as pb
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from tests.robustness.faults.account import RETRIED_AT_THE_END
from tests.robustness.faults.gauges import front_process, is_running, model_process
from tests.robustness.faults.load import CallRefused, account_for, stream, unary
from tests.robustness.faults.round import (
    FaultRound,
    FaultSetting,
    Preparation,
    Scenario,
    Strike,
    nothing,
    until_ready,
)
from tests.robustness.faults.supervised import eventually

_STALL = ("--stall-seconds", "1", "--hang-seconds", "1")
_BURST = 300
_CONNECTIONS = 400
# The codes of calls in flight when a model's process ends.
_UNAVAILABLE = frozenset({"UNAVAILABLE", "503"})


@contextmanager
def _watched(folder: Path) -> Any:
    yield FaultSetting(_STALL)


@contextmanager
def _patient(folder: Path) -> Any:
    yield FaultSetting(("--stall-seconds", "0.5", "--hang-seconds", "0"))


@contextmanager
def _fronts(folder: Path) -> Any:
    yield FaultSetting(("--front-processes", "2"))


@contextmanager
def _few_files(folder: Path) -> Any:
    yield FaultSetting(open_files=256)


async def kill_model(played: FaultRound) -> None:
    """Another process takes its place: calls in flight are refused, later ones wait."""
    await played.some_time()
    model = model_process(played.server.pid)
    os.kill(model, signal.SIGKILL)
    await eventually(lambda: not is_running(model), "the killed process has ended")


async def kill_model_thrice(played: FaultRound) -> None:
    """At the third time in a minute, the server exits with 1, and its supervisor starts another."""
    server = played.server.pid
    for number in range(3):
        if number:
            await until_ready(played.place)
        await played.some_time()
        os.kill(model_process(server), signal.SIGKILL)
    played.must(await played.server.end_of(server) == 1, "the server ends with 1")


async def stop_model_briefly(played: FaultRound) -> None:
    """The stop is shorter than the limit after which the process is killed: nothing is lost."""
    await played.some_time()
    model = model_process(played.server.pid)
    os.kill(model, signal.SIGSTOP)
    await played.some_time(1.0, 2.5)
    os.kill(model, signal.SIGCONT)


async def stop_model(played: FaultRound) -> None:
    """The stopped process is killed, and another one takes its place."""
    await played.some_time()
    model = model_process(played.server.pid)
    os.kill(model, signal.SIGSTOP)
    await eventually(lambda: not is_running(model), "the stopped process has ended")


async def stop_front(played: FaultRound) -> None:
    """The stopped process is killed with its connections, and another one takes its place."""
    await played.some_time()
    front = front_process(played.server.pid)
    os.kill(front, signal.SIGSTOP)
    await eventually(lambda: not is_running(front), "the stopped process has ended")


async def kill_server(played: FaultRound) -> None:
    """The model's process ends by itself, and its supervisor starts another server."""
    await played.some_time()
    server = played.server.pid
    model = model_process(server)
    os.kill(server, signal.SIGKILL)
    await played.server.end_of(server)
    await eventually(lambda: not is_running(model), "the model's process has ended")


async def terminate_server(played: FaultRound) -> None:
    """The server drains, and exits with status 0."""
    await played.some_time()
    server = played.server.pid
    os.kill(server, signal.SIGTERM)
    played.must(await played.server.end_of(server) == 0, "the server ends with 0")


async def burst_and_kill_model(played: FaultRound) -> None:
    """More calls at once than fit, while the model dies."""
    texts = sorted(played.account.expected)
    server = played.server.pid
    async with played.place.channel() as channel:
        stub: Any = TranslationServiceStub(channel)
        calls = [
            asyncio.ensure_future(
                account_for(
                    played.account, "burst", played.rng.choice(texts), lambda one: unary(stub, one)
                )
            )
            for _ in range(_BURST)
        ]
        await played.some_time(0.05, 0.5)
        os.kill(model_process(server), signal.SIGKILL)
        await asyncio.gather(*calls)


async def kill_client(played: FaultRound) -> None:
    """A client with streams in progress is killed: its rows and connections are freed."""
    code = (
        "import sys; from dragoman import Client\n"
        "streams = [Client(sys.argv[1]).stream(sys.argv[2]) for _ in range(20)]\n"
        "for one in streams: next(iter(one))\n"
        "print('streaming', flush=True); sys.stdin.read()"
    )
    text = " ".join(sorted(played.account.expected) * 20)
    client = subprocess.Popen(
        [sys.executable, "-c", code, played.place.address, text],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert client.stdout is not None
    played.must(
        await asyncio.to_thread(client.stdout.readline) == "streaming\n", "the client has streams"
    )
    await played.some_time(0.0, 0.3)
    client.kill()
    client.communicate()


async def cancel_calls(played: FaultRound) -> None:
    """Clients cancel, at random moments."""
    texts = sorted(played.account.expected)
    async with played.place.channel() as channel:
        stub: Any = TranslationServiceStub(channel)

        async def cancel(call: Any) -> None:
            await asyncio.sleep(played.rng.uniform(0, 0.2))
            call.cancel()
            with suppress(asyncio.CancelledError, grpc.aio.AioRpcError):
                await call.code()
            played.account.cancelled += 1

        for _ in range(5):
            requests = [pb.TranslateRequest(contents=[text]) for text in texts]
            streams = [pb.StreamTranslateRequest(content=text) for text in texts]
            calls = [stub.Translate(request) for request in requests]
            calls += [stub.StreamTranslate(request) for request in streams]
            await asyncio.gather(*map(cancel, calls))


async def read_slowly(played: FaultRound) -> None:
    """A client does not read its stream for a while; then it gets the whole correct text."""
    texts = sorted(played.account.expected)
    parts = played.rng.choices(texts, k=60)
    text, expected = " ".join(parts), None
    async with played.place.channel() as channel:
        stub: Any = TranslationServiceStub(channel)
        with suppress(CallRefused):
            expected = await unary(stub, text)
        call = stub.StreamTranslate(pb.StreamTranslateRequest(content=text), timeout=60)
        got = ""
        async for event in call:
            if not got:
                await played.some_time(1.0, 3.0)
            got += event.delta.text
    played.must(got == expected, f"a slowly read stream equals the call: {got!r}, {expected!r}")


async def abandon_streams(played: FaultRound) -> None:
    """HTTP clients disconnect in the middle of their events."""
    body = b'{"content": "' + b" ".join([b"She is reading a book."] * 40) + b'"}'
    head = (
        f"POST /v1/translate:stream HTTP/1.1\r\nhost: localhost\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    ).encode()
    for _ in range(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", played.place.http_port)
        writer.write(head + body)
        await reader.readline()
        await asyncio.sleep(played.rng.uniform(0, 0.1))
        writer.close()
        played.account.cancelled += 1


async def exhaust_descriptors(played: FaultRound) -> None:
    """More connections than the server may have open files: existing ones continue."""
    async with AsyncExitStack() as stack:
        for number in range(_CONNECTIONS):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            port = played.server.port if number % 2 else played.server.http_port
            with suppress(BlockingIOError):
                one.connect(("127.0.0.1", port))
        await played.some_time(1.0, 2.0)


async def limit_memory(played: FaultRound) -> None:
    """The model's process gets no more memory for a while, and large requests come."""
    model = model_process(played.server.pid)
    pages = int(Path(f"/proc/{model}/statm").read_text(encoding="ascii").split()[0])
    room = played.rng.randrange(0, 64) * 2**20
    resource.prlimit(model, resource.RLIMIT_AS, (pages * 4096 + room, resource.RLIM_INFINITY))
    texts = sorted(played.account.expected)
    async with played.place.channel() as channel:
        stub: Any = TranslationServiceStub(channel)
        calls = (
            account_for(played.account, "large", text, lambda one: stream(stub, one))
            for text in texts * 4
        )
        await asyncio.gather(*calls)
    with suppress(ProcessLookupError):
        resource.prlimit(
            model, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        )


def _with_restart(name: str, what: str, strike: Strike, prepare: Preparation = nothing) -> Scenario:
    """A fault after which the server may be started again: calls that it ends are refused."""
    return Scenario(name, what, strike, prepare, RETRIED_AT_THE_END, may_restart=True)


PROCESS_SCENARIOS = (
    Scenario("model-killed", "the model's process is killed", kill_model, nothing, _UNAVAILABLE),
    _with_restart(
        "model-killed-thrice",
        "the model's process is killed three times in a minute",
        kill_model_thrice,
    ),
    Scenario(
        "model-stopped-briefly",
        "the model's process is stopped, and goes on",
        stop_model_briefly,
        _patient,
        lost=False,
    ),
    Scenario("model-hangs", "the model's process stops for good", stop_model, _watched),
    Scenario("front-hangs", "one of two front processes stops for good", stop_front, _fronts),
    _with_restart("server-killed", "the server is killed", kill_server),
    _with_restart(
        "server-terminated", "the server gets SIGTERM and is started again", terminate_server
    ),
    Scenario(
        "burst-and-model-killed",
        f"{_BURST} calls come at once, and the model's process is killed",
        burst_and_kill_model,
        nothing,
    ),
    Scenario("client-killed", "a client with 20 streams is killed", kill_client, nothing),
    Scenario("calls-cancelled", "clients cancel their calls", cancel_calls, nothing, lost=False),
    Scenario("slow-reader", "a client reads its stream late", read_slowly, nothing, lost=False),
    Scenario(
        "events-abandoned",
        "HTTP clients leave in the midst of their events",
        abandon_streams,
        nothing,
        lost=False,
    ),
    Scenario(
        "descriptors-exhausted",
        f"{_CONNECTIONS} idle connections, of 256 open files",
        exhaust_descriptors,
        _few_files,
    ),
    Scenario(
        "memory-limited", "the model's process gets at most 64 MiB more", limit_memory, nothing
    ),
)
