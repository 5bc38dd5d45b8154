"""The decoder step by itself: microseconds by batch size, with CUDA graphs and without."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.gpu.host_stream import open_on
from bench.gpu.models import MeasuredModel
from bench.gpu.plan import GpuPlan
from bench.gpu.results import PointLog
from model.bundle.sessions import SessionSettings
from service.domain.plan import EncodeItem, StepOutput, StepPlan
from service.runtime.cuda.runner import DeviceOptions, DeviceRunner

_TOP_K = {1: "greedy", 8: "beam 4"}


def measure(model: MeasuredModel, device: str, plan: GpuPlan, results: PointLog) -> None:
    """Time steps at every batch size, in a runner with memory for the largest."""
    sources = model.sources()
    for captures in (True, False):
        wanted = [
            (rows, k)
            for k in _TOP_K
            for rows in plan.rows
            if results.wants(model=model.name, rows=rows, k=k, graphs=captures)
        ]
        if not wanted:
            continue
        started = time.perf_counter()
        options = DeviceOptions(max(plan.rows), captures)
        runner = DeviceRunner(model.bundle, SessionSettings(device), options, stream=open_on)
        start_seconds = time.perf_counter() - started
        for rows, k in wanted:
            point = _time_steps(runner, sources, rows, k, plan)
            results.add(
                model=model.name, rows=rows, k=k, graphs=captures, search=_TOP_K[k],
                captured=runner.num_captures, start_seconds=start_seconds, **point,
            )  # fmt: skip
        runner.close()


def _time_steps(
    runner: DeviceRunner, sources: list[tuple[int, ...]], rows: int, k: int, plan: GpuPlan
) -> dict[str, float]:
    steps = min(plan.length, runner.limits.max_target_positions)
    latencies: list[float] = []
    walls: list[float] = []
    encodes: list[float] = []
    while len(latencies) < plan.step_repeats:
        first = runner.execute(_first(sources, rows, k))
        encodes.append(first.encode_seconds)
        # One after another: what a step takes when the host waits for each.
        chained = [_chained(rows, position, k) for position in range(1, steps)]
        waited = [runner.execute(one) for one in chained]
        latencies += [output.step_seconds for output in waited[1:]]
        # All at once: what it takes when the device never waits for the host.
        runner.execute(_first(sources, rows, k))
        start = time.perf_counter()
        futures = [runner.submit(one) for one in chained]
        outputs: list[StepOutput] = [future.result() for future in futures]
        walls.append((time.perf_counter() - start) / len(outputs))
    return {
        "step_us": 1e6 * statistics.median(latencies),
        "step_us_p90": 1e6 * float(np.percentile(latencies, 90)),
        "pipelined_us": 1e6 * statistics.median(walls),
        "encode_us": 1e6 * statistics.median(encodes),
    }


def _first(sources: list[tuple[int, ...]], rows: int, k: int) -> StepPlan:
    items = [EncodeItem((row,), sources[row % len(sources)]) for row in range(rows)]
    return StepPlan((), items, np.full(rows, 2, np.int64), np.zeros(rows, np.int32), top_k=k)


def _chained(rows: int, position: int, k: int) -> StepPlan:
    positions = np.full(rows, position, np.int32)
    token_ids = np.zeros(rows, np.int64)
    return StepPlan((), (), token_ids, positions, top_k=k, chained=np.ones(rows, np.bool_))


def profile(model: MeasuredModel, device: str, plan: GpuPlan, results: PointLog) -> None:
    """The time of each operator of a step without CUDA graphs, from ONNX Runtime's profiler.

    These are times of launching, not of computing: long ones show operators that wait for the host.
    """
    for rows in (min(plan.rows), max(plan.rows)):
        if not results.wants(model=model.name, rows=rows):
            continue
        with tempfile.TemporaryDirectory() as directory:
            results.add(model=model.name, rows=rows, **_profile(model, device, rows, directory))


def _profile(model: MeasuredModel, device: str, rows: int, directory: str) -> dict[str, Any]:
    sources = model.sources()
    settings = SessionSettings(device, profile_prefix=str(Path(directory) / "profile"))
    options = DeviceOptions(rows, captures=False)
    runner = DeviceRunner(model.bundle, settings, options, stream=open_on)
    runner.execute(_first(sources, rows, 1))
    for position in range(1, 4):
        runner.execute(_chained(rows, position, 1))
    runner.close()
    return {"operators": _operators(Path(directory))}


def _operators(directory: Path) -> dict[str, dict[str, float]]:
    """Calls and microseconds by operator and provider, of all sessions together."""
    totals: dict[str, dict[str, float]] = {}
    for file in directory.glob("profile*.json"):
        for event in json.loads(file.read_text(encoding="utf-8") or "[]"):
            about = event.get("args", {})
            if event.get("cat") != "Node" or "op_name" not in about:
                continue
            provider = str(about.get("provider", "")).removesuffix("ExecutionProvider")
            entry = totals.setdefault(f"{about['op_name']} ({provider})", {"calls": 0, "us": 0.0})
            entry["calls"] += 1
            entry["us"] += event.get("dur", 0)
    return totals
