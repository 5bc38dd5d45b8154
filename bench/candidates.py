"""The time of a decoder step by the number of candidates that it returns for each row.

    python -m bench.candidates [--work-dir DIR] [--bundle DIR]

All rows of a step return as many candidates as the most demanding row needs, so one request that
samples slows down its neighbours. Times are CPU time of the process, on one thread. Numbers of
candidates alternate, so that other load on the machine affects all of them alike.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import numpy as np

from bench.suite.artifacts import prepare_speed_model
from model.bundle.bundle import Bundle
from service.domain.plan import EncodeItem, StepPlan
from service.runtime.cpu.runner import OnnxRunner

COUNTS = (1, 2, 8, 16, 64, 128, 256)
NUM_ROWS = 64
NUM_TURNS = 12
STEPS_A_TURN = 2


def measure(runner: OnnxRunner) -> dict[int, float]:
    """Median CPU seconds of a step of 64 rows, by its number of candidates."""
    draw = np.random.default_rng(0)
    sources = [EncodeItem((row,), (*draw.integers(10, 300, 24), 3)) for row in range(NUM_ROWS)]
    token_ids = draw.integers(10, 300, NUM_ROWS)
    seconds: dict[int, list[float]] = {count: [] for count in COUNTS}
    runner.execute(StepPlan((), sources, token_ids, np.zeros(NUM_ROWS, np.int32)))
    position = 0
    for turn in range(NUM_TURNS):
        for count in COUNTS:
            for _ in range(STEPS_A_TURN):
                position = 1 + position % 60
                positions = np.full(NUM_ROWS, position, np.int32)
                started = time.process_time()
                runner.execute(StepPlan((), (), token_ids, positions, top_k=count))
                if turn:  # the first one binds
                    seconds[count].append(time.process_time() - started)
    return {count: float(np.median(times)) for count, times in seconds.items()}


def main() -> None:
    """Print a line for each number of candidates."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work-dir", type=Path, default=Path("bench-work"))
    parser.add_argument("--bundle", type=Path, help="in place of the speed model")
    arguments = parser.parse_args()
    path = arguments.bundle or prepare_speed_model(arguments.work_dir, "int8").bundle
    runner = OnnxRunner(Bundle.load(path), max_rows=NUM_ROWS, intra_op_threads=1)
    seconds = measure(runner)
    print(f"{NUM_ROWS} rows, one thread, {path}")
    print("candidates  CPU ms a step  against 1")
    for count, time_ in seconds.items():
        print(f"{count:>10}  {time_ * 1e3:>13.2f}  {time_ / seconds[1]:>9.2f}")


if __name__ == "__main__":
    main()
