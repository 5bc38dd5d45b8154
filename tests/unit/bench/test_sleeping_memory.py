"""The memory of sleeping models: pairs of a bundle, and the report."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from bench import sleeping_memory
from bench.recompute import render
from bench.sleeping_memory import SleepingMemory, measure
from tests.factories import tiny_bundle


def test_one_of_three_sleeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sleeping_memory, "_TARGETS", ("de", "fr", "es"))
    bundle = tiny_bundle(tmp_path / "bundle", precision="int8")
    found = measure(bundle.path, tmp_path / "work")
    assert found.what.endswith("layers, 320 tokens")
    assert 0 < found.asleep_mib < found.started_mib


def test_the_report_has_a_line_for_each_bundle() -> None:
    about = {
        "processor": "P",
        "cpus": 2,
        "onnxruntime": "1",
        "started_at": "2026-11-26T16:31:18+0000",
        "revision": "abc",
    }
    rows = [dataclasses.asdict(SleepingMemory("256", 1500.0, 300.4))]
    found = render({"benchmark": "sleeping-memory", "about": about, "rows": rows})
    assert "| 256 | 1,500 | 300 | 1,024 | 600 |" in found["report.md"]
