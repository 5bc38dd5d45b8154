"""`dragoman serve` as a process: errors at the start, and its end."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dragoman.client import AsyncClient, StreamEnd, TranslationError
from tests.client_errors import refused
from tests.factories import tiny_tokenizer
from tests.integration import hanging_server
from tests.integration.servers import (
    NO_HURRY,
    ServerProcess,
    done,
    needs_two_cores,
    python_process,
    server_process,
)


async def fails_to_start(*arguments: str | Path) -> str:
    """Standard error of `dragoman serve` when it can't start."""
    options = ("--port", "0", "--metrics-port", "0", "--threads", "1")
    status, output, message = await done("serve", *options, *arguments)
    assert (status, output) == (1, "")
    # Before it may stand which models were loaded.
    *logged, last = map(json.loads, message.splitlines())
    assert {line["message"] for line in logged} <= {"loaded", "memory"}
    assert last["level"] == "critical"
    return str(last["message"])


# --- start-up errors -----------------------------------------------------------------------------


async def test_a_bundle_that_is_not_there(tmp_path: Path) -> None:
    assert str(tmp_path / "none") in await fails_to_start("--model", tmp_path / "none")


async def test_a_port_that_another_server_of_ours_uses(bundle_path: Path) -> None:
    async with server_process("--model", bundle_path) as server:
        port = server.address.rpartition(":")[2]
        assert "in use" in await fails_to_start("--model", bundle_path, "--port", port)


async def test_the_caches_memory_is_printed_before_it_serves(bundle_path: Path) -> None:
    sizes = []
    for max_rows in (1, 4):
        async with server_process("--model", bundle_path, "--max-rows", str(max_rows)) as server:
            before = [entry["message"] for entry in server.log].index("serving")
            [loaded] = [e for e in server.log[:before] if e["message"] == "loaded"]
            assert loaded["cache_bytes"] == await server.metric("dragoman_cache_bytes")
            sizes.append(loaded["cache_bytes"])
    assert 0 < 2 * sizes[0] < sizes[1] <= 4 * sizes[0]


async def test_a_setting_out_of_range() -> None:
    assert "--max-rows: must be from 0 to" in await fails_to_start("--max-rows", "-1")


# --- the end -------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def streaming(
    bundle: Path, *options: str
) -> AsyncIterator[tuple[ServerProcess, AsyncIterator[object]]]:
    """A server, and a long stream that has begun."""
    text = "A dog is running across the green field. " * 2000
    async with (
        server_process("--model", bundle, "--max-rows", "1", *options) as server,
        AsyncClient(server.address, timeout=100) as client,
    ):
        stream = client.stream(text)
        await anext(stream)
        yield server, stream


async def cut_off(stream: AsyncIterator[object]) -> None:
    """Check that a stream ends with UNAVAILABLE."""
    with pytest.raises(TranslationError) as caught:
        async for _ in stream:
            pass
    assert caught.value.code is grpc.StatusCode.UNAVAILABLE


async def check_stopped_working(server: ServerProcess) -> None:
    """Check that the server ends with 1 and says that its model stopped working."""
    assert server.process.stderr is not None
    assert b"stopped working" in await server.process.stderr.read()
    assert await server.process.wait() == 1


async def test_sigterm_loses_nothing_and_ends_with_0(bundle_path: Path) -> None:
    text = "A dog is running across the green field. " * 40
    async with (
        server_process("--model", bundle_path, "--max-rows", "2", *NO_HURRY) as server,
        AsyncClient(server.address, timeout=250) as client,
    ):
        expected = (await client.translate([text])).translations
        calls = [asyncio.ensure_future(client.translate([text])) for _ in range(20)]
        stream = client.stream(text)
        first = await anext(stream)
        server.terminate()
        answers = await asyncio.gather(*calls)
        rest = [event async for event in stream]
        assert await server.end() == 0
    assert [answer.translations for answer in answers] == [expected] * 20
    assert isinstance(rest[-1], StreamEnd)
    pieces = [str(first), *(str(piece) for piece in rest[:-1])]
    assert "".join(pieces) == expected[0].text
    messages = [entry["message"] for entry in server.log]
    assert messages[-1] == "stopped"
    assert "calls were still in progress at the end of the drain and are cut off" not in messages


async def test_a_draining_server_says_so_first_and_then_takes_nothing_new(
    bundle_path: Path,
) -> None:
    text = "A dog is running across the green field. " * 200
    async with (
        server_process("--model", bundle_path, "--max-rows", "1", *NO_HURRY) as server,
        grpc.aio.insecure_channel(server.address) as channel,
        AsyncClient(server.address, timeout=250) as client,
    ):
        health: Any = health_pb2_grpc.HealthStub(channel)
        watch = health.Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        stream = client.stream(text)
        await anext(stream)
        server.terminate()
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert await watch.read() is grpc.aio.EOF
        await server.read_log_until("draining")
        async with AsyncClient(server.address) as late:
            await refused(late.translate(["A dog."]), "UNAVAILABLE")
        rest = [event async for event in stream]
        assert isinstance(rest[-1], StreamEnd)
        assert await server.end() == 0


async def test_the_drain_has_a_bound_and_what_it_cuts_off_is_unavailable(
    bundle_path: Path,
) -> None:
    async with streaming(bundle_path, "--drain-seconds", "0.1") as (server, stream):
        server.terminate()
        await cut_off(stream)
        assert await server.end() == 0


async def test_a_model_that_hangs_does_not_hold_the_end(tmp_path: Path) -> None:
    tiny_tokenizer(tmp_path)
    async with (
        python_process(hanging_server.__file__, tmp_path) as server,
        AsyncClient(server.address, timeout=100) as client,
    ):
        call = asyncio.ensure_future(client.translate(["A dog."]))
        await server.read_log_until("hanging")
        server.terminate()
        await refused(call, "UNAVAILABLE")
        assert await server.end() == 1


@needs_two_cores
async def test_a_model_whose_process_dies_is_opened_again(bundle_path: Path) -> None:
    """The calls in flight end with a code that says to retry, and later ones wait."""
    async with streaming(bundle_path) as (server, stream):
        pid = pid_of_model(server)
        os.kill(pid, signal.SIGKILL)
        await cut_off(stream)
        async with AsyncClient(server.address, timeout=100) as client:
            await client.translate(["A dog."])
        told = await server.read_log_until("a model's process ended")
        assert (told["pid"], told["how"]) == (pid, "was killed by SIGKILL")
        await server.read_log_until("restarted")
        assert await server.metric("dragoman_model_restarts_total", result="success") == 1
        assert is_running(pid_of_model(server))
        assert not is_running(pid)
        server.terminate()
        assert await server.end() == 0


@needs_two_cores
async def test_a_model_that_can_t_be_opened_again_ends_the_server_with_1(
    bundle_path: Path, tmp_path: Path
) -> None:
    bundle = shutil.copytree(bundle_path, tmp_path / "bundle")
    async with streaming(bundle) as (server, stream):
        bundle.rename(tmp_path / "gone")
        os.kill(pid_of_model(server), signal.SIGKILL)
        await cut_off(stream)
        await check_stopped_working(server)


def pid_of_model(server: ServerProcess) -> int:
    """The process of the model that the log names last."""
    return int([entry["pid"] for entry in server.log if entry["message"] == "loaded"][-1])


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@needs_two_cores
async def test_a_model_that_stalls_is_not_ready_until_it_goes_on(bundle_path: Path) -> None:
    text = "A dog is running across the green field. " * 50
    async with (
        server_process(
            *("--model", bundle_path, "--max-rows", "1", "--stall-seconds", "0.5"),
            *("--hang-seconds", "0", *NO_HURRY),
        ) as server,
        grpc.aio.insecure_channel(server.address) as channel,
        AsyncClient(server.address, timeout=250) as client,
    ):
        expected = (await client.translate([text])).translations
        stub: Any = health_pb2_grpc.HealthStub(channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        stream = client.stream(text)
        pieces = [str(await anext(stream))]
        os.kill(pid_of_model(server), signal.SIGSTOP)
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert await server.metric("dragoman_stalled", model="tiny") == 1
        assert await server.metric("dragoman_serving") == 0
        os.kill(pid_of_model(server), signal.SIGCONT)
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        pieces += [str(piece) async for piece in stream if not isinstance(piece, StreamEnd)]
        assert "".join(pieces) == expected[0].text
        assert await server.metric("dragoman_stalled", model="tiny") == 0
        watch.cancel()
        server.terminate()
        assert await server.end() == 0
    messages = [entry["message"] for entry in server.log]
    assert messages.count("a model has work and makes no progress") == 1
    assert messages.count("a stalled model makes progress again") == 1


@needs_two_cores
async def test_a_model_that_hangs_is_killed_and_opened_again(bundle_path: Path) -> None:
    options = ("--stall-seconds", "1", "--hang-seconds", "0.1")
    async with streaming(bundle_path, *options) as (server, stream):
        pid = pid_of_model(server)
        os.kill(pid, signal.SIGSTOP)
        await cut_off(stream)
        await server.read_log_until("a model hangs: it is abandoned")
        await server.read_log_until("restarted")
        assert not is_running(pid)
        async with AsyncClient(server.address, timeout=100) as client:
            await client.translate(["A dog."])
        server.terminate()
        assert await server.end() == 0


@needs_two_cores
async def test_a_server_that_is_killed_leaves_no_process_behind(bundle_path: Path) -> None:
    async with server_process("--model", bundle_path) as server:
        pid = pid_of_model(server)
        assert pid != server.process.pid
        server.process.kill()
        # The model's process writes there too, so that it ends when both have.
        assert server.process.stderr is not None
        await server.process.stderr.read()
        assert await server.end() == -signal.SIGKILL


async def test_a_second_signal_cuts_the_drain_short(bundle_path: Path) -> None:
    async with streaming(bundle_path) as (server, stream):
        server.terminate()
        await server.read_log_until("draining")
        server.terminate()
        await cut_off(stream)
        assert await server.end() == 0


async def test_the_log_is_json_with_request_ids_and_without_texts(bundle_path: Path) -> None:
    async with (
        server_process("--model", bundle_path, "--log-level", "debug") as server,
        AsyncClient(server.address) as client,
    ):
        await client.translate(["A very private text."], request_id="mine-1")
        with pytest.raises(TranslationError):
            await client.translate(["A very private text."], model="none", request_id="mine-2")
        server.terminate()
        assert await server.end() == 0
    calls = {entry["request_id"]: entry for entry in server.log if entry["message"] == "call"}
    assert calls["mine-1"]["code"] == "OK"
    assert calls["mine-1"]["texts"] == 1
    assert calls["mine-2"]["code"] == "NOT_FOUND"
    assert "private" not in json.dumps(server.log)
