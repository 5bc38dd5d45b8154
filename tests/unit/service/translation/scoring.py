"""Scoring requests, and an engine that scores."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

from service.batching.records import EngineRequest
from service.domain.attention import AttentionKind, AttentionSelection
from service.domain.plan import RunnerLimits
from service.domain.requests import ScoringRequest
from service.engine.engine import Engine, EngineConfig
from tests.fake_runner import FakeRunner
from tests.fake_scorer import FakeScorer
from tests.searches import submitted

EOS = 3
SELECTION = AttentionSelection(((AttentionKind.CROSS, (0,)),), heads=(0,))
LIMITS = RunnerLimits(
    max_rows=2, max_source_positions=32, max_target_positions=32, top_k=4, vocab_size=512
)
WIDE = RunnerLimits(
    max_rows=64, max_source_positions=512, max_target_positions=512, top_k=4, vocab_size=512
)


@contextlib.asynccontextmanager
async def serving(
    runner: FakeRunner,
    scorer: FakeScorer | None,
    *,
    clock: Callable[[], float] = time.monotonic,
    **config: Any,
) -> AsyncIterator[Engine]:
    engine = Engine.of_runner(
        runner, EngineConfig(**{"max_waiting": 64, **config}), scorer=scorer, clock=clock
    )
    await engine.start()
    try:
        if scorer is not None:
            await engine.prepare_scoring()
        yield engine
    finally:
        runner.release()
        await engine.stop()


def scoring(num_source: int = 4, num_target: int = 5, **fields: Any) -> ScoringRequest:
    source, target = range(10, 9 + num_source), range(40, 39 + num_target)
    return ScoringRequest((*source, EOS), target_ids=(*target, EOS), **fields)


def attention(num_weights: int) -> EngineRequest:
    request = replace(scoring(3, 3), selection=SELECTION, num_weights=num_weights)
    return submitted(request, 3, 0.0)
