"""Requests to an engine without a server before it: each is admitted as a call of its own."""

from __future__ import annotations

from collections.abc import Iterable

from service.domain.requests import GenerationRequest, GenerationResult
from service.engine.engine import Engine
from service.engine.generation import Generation


def submit(engine: Engine, request: GenerationRequest) -> Generation:
    """Submit one request. Raises what `Engine.admit` and `AdmittedCall.try_submit` raise."""
    call = engine.admit(1, request)
    try:
        generation = call.try_submit(request)
    finally:
        call.finish()
    assert generation is not None, "the quota of a call's first sequence is taken"
    return generation


async def answers_of(
    engine: Engine, requests: Iterable[GenerationRequest]
) -> list[GenerationResult]:
    """Start an engine, submit requests one after another, and stop it when all are answered."""
    await engine.start()
    try:
        return [await generation.result() for generation in submit_many(engine, requests)]
    finally:
        await engine.stop()


def submit_many(engine: Engine, requests: Iterable[GenerationRequest]) -> list[Generation]:
    """Submit requests one after another. Raises what `submit` raises."""
    return [submit(engine, request) for request in requests]
