"""`dragoman load` as people run it."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bench.load.results import read_results
from cli.main import app
from dragoman.v1 import translation_pb2 as pb
from tests.factories import SENTENCES, tiny_bundle
from tests.integration.servers import done, dragoman, running_bundle
from tests.load.fake_server import FakeServer, fake_server

PIPES: dict[str, Any] = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = tmp_path / "source.txt"
    file.write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")
    return file


async def test_a_beam_is_asked_for(tmp_path: Path, source: Path) -> None:
    with fake_server(lambda server, number, context: None) as server:
        status, out, err = await done(
            "load",
            *("--server", server.address, "--source", source, "--concurrency", "1"),
            *("--duration", "1s", "--warmup", "0s", "--metrics", "none"),
            *("--beam-size", "4", "--early-stopping", "first"),
        )
    assert status in (0, 3), err
    assert "beam 4" in out
    searches = [options.search for options in server.options]
    assert searches
    assert {search.beam_size for search in searches} == {4}
    assert {search.early_stopping for search in searches} == {pb.EARLY_STOPPING_FIRST}


async def test_a_run_against_the_real_server(tmp_path: Path, source: Path) -> None:
    bundle = tiny_bundle(tmp_path / "bundles" / "tiny")
    async with running_bundle(bundle.path, max_queue_seconds=60.0) as server:
        status, out, err = await done(
            "load",
            *("--server", server.address, "--source", source, "--rate", "20"),
            *("--duration", "1.5s", "--warmup", "0.5s", "--slo", "p50=10s"),
            *("--metrics", f"http://127.0.0.1:{server.server.metrics_port}/metrics"),
            *("--output", tmp_path / "out"),
        )
    # 3 says that the machine was too busy to keep the schedule, which is no fault of this test.
    assert status in (0, 3), err
    assert "achieved" in out
    assert "rows per step" in out
    results = read_results(tmp_path / "out")
    summary = results.summary()
    assert summary.errors == {}
    assert summary.num_ok == results.run.num_scheduled
    assert summary.target_tokens_per_second > 0
    figures = results.server()
    assert figures is not None
    assert figures.rows_per_step is not None
    assert figures.rows_per_step >= 1
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["load"]["num_ok"] > 0


async def test_ctrl_c_writes_what_was_measured(tmp_path: Path, source: Path) -> None:
    answered = asyncio.Event()
    loop = asyncio.get_running_loop()

    def tell(server: FakeServer, number: int, context: Any) -> None:
        if number == 20:
            loop.call_soon_threadsafe(answered.set)

    with fake_server(tell) as server:
        process = await dragoman(
            *("load", "--server", server.address, "--source", source, "--rate", "40"),
            *("--warmup", "0", "--metrics", "none", "--output", tmp_path / "out"),
            **PIPES,
        )
        await answered.wait()
        process.send_signal(signal.SIGINT)
        out, err = await process.communicate()
    assert process.returncode == 130, err.decode()
    assert "interrupted" in out.decode()
    results = read_results(tmp_path / "out")
    assert len(results.run.samples) >= 20
    assert results.run.broken_off == "interrupted"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--source FILE is needed"),
        (["--source", "SOURCE"], "--rate"),
        (["--source", "SOURCE", "--rate", "1", "--concurrency", "2"], "--concurrency"),
        (["--source", "SOURCE", "--rate", "1", "--duration", "soon"], "--duration"),
        (["--source", "SOURCE", "--rate", "1", "--slo", "fast"], "--slo"),
        (["--source", "SOURCE", "--find-capacity"], "--slo p99=500ms"),
        (["--source", "SOURCE", "--find-capacity", "--concurrency", "2"], "leave --concurrency"),
        (["--source", "EMPTY", "--rate", "1"], "has no text"),
        (["--source", "NONE", "--rate", "1"], "No such file"),
        (["--source", "SOURCE", "--rate", "1", "--server", "127.0.0.1:1"], "127.0.0.1:1"),
        (["compare", "NONE", "NONE"], "holds no run"),
    ],
)
def test_wrong_arguments_get_one_clear_line(
    tmp_path: Path, source: Path, arguments: list[str], words: str
) -> None:
    (tmp_path / "empty").write_text("\n")
    paths = {"SOURCE": source, "EMPTY": tmp_path / "empty", "NONE": tmp_path / "none"}
    result = CliRunner().invoke(app, ["load", *(str(paths.get(a, a)) for a in arguments)])
    assert result.exit_code in (1, 2)
    assert words in result.stderr
    assert result.stderr.count("\n") == 1, result.stderr
    assert result.stdout == ""


async def test_an_output_directory_in_use_is_refused(tmp_path: Path, source: Path) -> None:
    with fake_server(lambda server, number, context: None) as server:
        status, _, err = await done(
            "load",
            *("--server", server.address, "--source", source, "--rate", "1", "--output", tmp_path),
        )
    assert status == 1
    assert "is not empty" in err
