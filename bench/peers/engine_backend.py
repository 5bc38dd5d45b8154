"""Our engine behind request-level batching: isolates the gain of iteration-level batching."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence

from bench.peers.batch_engine import Output
from bench.submission import submit_many
from service.domain.requests import FinishReason, GenerationRequest
from service.engine.engine import Engine


class EngineBackend:
    """Submits a whole batch to the engine, and the next one when all of it is done.

    Within a batch finished rows are removed and cost nothing more.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def start(self) -> None:
        """Start the engine."""
        await self._engine.start()

    async def translate(
        self, requests: Sequence[GenerationRequest], max_new_tokens: Sequence[int]
    ) -> list[Output]:
        """Submit all, wait for all.

        Raises:
            DragomanError: any of them failed.
        """
        # Deadlines and cancelling are the outer engine's business, as with any other backend.
        inner = [dataclasses.replace(request, deadline=None) for request in requests]
        results = await asyncio.gather(
            *(generation.result() for generation in submit_many(self._engine, inner))
        )
        for result in results:
            if result.error is not None:
                raise result.error
        return [
            Output(result.token_ids, result.finish_reason is FinishReason.EOS) for result in results
        ]

    async def stop(self) -> None:
        """Stop the engine."""
        await self._engine.stop()
