"""The measurement of costs by length: fitted exponents, cases left out, the written report."""

from __future__ import annotations

import json
import math
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.recompute import store
from bench.studies.lengths.measure import ENGINES, KINDS, LengthCase, LengthCost, measure
from bench.studies.lengths.report import exponent, to_dict


@given(power=st.floats(0.2, 3.0), factor=st.floats(1e-3, 1e3))
def test_the_exponent_of_a_power_is_found(power: float, factor: float) -> None:
    points = [(n, factor * n**power) for n in (512, 1024, 2048, 4096, 8192)]
    assert exponent(points) == pytest.approx(power)
    overhead = [(n, y + (1e9 if n < 2048 else 0.0)) for n, y in points]
    assert exponent(overhead) == pytest.approx(power)  # short texts don't count
    assert exponent(points[:2]) == pytest.approx(power)
    assert math.isnan(exponent(points[:1]))


def test_the_report_has_a_table_and_a_plot_for_each_figure(tmp_path: Path) -> None:
    costs = [
        LengthCost(LengthCase(engine, kind, n), seconds=1e-6 * n ** (1 + index / 4), peak_bytes=n)
        for engine in ENGINES
        for index, kind in enumerate(KINDS)
        for n in (512, 2048, 4096)
        if (kind, n) != ("full", 4096)
    ]
    store(tmp_path, to_dict(costs, {"Machine": "none"}))
    report = (tmp_path / "report.md").read_text()
    assert "| tokens | full | local | strided | lsh | linformer |" in report
    assert "| exponent | 1.00 | 1.25 | 1.50 | 1.75 | 2.00 |" in report
    assert "| 4,096 |  | " in report
    assert len(json.loads((tmp_path / "summary.json").read_text())["costs"]) == len(costs)
    for engine in ENGINES:
        for figure in ("time", "memory"):
            assert f"({engine}-{figure}.svg)" in report
            picture = ElementTree.parse(tmp_path / f"{engine}-{figure}.svg")
            text = "".join(picture.getroot().itertext())
            assert all(kind in text for kind in KINDS)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_case_is_measured(engine: str) -> None:
    cost = measure(LengthCase(engine, "local", 40, preset="tiny", window=8, repeats=1))
    assert cost.seconds > 0
    assert cost.peak_bytes >= 0
