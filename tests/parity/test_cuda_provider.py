"""ONNX Runtime's CUDA provider, on a stand-in for CUDA that computes nothing.

Skipped unless `DRAGOMAN_STAND_IN` names what `tests/stand_in/build.py` has built: this shows, where
there is no GPU, that every graph starts on one and that every step can be captured.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from service.device_step import CAPTURED_TOP_K
from service.ladder import RUNGS
from tests.factories import tiny_bundle

ROOT = Path(__file__).parents[2]
STAND_IN = os.environ.get("DRAGOMAN_STAND_IN", "")
# Of shapes, which ONNX Runtime computes on the host by intention.
SHAPE_OPERATORS = {"Shape", "Squeeze", "Cast", "Sub", "Reshape"}

SHAPES: list[dict[str, Any]] = [
    {},
    {"vocab_size": 2048, "num_decoder_layers": 3, "num_heads": 4, "norm": "pre"},  # token groups
    {"vocab_size": 331, "output_bias": True, "positions": "sinusoidal", "activation": "gelu"},
    {"d_model": 512, "num_heads": 8, "vocab_size": 4096, "activation": "silu"},
    {"d_model": 80, "num_heads": 2},
    {"d_model": 256, "num_heads": 1},
]


@pytest.mark.skipif(not STAND_IN, reason="no stand-in for CUDA: see tests/stand_in/build.py")
def test_every_graph_starts_on_a_gpu_and_every_step_is_captured(tmp_path: Path) -> None:
    bundles = [
        tiny_bundle(tmp_path / str(number), precision="fp16", resident=True, **shape).path
        for number, shape in enumerate(SHAPES)
    ]
    where = Path(STAND_IN).resolve()
    paths = [str(where / "site"), str(ROOT), str(ROOT / "proto")]
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(where / "lib"),
        "PYTHONPATH": os.pathsep.join(paths),
        "STAND_IN_BYTES": str(40 << 30),
    }
    check = ROOT / "tests" / "stand_in" / "check.py"
    done = subprocess.run(
        [sys.executable, str(check), *map(str, bundles)],
        env=environment, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "stand-in:" not in done.stderr  # a call that a capture forbids, a grid of no blocks
    for found in json.loads(done.stdout):
        for graph, operators in found["on_the_cpu"].items():
            allowed = SHAPE_OPERATORS if graph in ("encoder", "scoring") else set()
            assert set(operators) <= allowed, graph
        assert found["captured"] == len(RUNGS) * len(CAPTURED_TOP_K)
        assert found["captured_without"] == 0
        assert "too little memory" in found["too_little"]
        assert "--max-rows" in found["too_little"]
