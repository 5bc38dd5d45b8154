"""The engine called in process, without a server: `python -m bench.engine.in_process`.

Two measurements: its decoder steps beside a bare loop of the same graph, and a closed loop of users
that send it the benchmark's texts.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from bench.submission import submit, submit_many

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import typer

from bench.engine.bare_loop import BareLoop
from bench.load.source import TextOrder, read_texts
from bench.speed_model import length_word, word
from model.bundle.bundle import Bundle
from model.bundle.sessions import SessionSettings
from service.domain.plan import (
    EncodedBatch,
    LaneRunners,
    ModelRunner,
    RunnerLimits,
    StepOutput,
    StepPlan,
)
from service.domain.requests import GenerationRequest
from service.engine.engine import Engine, EngineConfig
from service.engine.metrics import ModelMetrics
from service.observability.metrics import ServerMetrics
from service.runtime.cpu.lanes import OnnxLanes, cpu_runner
from service.runtime.cpu.runner import OnnxRunner
from service.worker.packed_weights import folder_of_packed_weights

ROWS = (1, 8, 64)
_TARGET = 100
_SOURCE_WORDS = 23


class TimedRun(NamedTuple):
    """A step or an encode. Times are those of `time.perf_counter`.

    Attributes:
        size: number of its rows or sources.
        encodes: whether it encoded sources.
    """

    start: float
    end: float
    size: int
    encodes: bool


class StepClock:
    """Wraps a runner and records its steps.

    Args:
        runner: the wrapped runner.
        steps: the list to record into; None for a new one.
    """

    def __init__(self, runner: ModelRunner, steps: list[TimedRun] | None = None) -> None:
        self._runner = runner
        self.steps = [] if steps is None else steps

    @property
    def limits(self) -> RunnerLimits:
        """Limits of the wrapped runner."""
        return self._runner.limits

    def execute(self, plan: StepPlan) -> StepOutput:
        """See the wrapped runner."""
        start = time.perf_counter()
        output = self._runner.execute(plan)
        end = time.perf_counter()
        self.steps.append(TimedRun(start, end, plan.num_rows, bool(plan.encodes)))
        return output

    def follow_up(self) -> StepOutput:
        """See the wrapped runner."""
        start = time.perf_counter()
        output = self._runner.follow_up()
        self.steps.append(TimedRun(start, time.perf_counter(), len(output.top_ids), False))
        return output

    def close(self) -> None:
        """See the wrapped runner."""
        self._runner.close()


class LaneClocks:
    """Step clocks of a runner with lanes. Both runners of a lane record into one list.

    Attributes:
        clocks: the lanes' clocks.
        encodes: the encodes before requests join.
    """

    def __init__(self, runner: OnnxLanes) -> None:
        self._runner = runner
        self.encodes: list[TimedRun] = []
        self.clocks = [StepClock(lane.alone) for lane in runner.lanes]
        self._lanes = [
            LaneRunners(clock, StepClock(lane.beside, clock.steps))
            for clock, lane in zip(self.clocks, runner.lanes, strict=True)
        ]

    @property
    def limits(self) -> RunnerLimits:
        """Limits of the wrapped runner."""
        return self._runner.limits

    @property
    def lanes(self) -> Sequence[LaneRunners]:
        """Lanes of the wrapped runner, with clocks."""
        return self._lanes

    def encode(self, sources: Sequence[tuple[int, ...]]) -> EncodedBatch:
        """See the wrapped runner."""
        start = time.perf_counter()
        batch = self._runner.encode(sources)
        self.encodes.append(TimedRun(start, time.perf_counter(), len(sources), True))
        return batch

    def close(self) -> None:
        """See the wrapped runner."""
        self._runner.close()


def plain_steps(clocks: Sequence[StepClock], num_rows: int) -> tuple[int, float]:
    """The number of steps of all `num_rows` rows without an encode, and their seconds.

    Lanes step in parallel, each with its share of the rows, so their times are averaged.
    """
    counts, seconds = [], []
    used = [clock for clock in clocks if clock.steps]
    for clock in used:
        widest = max(step.size for step in clock.steps)
        times = [step.end for step in clock.steps if step.size == widest and not step.encodes]
        counts.append(len(times) - 1)
        seconds.append((times[-1] - times[0]) / (len(times) - 1))
    assert sum(max(step.size for step in clock.steps) for clock in used) == num_rows
    count = min(counts)
    return count, count * sum(seconds) / len(seconds)


@dataclass(frozen=True)
class ClosedLoop:
    """A closed loop: each user sends a request when its last one was answered.

    Attributes:
        users: number of users.
        seconds, warmup: duration of the measurement and of the warm-up before it.
    """

    users: int
    seconds: float
    warmup: float


def served_runner(bundle: Bundle, users: int) -> OnnxRunner | OnnxLanes:
    """The runner of `dragoman serve`, with rows for at least this number of users."""
    with folder_of_packed_weights(bundle) as packed:
        return cpu_runner(bundle, max(64, users), SessionSettings(packed=packed))


async def measure(
    bundle: Bundle, texts: list[str], loop: ClosedLoop, blocks: int
) -> dict[str, Any]:
    """Both measurements, as plain JSON values.

    Args:
        bundle: the speed model's bundle.
        texts: texts of the closed loop.
        loop: the closed loop.
        blocks: number of blocks of steps for each number of rows; the engine and the bare loop take
            turns.
    """
    runner = served_runner(bundle, loop.users)
    timed = LaneClocks(runner) if isinstance(runner, OnnxLanes) else StepClock(runner)
    clocks = timed.clocks if isinstance(timed, LaneClocks) else [timed]
    config = EngineConfig(
        bos_id=bundle.config.bos_id,
        eos_id=bundle.config.eos_id,
        # Large enough to admit the rows of a block at once. Users of the closed loop need less.
        encode_token_budget=max(ROWS) * (_SOURCE_WORDS + 2),
    )
    engine = Engine.of_runner(timed, config, ModelMetrics(ServerMetrics(), "engine"))
    await engine.start()
    try:
        steps = {
            str(rows): await _steps(engine, clocks, bundle, rows, blocks)
            for rows in ROWS
            if rows <= runner.limits.max_rows
        }
        closed = await _closed_loop(engine, bundle, texts, loop)
    finally:
        await engine.stop()
    return {"steps": steps, "closed": closed, "bundle": bundle.path.name}


async def _steps(
    engine: Engine, clocks: Sequence[StepClock], bundle: Bundle, num_rows: int, blocks: int
) -> dict[str, list[dict[str, Any]]]:
    """Steps of the engine and of the bare loop at the same rows and positions."""
    text = " ".join([length_word(_TARGET), *(word(number) for number in range(_SOURCE_WORDS))])
    source_ids = (*bundle.tokenizer().encode(text), bundle.config.eos_id)
    limits = engine.limits
    bare = BareLoop(
        bundle, num_rows, len(source_ids), limits.max_source_positions, limits.max_target_positions
    )
    made: dict[str, list[dict[str, Any]]] = {"engine": [], "bare": []}
    for block in range(blocks + 1):
        for clock in clocks:
            clock.steps.clear()
        requests = [GenerationRequest(source_ids)] * num_rows
        results = [generation.result() for generation in submit_many(engine, requests)]
        assert len((await asyncio.gather(*results))[0].token_ids) == _TARGET, "lengths are forced"
        count, seconds = plain_steps(clocks, num_rows)
        # Positions end where the engine's end: a later step attends to more.
        positions = range(_TARGET + 1 - count, _TARGET + 1)
        bare_seconds = await asyncio.to_thread(bare.run, positions)
        if block:  # the first block warms up
            made["engine"].append({"steps": count, "seconds": seconds})
            made["bare"].append({"steps": count, "seconds": bare_seconds})
    return made


async def _closed_loop(
    engine: Engine, bundle: Bundle, texts: list[str], loop: ClosedLoop
) -> dict[str, Any]:
    """Run users as `dragoman load` does; the tokens generated and the CPU time spent."""
    tokenizer = bundle.tokenizer()
    sources = [(*tokenizer.encode(text), bundle.config.eos_id) for text in texts]
    order = TextOrder(len(texts), 1, seed=0)
    numbers = itertools.count()
    users, seconds, warmup = loop.users, loop.seconds, loop.warmup
    done: list[tuple[float, int]] = []
    started = time.monotonic()

    async def user() -> None:
        while time.monotonic() - started < warmup + seconds:
            (text,) = order.of_request(next(numbers))
            result = await submit(engine, GenerationRequest(sources[text])).result()
            done.append((time.monotonic() - started, len(result.token_ids)))

    async def spent() -> tuple[float, float]:
        await asyncio.sleep(warmup)
        before = time.process_time(), time.monotonic()
        await asyncio.sleep(seconds)
        return time.process_time() - before[0], time.monotonic() - before[1]

    watch = asyncio.create_task(spent())
    await asyncio.gather(*(user() for _ in range(users)))
    cpu_seconds, measured = await watch
    tokens = sum(count for when, count in done if warmup <= when < warmup + measured)
    return {"users": users, "tokens": tokens, "cpu_seconds": cpu_seconds, "seconds": measured}


def main(
    bundle: Annotated[Path, typer.Option(help="A bundle of the speed model.")],
    texts: Annotated[Path, typer.Option(help="Texts for it, one a line.")],
    output: Annotated[Path, typer.Option(help="A JSON file for the results.")],
    users: Annotated[int, typer.Option(help="Users of the closed loop.")] = 64,
    seconds: Annotated[float, typer.Option(help="Duration of the closed loop.")] = 10.0,
    warmup: Annotated[float, typer.Option(help="Duration of its warm-up.")] = 3.0,
    blocks: Annotated[int, typer.Option(help="Blocks of 100 steps, for each number of rows.")] = 2,
) -> None:
    """Measure, and write the result to a file."""
    loaded = Bundle.load(bundle)
    loop = ClosedLoop(users, seconds, warmup)
    found = asyncio.run(measure(loaded, read_texts(texts), loop, blocks))
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = output.with_suffix(".partial")
    partial.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    partial.replace(output)


if __name__ == "__main__":
    typer.run(main)
