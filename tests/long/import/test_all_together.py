"""Servers with several imported models, one of which is replaced again and again, under load."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from export.bundle_writer import ExportOptions
from export.importer import import_directory
from model.bundle.bundle import Bundle
from service.settings import shipped_models
from tests import foreign_models
from tests.factories import tiny_bundle
from tests.integration.replacing import SteadyLoad, change, model_processes, put, texts_of
from tests.integration.servers import NO_HURRY, ServerProcess, needs_two_cores, server_process

pytestmark = needs_two_cores

LANGUAGES = ("de", "es", "pt")


FRENCH = Path("model/optional/en-fr")  # beside the shipped model, not served by default


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two versions of a random multilingual model without English, with other weights."""
    folder = tmp_path_factory.mktemp("many")
    model = foreign_models.multilingual(folder / "model", "nllb")  # which searches greedily
    for version in ("1", "2"):
        if version == "2":
            foreign_models.vary(model)
            model.save_pretrained(folder / "model")
        options = ExportOptions("fp32", name="many", version=version)
        import_directory(folder / "model", folder / version, options, LANGUAGES, threads=1)
    return folder / "1", folder / "2"


async def test_no_call_of_any_route_fails_while_a_model_is_replaced(
    versions: tuple[Path, Path], tmp_path: Path
) -> None:
    """Every answer is whole, of one version; calls of models that stay change by nothing."""
    german = next(p for p in shipped_models() if Bundle.load(p).directions.fits("en", "de"))
    live = tmp_path / "many"
    put(versions[0], live)
    routes: dict[str, dict[str, str]] = {
        "shipped": {"source": "en", "target": "de"},
        "second": {"source": "en", "target": "fr"},
        "many": {"source": "de", "target": "es"},
        "pivot": {"source": "en", "target": "pt"},
    }
    known: dict[str, list[set[tuple[str, ...]]]] = {name: [] for name in routes}
    for version in versions:
        for name, pair in routes.items():
            texts = await texts_of(german, FRENCH, version, **pair)
            known[name].append({tuple(texts), (texts[0],)})
    for name, (old, new) in known.items():
        assert (old == new) == (name in ("shipped", "second"))
    models = [word for path in (german, FRENCH, live) for word in ("--model", path)]
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(server_process(*models, *NO_HURRY))
        assert len(model_processes(server.process.pid)) == 3
        loads = {
            name: await stack.enter_async_context(
                SteadyLoad.on(server.address, can_score=name != "pivot", **pair)
            )
            for name, pair in routes.items()
        }

        async def check_phase(version: int) -> None:
            names = list(loads)
            answers = await asyncio.gather(*(load.next_phase() for load in loads.values()))
            for name, found in zip(names, answers, strict=True):
                assert found == known[name][version], name

        for before, after in ((0, 1), (1, 0)):
            await check_phase(before)
            put(versions[after], live)
            server.process.send_signal(signal.SIGHUP)
            await server.read_log_until("reloaded")
            await check_phase(after)
        for code in ("UNAVAILABLE", "RESOURCE_EXHAUSTED", "INTERNAL"):
            assert await server.metric("dragoman_requests_total", code=code) == 0
        assert await server.metric("dragoman_model_reloads_total", result="success") == 2
        pivots: dict[str, Any] = {"pivot_model": "en-de", "model": "many"}
        num_pivoted = await server.metric("dragoman_pivoted_calls_total", **pivots)
        assert num_pivoted >= sum(map(len, loads["pivot"].answers.values()))
        for name, load in loads.items():
            seen = {texts for phase in load.answers.values() for texts in phase}
            assert seen == known[name][0] | known[name][1], name


# --- replaced again and again ---------------------------------------------------------------------

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
