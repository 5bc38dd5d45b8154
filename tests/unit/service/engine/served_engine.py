"""An engine on a fake runner, for the tests of this folder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from model.bundle.limits import default_max_new_tokens
from service.batching.events import Iteration
from service.domain.plan import RunnerLimits
from service.domain.requests import (
    FinishReason,
    GenerationRequest,
    GenerationResult,
)
from service.engine.engine import Engine, EngineConfig
from service.engine.generation import Generation
from service.engine.interface import EngineObserver
from tests.clock import Clock
from tests.fake_runner import FakeRunner, Script, babble

EOS = 3
LIMITS = RunnerLimits(
    max_rows=4, max_source_positions=32, max_target_positions=40, top_k=2, vocab_size=512
)


class Recorder(EngineObserver):
    """Records the events."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.encodes = 0
        self.most_waiting = 0
        self.queue: list[tuple[int, int]] = []
        self.held_back = [0]
        self.admitted: list[int] = []
        self.first_tokens: list[float] = []
        self.finished: list[FinishReason] = []

    def on_iterations(self, iterations: Sequence[Iteration]) -> None:
        for iteration in iterations:
            if iteration.num_rows or iteration.num_encodes:
                self.rows.append(iteration.num_stepping)
                self.encodes += iteration.num_encodes
            self.most_waiting = max(self.most_waiting, iteration.num_waiting)
            self.queue.append((iteration.num_waiting, iteration.num_running))
            self.admitted += iteration.admitted

    def on_held_back(self, calls: int) -> None:
        self.held_back.append(calls)

    def on_finished(
        self,
        result: GenerationResult,
        request: GenerationRequest,
        trace_ids: Mapping[str, str] | None = None,
    ) -> None:
        self.finished.append(result.finish_reason)
        if result.first_token_seconds is not None:
            self.first_tokens.append(result.first_token_seconds)


@asynccontextmanager
async def serving(
    runner: FakeRunner,
    config: EngineConfig | None = None,
    observer: EngineObserver | None = None,
    clock: Callable[[], float] | None = None,
) -> AsyncIterator[Engine]:
    engine = Engine.of_runner(runner, config, observer, clock=clock or Clock())
    await engine.start()
    try:
        yield engine
    finally:
        runner.release()
        await engine.stop()
        assert runner.closed


def request(*source_ids: int, **fields: Any) -> GenerationRequest:
    return GenerationRequest((*source_ids, EOS), **fields)


def endless(source_ids: tuple[int, ...]) -> list[int]:
    return [10 + position for position in range(100)]


async def held(runner: FakeRunner) -> None:
    """Wait until a step is in flight that ends only when the test allows it."""
    await asyncio.to_thread(runner.wait_until_blocked)


async def settled() -> None:
    """Let tasks run until they wait, so that events and commands reach the other side."""
    for _ in range(20):
        await asyncio.sleep(0)


async def all_end(generations: Iterable[Generation], reason: FinishReason) -> None:
    """Wait for results, which must end for this reason."""
    for generation in generations:
        assert (await generation.result()).finish_reason is reason


def held_runner(script: Script = babble) -> FakeRunner:
    """A runner that makes no step until the test allows it."""
    runner = FakeRunner(LIMITS, script)
    runner.hold()
    return runner


def check_prediction(
    runner: FakeRunner, asked: GenerationRequest, result: GenerationResult
) -> None:
    length = asked.options.max_new_tokens or default_max_new_tokens(
        len(asked.source_ids), runner.limits.max_target_positions
    )
    predicted = runner.predict(asked.source_ids, length)
    assert (result.token_ids, result.finish_reason) == predicted


async def check_predictions(runner: FakeRunner, generations: Iterable[Generation]) -> None:
    """Check the results of all."""
    for generation in generations:
        check_prediction(runner, generation.request, await generation.result())
