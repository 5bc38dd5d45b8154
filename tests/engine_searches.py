"""Searches of an engine for many sources at once."""

from __future__ import annotations

from collections.abc import Sequence

from bench.submission import answers_of
from model.bundle.bundle import Bundle
from service.domain.plan import ModelRunner
from service.domain.requests import GenerationRequest, GenerationResult, SearchOptions
from service.engine.engine import Engine, EngineConfig


async def search_all(
    bundle: Bundle, runner: ModelRunner, sources: Sequence[tuple[int, ...]], options: SearchOptions
) -> list[GenerationResult]:
    """Search every source with the same options, as many at a time as fit into the runner."""
    ids = bundle.config.bos_id, bundle.config.eos_id
    # Places are counted in rows, and half of those that wait are for new calls.
    engine = Engine.of_runner(
        runner, EngineConfig(*ids, max_waiting=2 * len(sources) * options.beam_size)
    )
    return await answers_of(engine, [GenerationRequest(source, options) for source in sources])
