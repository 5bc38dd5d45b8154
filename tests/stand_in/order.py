"""Checks the order in which steps are launched and read, for `test_provider.py`.

Prints one JSON object. Kernels compute nothing, but write the number of their step, as late as a
GPU may do it. Code that reads too early, or reads another step's memory, gets another number.
"""

from __future__ import annotations

import json
import os
import random
import re
import sys
from collections import Counter, deque
from concurrent.futures import Future
from pathlib import Path
from typing import Any

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import numpy as np

from model.bundle.bundle import Bundle
from model.bundle.sessions import SessionSettings
from service.domain.plan import Adjustments, EncodeItem, RowCopy, StepOutput, StepPlan
from service.runtime.cuda.array import DeviceArray
from service.runtime.cuda.runner import DeviceOptions, DeviceRunner
from service.runtime.cuda.staging import Staging
from tests.stand_in.steering import StandIn

SOURCE = (5, 6, 7, 8, 3)
BATCH_SIZE = 8  # of all numbers of rows from 5 on
STEPS = 200


def plan(num_rows: int, new: list[int], chance: random.Random) -> StepPlan:
    """A greedy step in which the rows `new` join those that continue."""
    chained = np.ones(num_rows, np.bool_)
    chained[new] = False
    items = [EncodeItem((row,), SOURCE[chance.randrange(4) :]) for row in new]
    return StepPlan(
        (), items, np.full(num_rows, 2), np.zeros(num_rows, np.int32), top_k=1, chained=chained
    )


def numbered(runner: DeviceRunner, cuda: StandIn, num_rows: int) -> None:
    """Let rows join, and number the steps in the first row's token from now on."""
    chance = random.Random(0)
    runner.execute(plan(num_rows, list(range(num_rows)), chance))
    cuda.write_to(runner._model._step._bindings[BATCH_SIZE, 1].chosen.address)
    cuda.forget()


def in_flight(bundle: Bundle, captures: bool, depth: int) -> dict[str, Any]:
    """Calls for `depth` steps while the device is idle, and the steps' output."""
    cuda, chance = StandIn(), random.Random(1)
    runner = DeviceRunner(
        bundle, SessionSettings("cuda"), DeviceOptions(BATCH_SIZE, captures, depth)
    )
    numbered(runner, cuda, 6)
    cuda.hold()
    futures = [runner.submit(plan(6, [], chance)) for _ in range(depth)]
    launched = cuda.await_copies(depth)
    journal = cuda.journal()
    seen = [future.done() for future in futures]
    cuda.let_go()
    numbers = [int(future.result().top_ids[0, 0]) for future in futures]
    cuda.write_to(0)
    runner.close()
    return {
        "launched": launched, "journal": journal, "seen": seen, "numbers": numbers,
        "stream": runner_stream(cuda), "last": cuda.journal()[-1],
    }  # fmt: skip


def runner_stream(cuda: StandIn) -> str:
    """The number of the stream on which graphs or kernels ran last."""
    ran = [line for line in cuda.journal() if line.startswith(("graph on", "kernels on"))]
    return ran[-1].split()[-1] if ran else ""


def many(bundle: Bundle, captures: bool, depth: int) -> dict[str, Any]:
    """Steps of rows that join and leave, with as many in flight as allowed."""
    cuda, chance = StandIn(), random.Random(depth)
    runner = DeviceRunner(
        bundle, SessionSettings("cuda"), DeviceOptions(BATCH_SIZE, captures, depth)
    )
    numbered(runner, cuda, 6)
    sent = Counter[str]()
    upload = Staging.upload

    def counted(staging: Staging, *arrays: np.ndarray[Any, Any]) -> list[DeviceArray]:
        sent["copies"] += 1
        return upload(staging, *arrays)

    Staging.upload = counted  # type: ignore[assignment,method-assign]
    numbers: list[int] = []
    futures: deque[Future[StepOutput]] = deque()
    num_rows = 6
    for _ in range(STEPS):
        new: list[int] = []
        if chance.random() < 0.3:
            num_rows = chance.randint(5, BATCH_SIZE)
            new = sorted(chance.sample(range(num_rows), chance.randint(1, num_rows)))
        if len(futures) == depth:
            numbers.append(int(futures.popleft().result().top_ids[0, 0]))
        futures.append(runner.submit(plan(num_rows, new, chance)))
    numbers += [int(future.result().top_ids[0, 0]) for future in futures]
    Staging.upload = upload  # type: ignore[method-assign]
    journal = cuda.journal()
    cuda.write_to(0)
    runner.close()
    return {
        "numbers": numbers,
        # ONNX Runtime frees pinned memory of its own in a host function, if it waits for a run.
        "copies_of_others": sum("copy pinned" in line for line in journal) - sent["copies"],
        "freed_by_others": sum("host function" in line for line in journal),
        "stream": runner_stream(cuda),
        "calls": kinds_of(journal),
    }


def kinds_of(journal: list[str]) -> list[str]:
    """The kinds of calls, without the sizes of copies."""
    return sorted({re.sub(r"^(copy \D+) \d+", r"\1", line) for line in journal})


def others(bundle: Bundle, captures: bool) -> dict[str, Any]:
    """Calls for other kinds of steps, and for sizes without bindings."""
    cuda, chance = StandIn(), random.Random(3)
    runner = DeviceRunner(bundle, SessionSettings("cuda"), DeviceOptions(4 * BATCH_SIZE, captures))
    runner.execute(plan(6, list(range(6)), chance))
    cuda.forget()
    token_ids, positions, every = np.full(6, 2), np.ones(6, np.int32), np.arange(6)
    adjustments = Adjustments(every, every, np.ones(6, np.float32))
    for step in (
        plan(3, [], chance),
        StepPlan((), (), token_ids, positions, top_k=256),
        StepPlan((), (), token_ids, positions, adjustments, top_k=1),
        StepPlan([RowCopy(0, 1, 0, 1), RowCopy(1, 0, 0, 1)], (), token_ids, positions, top_k=8),
        StepPlan((), [EncodeItem((0,), SOURCE)], token_ids[:0], positions[:0]),
    ):
        runner.execute(step)
    found = kinds_of(cuda.journal())
    runner.close()
    return {"stream": runner_stream(cuda), "calls": found}


def synchronous(bundle: Bundle, captures: bool) -> dict[str, Any]:
    """The calls of synchronous steps with new sources."""
    cuda, chance = StandIn(), random.Random(4)
    runner = DeviceRunner(bundle, SessionSettings("cuda"), DeviceOptions(BATCH_SIZE, captures, 0))
    numbered(runner, cuda, 6)
    for new in ([0, 3], [], []):
        runner.execute(plan(6, new, chance))
    journal, stream = cuda.journal(), runner_stream(cuda)
    cuda.write_to(0)
    runner.close()
    return {"journal": journal, "stream": stream}


def spoilt(bundle: Bundle) -> dict[str, Any]:
    """A runner with captures that all fail."""
    cuda = StandIn()
    cuda.spoil_captures(True)
    runner = DeviceRunner(bundle, SessionSettings("cuda"), DeviceOptions(BATCH_SIZE))
    cuda.spoil_captures(False)
    captured = runner.num_captures
    numbered(runner, cuda, 6)
    number = int(runner.execute(plan(6, [], random.Random(2))).top_ids[0, 0])
    cuda.write_to(0)
    runner.close()
    return {"captured": captured, "numbers": [number]}


def main(path: str) -> None:
    """Check the bundle at `path`."""
    bundle = Bundle.load(Path(path))
    found: dict[str, Any] = {"spoilt": spoilt(bundle)}
    found |= {name: [] for name in ("in_flight", "many", "others", "synchronous")}
    for captures in (True, False):
        found["synchronous"].append(synchronous(bundle, captures))
        found["others"].append(others(bundle, captures))
        for depth in (1, 2, 3):
            given = {"captures": captures, "depth": depth}
            found["in_flight"].append(given | in_flight(bundle, captures, depth))
            found["many"].append(given | many(bundle, captures, depth))
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
