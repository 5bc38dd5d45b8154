"""The engine in one process: tokens per second by the number of texts in flight."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench.gpu.host_stream import open_on
from bench.gpu.models import MeasuredModel
from bench.gpu.plan import GpuPlan
from bench.gpu.results import PointLog
from bench.submission import submit
from model.bundle.sessions import SessionSettings
from service.batching.events import Iteration
from service.domain.requests import FinishReason, GenerationRequest, SearchOptions
from service.engine.engine import Engine, EngineConfig
from service.engine.interface import EngineObserver
from service.runtime.cuda.runner import DeviceOptions, DeviceRunner

_MAX_ROWS = 512


@dataclass
class _Work(EngineObserver):
    """Counts steps, rows and seconds of the device."""

    seconds: float = 0.0
    steps: int = 0
    rows: int = 0

    def on_iterations(self, iterations: Sequence[Iteration]) -> None:
        for iteration in iterations:
            if iteration.num_rows or iteration.num_encodes:
                self.seconds += iteration.encode_seconds + iteration.step_seconds
                self.steps += 1
                self.rows += iteration.num_rows


@dataclass
class _Count:
    texts: int = 0
    tokens: int = 0  # EOS included: it takes a step, too


def measure(model: MeasuredModel, device: str, plan: GpuPlan, results: PointLog) -> None:
    """Measure greedy and beam search with each number of texts in flight, at depths 2 and 1."""
    for beam_size in plan.beams:
        for concurrency in plan.concurrency:
            for depth in (2, 1) if beam_size == 1 else (2,):
                point = {
                    "model": model.name, "beam": beam_size, "concurrency": concurrency,
                    "depth": depth,
                }  # fmt: skip
                if beam_size * concurrency <= 2 * _MAX_ROWS and results.wants(**point):
                    found = asyncio.run(
                        _measure(model, device, plan, beam_size, concurrency, depth)
                    )
                    results.add(**point, **found)


async def _measure(
    model: MeasuredModel, device: str, plan: GpuPlan, beam_size: int, concurrency: int, depth: int
) -> dict[str, float]:
    max_rows = min(_MAX_ROWS, beam_size * concurrency)
    work = _Work()
    runner = DeviceRunner(
        model.bundle, SessionSettings(device), DeviceOptions(max_rows, depth=depth), stream=open_on
    )
    config = EngineConfig(max_waiting=4 * concurrency + 16, encode_token_budget=4096)
    engine = Engine.of_runner(runner, config, work)
    await engine.start()
    sources = itertools.cycle(model.sources())
    options = SearchOptions(beam_size=beam_size)
    count = _Count()
    end = time.monotonic() + min(1.0, plan.seconds)

    async def user() -> None:
        while time.monotonic() < end:
            result = await submit(engine, GenerationRequest(next(sources), options)).result()
            if result.error is not None:
                raise result.error
            count.texts += 1
            count.tokens += len(result.token_ids) + (result.finish_reason is FinishReason.EOS)

    await asyncio.gather(*(user() for _ in range(concurrency)))  # to warm up
    count, before = _Count(), (work.seconds, work.steps, work.rows)
    start = time.monotonic()
    end = start + plan.seconds
    await asyncio.gather(*(user() for _ in range(concurrency)))
    seconds = time.monotonic() - start
    await engine.stop(60.0)
    return {
        "seconds": seconds,
        "texts_per_second": count.texts / seconds,
        "tokens_per_second": count.tokens / seconds,
        "mean_rows": (work.rows - before[2]) / max(1, work.steps - before[1]),
        "device_share": (work.seconds - before[0]) / seconds,
    }
