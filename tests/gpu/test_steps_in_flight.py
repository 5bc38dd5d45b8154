"""Several steps in flight on the device: their outputs, and that launching does not wait."""

from __future__ import annotations

import ctypes
import itertools
import random
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future

import numpy as np
import pytest

from service.domain.plan import EncodeItem, StepOutput, StepPlan
from service.runtime.cuda.in_flight_steps import InFlightStep, InFlightSteps
from service.runtime.cuda.runner import DeviceRunner

from .conftest import Case, device

STEPS = 200
ROWS = 6 if device() == "cpu" else 32


def scripted(case: Case) -> Iterator[StepPlan]:
    """Steps of rows that come, end, and are left by their clients.

    All of it is decided before anything runs, so that it does not depend on how late the host reads
    results. A row without a client still steps, until another request gets it or it is the last.
    """
    chance = random.Random(7)
    sources = itertools.cycle(case.sources)
    owned: list[bool] = []
    for _ in range(STEPS):
        if len(owned) < ROWS and chance.random() < 0.8:
            owned.append(False)
        new = [row for row, is_owned in enumerate(owned) if not is_owned]
        new = [row for row in new if chance.random() < 0.5]
        for row in range(len(owned)):
            owned[row] = row in new or (owned[row] and chance.random() > 0.03)
        while owned and not owned[-1]:
            owned.pop()
        if not owned:
            continue
        chained = np.ones(len(owned), np.bool_)
        chained[new] = False
        items = [EncodeItem((row,), next(sources)) for row in new]
        token_ids = np.full(len(owned), case.bundle.config.bos_id)
        positions = np.zeros(len(owned), np.int32)
        yield StepPlan((), items, token_ids, positions, top_k=1, chained=chained)


def carried_out(runner: DeviceRunner, case: Case) -> list[dict[int, int]]:
    """Tokens chosen at each step for rows that have not ended, with `runner.depth` in flight."""
    futures: deque[tuple[StepPlan, Future[StepOutput]]] = deque()
    found: list[dict[int, int]] = []
    ended: set[int] = set()

    def look() -> None:
        plan, future = futures.popleft()
        ended.difference_update(row for item in plan.encodes for row in item.rows)
        best = future.result().top_ids[:, 0].tolist()
        found.append({row: best[row] for row in range(len(best)) if row not in ended})
        ended.update(row for row, token in found[-1].items() if token == case.bundle.config.eos_id)

    for plan in scripted(case):
        if len(futures) == runner.depth:
            look()
        futures.append((plan, runner.submit(plan)))
    while futures:
        look()
    return found


@pytest.mark.parametrize("captures", [True, False])
def test_what_steps_bring_does_not_depend_on_how_late_the_host_looks(
    case: Case, captures: bool
) -> None:
    """The same steps of the same rows, in the same order: the same tokens."""
    found = []
    for depth in (1, 3):
        runner = case.runner(ROWS, captures=captures, depth=depth)
        found.append(carried_out(runner, case))
        runner.close()
    assert sum(map(len, found[0])) > STEPS
    for step, (one, other) in enumerate(zip(*found, strict=True)):
        assert one == other, f"step {step}"


@pytest.mark.parametrize("captures", [True, False])
def test_steps_are_launched_while_the_device_is_busy(
    case: Case, captures: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the stream blocked, three steps are launched: neither replay nor copy waits for it."""
    if device() == "cpu":
        pytest.skip("a CPU is never busy when a call has returned")
    runner = case.runner(4, captures=captures, depth=3)
    start = np.full(2, case.bundle.config.bos_id), np.zeros(2, np.int32)
    items = [EncodeItem((row,), case.sources[row]) for row in range(2)]
    go_on = StepPlan((), (), *start, top_k=1, chained=np.ones(2, np.bool_))

    def tokens(futures: list[Future[StepOutput]]) -> list[list[int]]:
        return [future.result().top_ids[:, 0].tolist() for future in futures]

    first = StepPlan((), items, *start, top_k=1)
    expected = tokens([runner.submit(plan) for plan in (first, go_on, go_on, go_on)])
    runner.execute(first)

    launched = threading.Semaphore(0)
    add = InFlightSteps.add

    def count(steps: InFlightSteps, step: InFlightStep) -> None:
        add(steps, step)
        launched.release()

    monkeypatch.setattr(InFlightSteps, "add", count)
    is_free = threading.Event()
    block = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: is_free.wait(120) and None)
    stream = runner._model.stream
    stream.use()
    runtime = stream._runtime._library
    assert not runtime.cudaLaunchHostFunc(ctypes.c_void_p(stream.address), block, None)
    futures = [runner.submit(go_on) for _ in range(3)]
    try:
        assert all(launched.acquire(timeout=60) for _ in futures)
        assert not any(future.done() for future in futures)
    finally:
        is_free.set()
    assert tokens(futures) == expected[1:]
    runner.close()
