"""Translators with a cache over a fake model, and a shared store in memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from model.bundle.tokenizer import Tokenizer
from service.cache.memory_store import MemoryStore
from service.cache.response_cache import ResponseCache
from service.domain.plan import RunnerLimits
from service.domain.requests import GenerationResult
from service.engine.engine import Engine, EngineConfig
from service.observability.metrics import ServerMetrics
from service.translation.translator import Translator
from tests.fake_runner import FakeRunner, echo


class DictStore:
    """A shared store: a dictionary that counts its round trips."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.asked: list[int] = []

    async def get(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        self.asked.append(len(keys))
        await asyncio.sleep(0)
        return [self.values.get(key) for key in keys]

    def put(self, key: bytes, value: bytes) -> None:
        self.values[key] = value

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass


@dataclass
class CachedSetup:
    """A translator with a cache, and what it runs on."""

    runner: FakeRunner
    engine: Engine
    translator: Translator
    cache: ResponseCache
    metrics: ServerMetrics
    results: list[GenerationResult] = field(default_factory=list)

    def looked_up(self) -> dict[str, int]:
        """Number of lookups by result, without those that are 0."""
        samples = {
            result: self.metrics.registry.get_sample_value(
                "dragoman_response_cache_lookups_total", {"model": "fake", "result": result}
            )
            for result in ("hit", "joined", "miss")
        }
        return {result: int(value) for result, value in samples.items() if value}

    @property
    def num_encoded(self) -> int:
        """Number of sentences that the model has read."""
        return sum(len(plan.encodes) for plan in self.runner.plans)


@asynccontextmanager
async def caching(
    tokenizer: Tokenizer,
    *,
    shared: DictStore | None = None,
    revision: str = "1",
    max_rows: int = 4,
    config: EngineConfig | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncIterator[CachedSetup]:
    """A started engine with a translator of its own cache."""
    metrics = ServerMetrics()
    cache = ResponseCache(MemoryStore(2**20), metrics, shared)
    sizes = RunnerLimits(max_rows, 64, 64, 4, tokenizer.vocab_size)
    runner = FakeRunner(sizes, echo)
    engine = Engine.of_runner(runner, config, clock=clock)
    await engine.start()
    of_model = cache.of_model("fake", revision, tokenizer.vocab_size)
    try:
        translator = Translator(engine, tokenizer, cache=of_model)
        yield CachedSetup(runner, engine, translator, cache, metrics)
    finally:
        runner.release()
        await engine.stop()
