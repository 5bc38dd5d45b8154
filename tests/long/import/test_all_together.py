"""Two directions, a multilingual model and a pivot in one server, while a model is replaced."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from pathlib import Path
from typing import Any

import pytest

from export.bundle_writer import ExportOptions
from export.importer import import_directory
from model.bundle.bundle import Bundle
from service.settings import shipped_models
from tests import foreign_models
from tests.integration.replacing import SteadyLoad, model_processes, put, texts_of
from tests.integration.servers import NO_HURRY, needs_two_cores, server_process

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
