"""Measures the GPU memory that models take under traffic, for `test_memory.py`.

The models of all bundles are open at once and share the GPU. Prints one JSON object.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np

from model.bundle.bundle import Bundle
from model.bundle.sessions import SessionSettings
from service.domain.plan import Adjustments, EncodeItem, RowCopy, ScoreItem, StepPlan
from service.runtime.cuda.encoder import ENCODE_TOKEN_BUDGET
from service.runtime.cuda.memory import DeviceMemory, read_memory
from service.runtime.cuda.runner import DeviceOptions, DeviceRunner
from service.runtime.scoring import OnnxScorer

NUM_ENCODES = 60
NOTHING = np.zeros(0, np.int64), np.zeros(0, np.int32)


def memory() -> DeviceMemory:
    """The memory of the GPU."""
    found = read_memory(0)
    assert found is not None
    return found


def sources(chance: random.Random, longest: int, rows: int) -> list[EncodeItem]:
    """Sources for one iteration's encode: short, long, or of all lengths."""
    low, high = chance.choice(
        [(2, 30), (20, 60), (60, longest), (longest // 2, longest), (2, longest)]
    )
    items: list[EncodeItem] = []
    room = ENCODE_TOKEN_BUDGET * chance.choice([1.0, 1.0, chance.random()])
    while room > 0 and len(items) < rows:
        length = chance.randint(low, high)
        items.append(EncodeItem((len(items),), (*[5] * (length - 1), 3)))
        room -= length
    return items


def traffic(bundle: Bundle, runner: DeviceRunner) -> None:
    """Run encodes of all shapes, copies of all rows in a cycle, all kinds of steps, and scores."""
    chance, rows = random.Random(0), runner.limits.max_rows
    longest, most = bundle.max_source_positions, bundle.max_target_positions
    for _ in range(NUM_ENCODES):
        runner.execute(StepPlan((), sources(chance, longest, rows), *NOTHING))
    everybody = StepPlan((), [EncodeItem((row,), (*[5] * 9, 3)) for row in range(rows)], *NOTHING)
    runner.execute(everybody)
    cycle = [RowCopy(row, (row + 1) % rows, 0, most, cross=True) for row in range(rows)]
    start = np.full(rows, 2), np.full(rows, 1, np.int32)
    every = np.arange(rows)
    adjustments = Adjustments(every, every, np.ones(rows, np.float32))
    for k in (1, 8, 16, 20, 200, 256):
        runner.execute(StepPlan((), (), *start, top_k=k))
        runner.execute(StepPlan((), (), *start, adjustments, top_k=k))
    runner.execute(StepPlan(cycle, (), *start, top_k=8))
    scorer = OnnxScorer(bundle, SessionSettings("cuda"), runner.encoder_session)
    scorer.prepare()
    scorer.score([ScoreItem((*[5] * (longest - 1), 3), (*[6] * (most - 1), 3))])


def main(paths: list[str]) -> None:
    """Open a runner for each bundle, give each its traffic, and close them."""
    bundles = [Bundle.load(Path(path)) for path in paths]
    before = memory()
    runners: list[DeviceRunner] = []
    found: list[dict[str, Any]] = []
    free = before.free
    options = DeviceOptions(num_models=len(bundles))
    for bundle in bundles:
        runners.append(DeviceRunner(bundle, SessionSettings("cuda"), options))
        found.append({"rows": runners[-1].limits.max_rows, "opened": free - memory().free})
        free = memory().free
    for bundle, runner, one in zip(bundles, runners, found, strict=True):
        traffic(bundle, runner)
        one["grown"] = free - memory().free
        free = memory().free
    for runner in runners:
        runner.close()
    print(json.dumps({"total": before.total, "models": found}))


if __name__ == "__main__":
    main(sys.argv[1:])
