"""Every graph starts on a GPU, every step can be captured, and launches come in the right order."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from service.runtime.batch_sizes import BATCH_SIZES
from service.runtime.cuda.step import CAPTURED_TOP_K
from tests.factories import tiny_bundle
from tests.stand_in.running import run

# Of shapes, which ONNX Runtime computes on the host by intention.
SHAPE_OPERATORS = {"Shape", "Squeeze", "Cast", "Sub", "Add", "Mul", "Reshape"}

SHAPES: list[dict[str, Any]] = [
    {},
    {"vocab_size": 8192, "num_decoder_layers": 3, "num_heads": 4, "norm": "pre"},
    {"vocab_size": 331, "output_bias": True, "positions": "sinusoidal", "activation": "gelu"},
    {"d_model": 512, "num_heads": 8, "vocab_size": 4096, "activation": "silu"},
    {"d_model": 80, "num_heads": 2},
    {"d_model": 256, "num_heads": 1},
    {"decoder": "ssru", "embed_start": False, "output_bias": True},
]


def test_every_graph_starts_on_a_gpu_and_every_step_is_captured(tmp_path: Path) -> None:
    bundles = [
        tiny_bundle(tmp_path / str(number), precision="fp16", resident=True, **shape).path
        for number, shape in enumerate(SHAPES)
    ]
    for found in run("check.py", *map(str, bundles)):
        for graph, operators in found["on_the_cpu"].items():
            has_shapes = graph in ("encoder", "scoring", "attention")
            allowed = SHAPE_OPERATORS if has_shapes else set()
            assert set(operators) <= allowed, graph
        assert found["captured"] == len(BATCH_SIZES) * len(CAPTURED_TOP_K)
        assert found["captured_without"] == 0
        assert "too little memory" in found["too_little"]
        assert "--max-rows" in found["too_little"]


@pytest.mark.parametrize("shape", [*SHAPES, {"num_decoder_layers": 17}], ids=str)
def test_steps_are_launched_before_those_before_them_are_seen(
    tmp_path: Path, shape: dict[str, Any]
) -> None:
    bundle = tiny_bundle(tmp_path / "bundle", precision="fp16", resident=True, **shape)
    found = run("order.py", str(bundle.path))
    assert found["spoilt"] == {"captured": 0, "numbers": [1]}  # by kernels, on the same stream
    for one in found["in_flight"]:
        depth, stream = one["depth"], one["stream"]
        # While nothing is done on the device: each step's graph (or kernels, and copies within the
        # device), the copy of what it chose (six rows of an id, a logit and a log-sum-exp) and an
        # event. Nobody synchronised.
        assert one["launched"]
        ran = f"{'graph' if one['captures'] else 'kernels'} on {stream}"
        brought = f"copy device to pinned {6 * 3 * 4} on {stream}"
        journal = [line for line in one["journal"] if not line.startswith("copy device to device")]
        called = [line for line, _ in itertools.groupby(journal)]
        steps = depth * [ran, brought, f"record on {stream}"]
        assert called[: len(steps) - 1] == steps[:-1]
        assert one["seen"] == [False] * depth
        assert one["numbers"] == list(range(1, depth + 1))
        assert one["last"] == f"end of stream {stream}"
    waits = shape.get("num_decoder_layers", 0) > 16  # for a batch of sources
    for one in found["synchronous"] if not waits else ():
        # Each run has ended when anything else is enqueued.
        stream, is_over = one["stream"], True
        for line in one["journal"]:
            if line.startswith(("graph", "kernels", "copy device to device")):
                is_over = False
            elif line == f"synchronize on {stream}":
                is_over = True
            else:
                assert is_over, line
    for one in found["many"]:
        assert one["numbers"] == list(range(1, len(one["numbers"]) + 1))
        assert one["copies_of_others"] == one["freed_by_others"]  # or pinned memory would be lost
        assert waits or not one["copies_of_others"]
    for one in (*found["many"], *found["others"]):
        # Also where sources are encoded, and rows are set or copied: nothing on another stream, no
        # pageable memory, and nobody waits but for events.
        allowed = {
            "graph", "kernels", "record", "copy pinned to device", "copy device to pinned",
            "copy device to device", *(("host function", "synchronize") if waits else ()),
        }  # fmt: skip
        assert set(one["calls"]) <= {f"{call} on {one['stream']}" for call in allowed} | {"waited"}
