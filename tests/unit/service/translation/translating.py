"""A translator over a fake model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from model.bundle.tokenizer import Tokenizer
from service.domain.plan import RunnerLimits
from service.engine.engine import Engine, EngineConfig
from service.translation.options import TranslateOptions, TranslatorLimits
from service.translation.results import TextResult
from service.translation.translator import Translator
from tests.fake_runner import FakeRunner, Script, echo


@dataclass
class Setup:
    runner: FakeRunner
    engine: Engine
    translator: Translator


@asynccontextmanager
async def translating(
    tokenizer: Tokenizer,
    script: Script = echo,
    *,
    max_rows: int = 4,
    max_positions: int = 64,
    limits: TranslatorLimits | None = None,
    config: EngineConfig | None = None,
    language: str = "en",
) -> AsyncIterator[Setup]:
    sizes = RunnerLimits(max_rows, max_positions, max_positions, 2, tokenizer.vocab_size)
    runner = FakeRunner(sizes, script)
    engine = Engine.of_runner(runner, config)
    await engine.start()
    try:
        translator = Translator(engine, tokenizer, source_language=language, limits=limits)
        yield Setup(runner, engine, translator)
    finally:
        runner.release()
        await engine.stop()


async def streamed(
    translator: Translator, text: str, options: TranslateOptions | None = None
) -> tuple[list[str], TextResult]:
    deltas: list[str] = []
    async for event in translator.stream(text, options):
        if isinstance(event, TextResult):
            return deltas, event
        deltas.append(event.text)
    raise AssertionError("a stream must end with its result")
