"""Bundles of earlier versions still load, and give the same bits.

`bundles/for_gpus_1` was written with `tests.factories.tiny_bundle` when bundles for GPUs chose
tokens from groups, masked padding by a matrix and had a graph that allocates memory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.gpu.host_stream import open_on
from model.bundle.bundle import Bundle
from model.bundle.sessions import SessionSettings
from service.domain.plan import ModelRunner
from service.runtime.cpu.runner import OnnxRunner
from service.runtime.cuda.runner import DeviceOptions, DeviceRunner
from tests.factories import random_sources, tiny_bundle
from tests.runner_loops import greedy_steps, same_steps

FOR_GPUS = Path(__file__).parent / "bundles" / "for_gpus_1"
SHAPE: dict[str, Any] = {"vocab_size": 1650, "d_model": 16, "ffn_dim": 16, "num_encoder_layers": 1}
CPU = SessionSettings("cpu", intra_op_threads=1)


@pytest.mark.parametrize("top_k", [1, 8, 256])
def test_a_bundle_for_gpus(tmp_path: Path, top_k: int) -> None:
    earlier = Bundle.load(FOR_GPUS)
    assert earlier.token_groups == 33
    now = tiny_bundle(tmp_path / "bundle", precision="fp16", max_positions=24, **SHAPE)
    assert now.token_groups == 0
    sources = random_sources(earlier.config, 7)
    options = DeviceOptions(max_rows=8)
    runners: list[ModelRunner] = [
        DeviceRunner(earlier, CPU, options, stream=open_on),
        DeviceRunner(now, CPU, options, stream=open_on),
        OnnxRunner(earlier, max_rows=8, intra_op_threads=1),
    ]
    steps = [greedy_steps(runner, sources, 12, top_k=top_k) for runner in runners]
    assert same_steps(steps[0], steps[1])
    assert same_steps(steps[0], steps[2])
    for runner in runners:
        runner.close()
