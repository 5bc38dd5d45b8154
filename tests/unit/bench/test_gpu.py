"""The parts of the GPU's benchmark that can be tested on a CPU."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import onnxruntime as ort
import pytest

from bench.gpu.preflight import look
from bench.gpu.results import PointLog

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


def test_preflight_tells_what_keeps_it_from_running() -> None:
    facts, fatal, optional = look("cpu")
    assert fatal == optional == []
    assert facts["onnxruntime-gpu"].startswith("1.31")
    _, fatal, _ = look("cuda")
    if "CUDAExecutionProvider" not in ort.get_available_providers():
        assert any("for CPUs: put the wheel of onnxruntime-gpu" in line for line in fatal)


def test_preflight_lists_all_packages_that_serving_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(package: str) -> str:
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(importlib.metadata, "version", version)
    _, _, optional = look("cpu")
    missing = {line.removesuffix(" is not installed") for line in optional}
    assert {"grpcio", "uvicorn", "starlette", "py3langid", "python-multipart", "lxml"} <= missing


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
        "preflight no-such-part",
    ]
    done = subprocess.run(
        [*command, "--output", tmp_path / "out", "--work", tmp_path / "work"],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 2
    assert "there is no part no-such-part" in done.stderr
    assert json.loads((tmp_path / "out" / "preflight.json").read_text())["onnxruntime-gpu"]
