"""What of the GPU's benchmark a CPU can show."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bench.gpu.plan import FULL, SMOKE
from bench.gpu.preflight import look
from bench.gpu.report import write_report
from bench.gpu.results import PointLog
from bench.gpu.torch_loop import Loop, StaticDecoder
from model.search import greedy_search
from tests.factories import random_model, tiny_config

ROOT = Path(__file__).parents[3]


def test_points_are_written_as_they_come_and_not_measured_twice(tmp_path: Path) -> None:
    results = PointLog(tmp_path / "results" / "step.jsonl")
    assert results.wants(rows=1, graphs=True)
    results.add(rows=1, graphs=True, step_us=250.0)
    with results.file.open("a") as file:
        file.write('{"rows": 8, "gra')  # killed while it wrote
    again = PointLog(results.file)
    assert not again.wants(rows=1, graphs=True)
    assert again.wants(rows=1, graphs=False)
    assert again.wants(rows=8, graphs=True)
    assert list(again) == [{"rows": 1, "graphs": True, "step_us": 250.0}]
    assert not PointLog(results.file, seconds=-1.0).wants(rows=2)  # no time left


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "none"])
@torch.no_grad()
def test_the_pytorch_loop_says_what_the_reference_says(positions: str) -> None:
    """The peer computes the same model: or its figures would mean nothing."""
    model = random_model(tiny_config(positions=positions, norm="pre"))
    source_ids = torch.tensor([[9, 8, 7, 3], [30, 3, 0, 0], [77, 78, 3, 0]])
    mask = source_ids != 0
    length = 20
    decoder = StaticDecoder(model, model.encode(source_ids, mask), mask, length)
    loop = Loop(decoder, model.config.bos_id, "eager", on_gpu=False)
    for _ in range(2):  # a restart forgets what was there
        loop.restart()
        made = []
        for _ in range(length):
            loop.step()
            made.append(loop.token_ids.clone())
    tokens = torch.stack(made, dim=1)
    for row, expected in enumerate(greedy_search(model, source_ids, max_new_tokens=length)):
        count = len(expected.token_ids)
        assert tuple(tokens[row, :count].tolist()) == expected.token_ids


def test_the_report_has_the_aims_and_says_what_is_missing(tmp_path: Path) -> None:
    step = PointLog(tmp_path / "results" / "step.jsonl")
    step.add(model="base", rows=1, k=1, graphs=True, search="greedy", step_us=243.2,
             step_us_p90=250.0, pipelined_us=230.0, encode_us=900.0, start_seconds=3.0,
             captured=42)  # fmt: skip
    engine = PointLog(tmp_path / "results" / "engine.jsonl")
    engine.add(model="base", beam=1, concurrency=256, depth=2, tokens_per_second=312345.6,
               texts_per_second=11000.0, mean_rows=240.0, device_share=0.95,
               busy_share=0.93)  # fmt: skip
    torch_loop = PointLog(tmp_path / "results" / "torch.jsonl")
    torch_loop.add(model="base", rows=8, variant="compiled", error="no compiler | at all")
    text = write_report(tmp_path).read_text()
    aims = text[text.index("## Aims") : text.index("## Tests")]
    assert "| 300,000 | 312,346 |" in aims
    assert "| 250 | 243 |" in aims
    assert "| 90 % | 93% |" in aims
    assert "100,000 | not measured" in aims
    assert "no compiler / at all" in text
    assert "## Over gRPC\n\nNot measured." in text


def test_preflight_tells_what_keeps_it_from_running() -> None:
    facts, fatal, _ = look("cpu")
    assert fatal == []
    assert facts["onnxruntime-gpu"].startswith("1.31")
    _, fatal, _ = look("cuda")
    if not torch.cuda.is_available():
        assert any("for CPUs: put the wheel of onnxruntime-gpu" in line for line in fatal)


def test_the_full_plan_has_the_points_that_the_aims_are_of() -> None:
    assert {"base", "big", "shipped"} <= set(FULL.models)
    assert FULL.beams == (1, 4)
    assert (min(FULL.concurrency), max(FULL.concurrency)) == (1, 512)
    assert 256 in FULL.concurrency
    assert 1 in FULL.rows
    assert FULL.grpc_calls * FULL.texts_per_call == 256
    assert SMOKE.seconds < FULL.seconds


def test_the_script_explains_itself_and_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    script = ROOT / "bench" / "gpu.sh"
    shown = subprocess.run([script, "--help"], capture_output=True, text=True, check=True)
    assert "--wheels DIR" in shown.stdout
    wrong = subprocess.run([script, "--nonsense"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    environment = {**os.environ, "PYTHON": sys.executable}
    command: list[str | Path] = [
        script,
        "--device",
        "cpu",
        "--smoke",
        "--parts",
        "preflight report-nothing",
    ]
    done = subprocess.run(
        [*command, "--output", tmp_path / "out", "--work", tmp_path / "work"],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 2
    assert "there is no part report-nothing" in done.stderr
    assert json.loads((tmp_path / "out" / "preflight.json").read_text())["onnxruntime-gpu"]
