"""Starts every graph and every kind of step, for `test_provider.py`.

Prints one JSON object. Kernels do nothing: only placement, allocations and calls are checked.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import numpy as np
import onnxruntime as ort

from model.bundle.bundle import Bundle
from model.bundle.sessions import Device, SessionSettings, use_device
from service.domain.plan import Adjustments, EncodeItem, RowCopy, ScoreItem, StepPlan
from service.errors import StartupError
from service.runtime.cuda.runner import DeviceOptions, DeviceRunner
from service.runtime.scoring import OnnxScorer

SOURCE = (5, 6, 7, 8, 3)
ROWS = 6


def on_the_cpu(bundle: Bundle) -> dict[str, dict[str, int]]:
    """Operators that the CUDA provider leaves to the CPU, by graph."""
    use_device(Device("cuda"))
    found = {}
    for file in sorted(bundle.path.glob("*.onnx")):
        options = ort.SessionOptions()
        options.log_severity_level = 3
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        session = ort.InferenceSession(
            file, options, providers=["CUDAExecutionProvider", "CPUExecutionProvider"],
            disabled_optimizers=["SkipLayerNormFusion"],
        )  # fmt: skip
        assert session.get_providers()[0] == "CUDAExecutionProvider"
        found[file.stem] = Counter(
            node.op_type
            for part in session.get_provider_graph_assignment_info()
            if part.ep_name == "CPUExecutionProvider"
            for node in part.get_nodes()
        )
    return {name: dict(operators) for name, operators in found.items()}


def steps(bundle: Bundle, captures: bool) -> int:
    """Run steps of all kinds; returns the number of captured graphs."""
    runner = DeviceRunner(bundle, SessionSettings("cuda"), DeviceOptions(None, captures))
    items = [EncodeItem((row,), SOURCE) for row in range(ROWS)]
    token_ids, positions = np.full(ROWS, 2), np.zeros(ROWS, np.int32)
    chained = np.ones(ROWS, np.bool_)
    adjustments = Adjustments(np.arange(ROWS), np.arange(ROWS), np.ones(ROWS, np.float32))
    swap = [RowCopy(0, 1, 0, 1), RowCopy(1, 0, 0, 1)]
    for plan in (
        StepPlan((), items, token_ids, positions, top_k=1),
        StepPlan((), (), token_ids, positions, top_k=1, chained=chained),
        StepPlan(swap, (), token_ids, positions + 1, top_k=8),
        StepPlan((), (), token_ids, positions + 2, adjustments, top_k=1),
        StepPlan((), (), token_ids, positions + 3, top_k=256),
    ):
        k = min(plan.top_k or 0, bundle.config.vocab_size)
        assert runner.execute(plan).top_ids.shape == (ROWS, k)
    assert runner.limits.max_rows == 512
    assert runner.arena_bytes > 0
    captured = runner.num_captures
    if bundle.scoring_path:
        scorer = OnnxScorer(bundle, SessionSettings("cuda"), runner.encoder_session)
        scorer.prepare()
        [score] = scorer.score([ScoreItem(SOURCE, SOURCE)])
        assert score.log_probabilities.shape == (len(SOURCE),)
    runner.close()
    return captured


def too_little_memory(bundle: Bundle) -> str:
    """The error message for more rows than fit."""
    try:
        DeviceRunner(bundle, SessionSettings("cuda"), DeviceOptions(10**9))
    except StartupError as exc:
        return str(exc)
    return ""


def main(paths: list[str]) -> None:
    """Check the bundles at `paths`."""
    found: list[dict[str, Any]] = []
    for path in paths:
        bundle = Bundle.load(Path(path))
        found.append(
            {
                "on_the_cpu": on_the_cpu(bundle),
                "captured": steps(bundle, captures=True),
                "captured_without": steps(bundle, captures=False),
                "too_little": too_little_memory(bundle),
            }
        )
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
