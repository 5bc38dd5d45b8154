"""An engine on fake lanes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from bench.submission import submit_many
from service.domain.plan import RunnerLimits
from service.engine.engine import Engine, EngineConfig
from service.engine.generation import Generation
from tests.fake_lanes import FakeLanes
from tests.fake_runner import Script, babble
from tests.fake_scorer import FakeScorer
from tests.unit.service.engine.served_engine import Recorder, request

LIMITS = RunnerLimits(
    max_rows=4, max_source_positions=32, max_target_positions=40, top_k=2, vocab_size=512
)


@asynccontextmanager
async def serving(
    runner: FakeLanes,
    turn_rows: int = 1,
    recorder: Recorder | None = None,
    scorer: FakeScorer | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncIterator[Engine]:
    config = EngineConfig(turn_rows_per_lane=turn_rows)
    engine = Engine.of_runner(runner, config, recorder, scorer or FakeScorer(), clock=clock)
    await engine.start()
    try:
        yield engine
    finally:
        runner.release()
        await engine.stop()
        assert runner.closed
        assert not engine.has_failed


def held_lanes(num_lanes: int = 2, script: Script = babble) -> FakeLanes:
    """Lanes that make no step until the test allows it."""
    runner = FakeLanes(LIMITS, num_lanes, script)
    runner.hold()
    return runner


async def all_held(runner: FakeLanes) -> None:
    """Wait until every lane has a step in flight that does not end."""
    for fake in runner.runners:
        await asyncio.to_thread(fake.wait_until_blocked)


async def all_busy(engine: Engine, runner: FakeLanes) -> list[Generation]:
    """Eight requests that fill both lanes, and in each lane a step that does not end."""
    generations = submit_many(engine, [request(10 + n) for n in range(8)])
    await all_held(runner)
    return generations
