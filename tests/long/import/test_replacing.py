"""A server whose model is replaced again and again, well and badly, under load."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
from pathlib import Path

from tests.factories import tiny_bundle
from tests.integration.replacing import SteadyLoad, change, model_processes, put, texts_of
from tests.integration.servers import NO_HURRY, ServerProcess, needs_two_cores, server_process

pytestmark = needs_two_cores

NUM_ROUNDS = 4  # of each way to replace the model


async def kill_the_version_that_is_opened(server: ServerProcess, before: float) -> None:
    """As for want of memory. It was stopped first, so that it can't take over meanwhile."""
    while len(found := model_processes(server.process.pid)) < 2:
        await asyncio.sleep(0)
    os.kill(max(found), signal.SIGSTOP)
    assert await server.metric("dragoman_model_reloads_total", result="success") == before
    os.kill(max(found), signal.SIGKILL)


async def test_no_call_fails_whatever_becomes_of_new_versions(tmp_path: Path) -> None:
    versions = []
    for number in (1, 2):
        versions.append(tmp_path / str(number))
        tiny_bundle(versions[-1], name="tiny", seed=number)
        change(versions[-1], version=str(number))
    damaged, live = tmp_path / "damaged", tmp_path / "live"
    shutil.copytree(versions[0], damaged)
    change(damaged, version="3")
    (damaged / "encoder.onnx").write_bytes(b"no graph")
    put(versions[0], live)
    of_version = [{tuple(texts), (texts[0],)} for texts in [await texts_of(v) for v in versions]]
    ways = ["good", "hang up often", "damaged", "killed", "missing"] * NUM_ROUNDS
    random.Random(5).shuffle(ways)
    serving, num_replaced = 0, 0
    async with (
        server_process("--model", live, *NO_HURRY) as server,
        SteadyLoad.on(server.address) as load,
    ):
        assert await load.next_phase() == of_version[0]
        for way in ways:
            if way == "damaged":
                put(damaged, live)
            elif way == "missing":
                shutil.rmtree(live)
            else:
                put(versions[1 - serving], live)
            server.process.send_signal(signal.SIGHUP)
            if way == "killed":
                await kill_the_version_that_is_opened(server, num_replaced)
            if way in ("good", "hang up often"):
                for _ in range(5 if way == "hang up often" else 0):
                    server.process.send_signal(signal.SIGHUP)
                await server.read_log_until("reloaded")
                serving, num_replaced = 1 - serving, num_replaced + 1
            else:
                await server.read_log_until("not reloaded")
            assert await load.next_phase() == of_version[serving]
            put(versions[serving], live)
        for code in ("UNAVAILABLE", "RESOURCE_EXHAUSTED", "INTERNAL"):
            assert await server.metric("dragoman_requests_total", code=code) == 0
        results = {"success": num_replaced, "failure": len(ways) - num_replaced}
        for result, count in results.items():
            assert await server.metric("dragoman_model_reloads_total", result=result) == count
        assert len(model_processes(server.process.pid)) == 1
    answers = {texts for phase in load.answers.values() for texts in phase}
    assert answers == of_version[0] | of_version[1]
