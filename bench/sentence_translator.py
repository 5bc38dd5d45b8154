"""A model in this process, as the sentence translator that the stages of `service.text` call."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

from service.models.loading import load_model
from service.observability.metrics import ServerMetrics
from service.settings import Settings, shipped_models
from service.translation.translator import Translator

# All lines of a test set are one call.
_MAX_TEXTS = 100_000


@asynccontextmanager
async def sentence_translator(
    bundle: Path | None = None, threads: int = 1
) -> AsyncIterator[Translator]:
    """The translator of a bundle; by default of the one that ships."""
    settings = Settings(
        in_process=True, threads=threads, max_texts=_MAX_TEXTS, max_waiting=_MAX_TEXTS
    )
    model = load_model(bundle or shipped_models()[0], settings, ServerMetrics())
    await model.engine.start()
    try:
        yield model.translator
    finally:
        await model.engine.stop()
