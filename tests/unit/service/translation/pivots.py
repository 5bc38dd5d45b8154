"""Two fake models in sequence, through a third language."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from model.bundle.tokenizer import Tokenizer
from service.domain.plan import RunnerLimits
from service.domain.requests import (
    GenerationRequest,
    GenerationResult,
)
from service.engine.engine import Engine, EngineConfig
from service.engine.interface import EngineObserver
from service.translation.options import TranslateOptions
from service.translation.pivot import PivotTranslator
from service.translation.results import TextResult
from service.translation.translator import StreamDelta, Translator
from tests.fake_runner import FakeRunner, Script, echo

TEXT = "A dog runs.  It barks.\n\n- Two men.\n"


class Seen(EngineObserver):
    """Keeps the requests that ended."""

    def __init__(self) -> None:
        self.requests: list[GenerationRequest] = []

    def on_finished(
        self,
        result: GenerationResult,
        request: GenerationRequest,
        trace_ids: Mapping[str, str] | None = None,
    ) -> None:
        self.requests.append(request)


@dataclass
class Leg:
    runner: FakeRunner
    engine: Engine
    translator: Translator
    seen: Seen


class Pivot:
    """A pivot translator, for a request's options without defaults of a model."""

    def __init__(self, first: Translator, second: Translator) -> None:
        self._legs = first, second

    def _translator(self, options: TranslateOptions) -> PivotTranslator:
        return PivotTranslator(*self._legs, "en", options)

    async def translate(
        self, texts: list[str], options: TranslateOptions | None = None, **shared: Any
    ) -> list[TextResult]:
        options = options or TranslateOptions()
        return await self._translator(options).translate(texts, options, **shared)

    def stream(
        self, text: str, options: TranslateOptions | None = None
    ) -> AsyncGenerator[StreamDelta | TextResult, None]:
        options = options or TranslateOptions()
        return self._translator(options).stream(text, options)


@dataclass
class Legs:
    first: Leg
    second: Leg
    translator: Pivot


@asynccontextmanager
async def leg(
    tokenizer: Tokenizer,
    script: Script = echo,
    *,
    max_positions: int = 64,
    max_rows: int = 4,
    config: EngineConfig | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncIterator[Leg]:
    sizes = RunnerLimits(max_rows, max_positions, max_positions, 4, tokenizer.vocab_size)
    runner, seen = FakeRunner(sizes, script), Seen()
    engine = Engine.of_runner(runner, config, seen, clock=clock)
    await engine.start()
    try:
        yield Leg(runner, engine, Translator(engine, tokenizer), seen)
    finally:
        runner.release()
        await engine.stop()


@asynccontextmanager
async def pivoting(
    tokenizer: Tokenizer, first: dict[str, Any] | None = None, **second: Any
) -> AsyncIterator[Legs]:
    async with leg(tokenizer, **(first or {})) as one, leg(tokenizer, **second) as two:
        yield Legs(one, two, Pivot(one.translator, two.translator))


async def streamed(
    translator: Pivot, text: str, options: TranslateOptions | None = None
) -> tuple[str, TextResult]:
    deltas: list[str] = []
    async for event in translator.stream(text, options):
        if isinstance(event, TextResult):
            return "".join(deltas), event
        deltas.append(event.text)
    raise AssertionError("a stream must end with its result")


async def idle(legs: Legs) -> bool:
    """Whether nothing of a call is left in either engine, once cancelled requests are dropped."""
    for each in (legs.first, legs.second):
        each.runner.release()
        while each.engine.pulse() is not None:
            await asyncio.sleep(0)
    return await legs.first.engine.drain(10) and await legs.second.engine.drain(10)
