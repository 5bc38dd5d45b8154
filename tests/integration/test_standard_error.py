"""`dragoman serve` with a standard error that takes no log lines."""

import asyncio
import contextlib
import fcntl
import json
import os
import sys
from pathlib import Path

import pytest

from dragoman.client import AsyncClient, TranslationError
from service.observability import logs
from service.ports.healthcheck import problem
from tests.integration.listening import ports_of
from tests.integration.servers import command_environment, page, total

# Beyond the queue, by more than what a pipe holds.
NUM_CALLS = logs.MAX_QUEUED_LINES + 300


async def test_a_pipe_that_is_not_read_freezes_nothing(bundle_path: Path) -> None:
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli.main", "serve", "--model", str(bundle_path)),
        *("--port", "0", "--metrics-port", "0", "--threads", "1"),
        env=command_environment(),
        stderr=write,
    )
    os.close(write)
    try:
        with os.fdopen(read, "rb", buffering=0) as log:
            while (entry := json.loads(log.readline()))["message"] != "serving":
                pass
            async with AsyncClient(entry["address"], timeout=60) as client:
                for _ in range(NUM_CALLS // 25):
                    await asyncio.gather(*(client.list_models() for _ in range(25)))
                assert (await client.translate(["A dog."])).translations[0].error is None
            assert await asyncio.to_thread(problem, entry["address"], timeout=60) is None
            metrics = await page(entry["metrics"])
            assert total(metrics, "dragoman_requests_total") >= NUM_CALLS - 25
            assert total(metrics, "dragoman_log_lines_dropped_total") > 0
            process.terminate()
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_a_server_without_standard_streams_serves(bundle_path: Path) -> None:
    command = f"{sys.executable} -m cli.main serve --model {bundle_path} --port 0"
    process = await asyncio.create_subprocess_shell(
        f"exec {command} --metrics-port 0 --threads 1 <&- >&- 2>&-", env=command_environment()
    )
    try:
        while not await answers(process.pid):
            assert process.returncode is None
        standard = [os.readlink(f"/proc/{process.pid}/fd/{number}") for number in range(3)]
        assert standard == ["/dev/null"] * 3
        process.terminate()
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def answers(pid: int) -> bool:
    """Whether a server answers a call on one of its ports, which it can tell nobody."""
    for port in ports_of(pid):
        async with AsyncClient(f"127.0.0.1:{port}", timeout=60, patient=False) as client:
            with contextlib.suppress(TranslationError):
                await client.translate(["A dog."])
                return True
    return False
