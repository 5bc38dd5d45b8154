"""Layers compared: what one of them sees, how far a signal has to travel, the written report."""

from __future__ import annotations

import json
import math
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.recompute import store
from bench.studies.layers import run
from bench.studies.layers.layers import KERNEL, inputs_seen, make_layer, path_length
from bench.studies.layers.report import KINDS, LayerCase, LayerCost, to_dict

_REACH = KERNEL // 2


@settings(deadline=None, max_examples=8)
@given(length=st.integers(1, 20), data=st.data())
def test_what_one_layer_sees(length: int, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, length - 1))
    near = range(max(0, at - _REACH), min(length, at + _REACH + 1))
    assert inputs_seen("self-attention", length, at) == list(range(length))
    assert inputs_seen("convolutional", length, at) == list(near)
    assert inputs_seen("recurrent", length, at) == list(range(at + 1))


@settings(deadline=None, max_examples=6)
@given(length=st.integers(2, 20))
def test_path_lengths_are_those_of_table_1(length: int) -> None:
    assert path_length("self-attention", length) == 1
    assert path_length("recurrent", length) == length
    assert path_length("convolutional", length) == math.ceil((length - 1) / _REACH)


@pytest.mark.parametrize("kind", KINDS)
def test_the_operations_of_a_layer_end_at_its_output(kind: str) -> None:
    layer, states = make_layer(kind, 8), torch.randn(6, 8)
    operations = layer.operations(states)
    count = len(states) if kind == "recurrent" else 1
    *_, last = (next(operations) for _ in range(count))
    torch.testing.assert_close(last, layer.forward(states))


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="'pooling'"):
        make_layer("pooling", 8)


def test_a_layer_is_measured() -> None:
    cost = run.measure(LayerCase("recurrent", 16, 64, repeats=1))
    assert cost.seconds > 0
    assert cost.peak_bytes >= 0


def test_the_report_has_tables_plots_and_paths(tmp_path: Path) -> None:
    def costs(growing: str) -> list[LayerCost]:
        sizes = (64, 128, 256, 512)
        cases = [
            LayerCase(kind, n, 256) if growing == "n" else LayerCase(kind, 512, n)
            for kind in KINDS
            for n in sizes
        ]
        return [
            LayerCost(c, 1e-6 * (c.length if growing == "n" else c.d_model) ** 2, 0) for c in cases
        ]

    found = run.signals((4, 8))
    store(tmp_path, to_dict({g: costs(g) for g in "nd"}, {"Machine": "none"}, found))
    report = (tmp_path / "report.md").read_text()
    assert report.count("| exponent | 2.00 | 2.00 | 2.00 |") == 2
    assert "| recurrent | 4 | 8 | 5 |" in report
    assert "| convolutional | 3 | 7 | 3 |" in report
    assert "| self-attention | 1 | 1 | 8 |" in report
    assert set(json.loads((tmp_path / "summary.json").read_text())["signals"]) == set(KINDS)
    for name in ("time-n", "time-d", "memory-n", "memory-d"):
        assert f"({name}.svg)" in report
        picture = ElementTree.parse(tmp_path / f"{name}.svg")
        assert all(kind in "".join(picture.getroot().itertext()) for kind in KINDS)
