"""The sentence translator of a bundle, in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from service.engine.engine import Engine, EngineConfig
from service.translation.default_search import default_search
from service.translation.translator import Translator


@asynccontextmanager
async def sentence_translator(bundle: Path) -> AsyncIterator[Translator]:
    """The translator of a bundle, whose model aligns if it has a scoring graph."""
    from model.bundle.bundle import Bundle
    from model.bundle.sessions import SessionSettings
    from service.runtime.cpu.runner import OnnxRunner
    from service.runtime.scoring import OnnxScorer

    loaded, sessions = Bundle.load(bundle), SessionSettings()
    search = default_search(loaded)
    runner = OnnxRunner(loaded, max_rows=8, sessions=sessions)
    scorer = None
    if loaded.scoring_path is not None:
        scorer = OnnxScorer(loaded, sessions, runner.encoder_session)
    config = EngineConfig(
        max_waiting=10_000, bos_id=loaded.config.bos_id, eos_id=loaded.config.eos_id
    )
    engine = Engine(runner, config, scorer=scorer)
    await engine.start()
    try:
        yield Translator(
            engine,
            loaded.tokenizer(),
            source_language=loaded.source_language,
            default_search=search,
        )
    finally:
        await engine.stop()
