"""An engine on a model's process, for the tests of this folder."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from model.bundle.limits import default_max_new_tokens
from service.domain.requests import (
    FinishReason,
    GenerationRequest,
)
from service.engine.engine import Engine, EngineConfig
from service.worker.opening import OpenModel
from service.worker.process import ModelProcess
from tests import process_models
from tests.fake_runner import FakeRunner
from tests.process_models import LIMITS

EOS = 3


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@asynccontextmanager
async def serving(
    open_model: Callable[[], OpenModel] = process_models.touchy,
    config: EngineConfig | None = None,
    *,
    exit_status: int = 0,
) -> AsyncIterator[tuple[Engine, ModelProcess]]:
    process = ModelProcess("a-model", open_model)
    engine = Engine(process, config)
    await engine.start()
    try:
        yield engine, process
    finally:
        await engine.stop()
    # By itself, unless the test wants it otherwise.
    assert process.exit_status == exit_status
    assert not is_alive(process.pid)


def request(*source_ids: int, deadline: float | None = None) -> GenerationRequest:
    return GenerationRequest((*source_ids, EOS), deadline=deadline, request_id="a-request")


def predicted(asked: GenerationRequest) -> tuple[list[int], FinishReason]:
    length = default_max_new_tokens(len(asked.source_ids), LIMITS.max_target_positions)
    return FakeRunner(LIMITS).predict(asked.source_ids, length)
