"""Request-level batching: who shares a batch, and that nobody is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from bench.peers.batch_engine import BatchEngine, BatchPolicy, Output
from service.domain.plan import RunnerLimits
from service.domain.requests import FinishReason, GenerationRequest, SearchOptions
from service.engine.generation import Generation
from service.errors import InternalError, ResourceExhaustedError, UnavailableError

LIMITS = RunnerLimits(8, max_source_positions=16, max_target_positions=16, top_k=1, vocab_size=99)


class HeldBackend:
    """Gives each source back; a batch ends when the test lets it."""

    def __init__(self, held: bool = True) -> None:
        self.batches: list[list[int]] = []
        self.began = asyncio.Semaphore(0)
        self.stopped = False
        self.error: Exception | None = None
        self._go = asyncio.Semaphore(0)
        self._held = held

    def let_go(self) -> None:
        self._go.release()

    async def start(self) -> None:
        pass

    async def translate(
        self, requests: Sequence[GenerationRequest], max_new_tokens: Sequence[int]
    ) -> list[Output]:
        self.batches.append([request.source_ids[0] for request in requests])
        self.began.release()
        if self._held:
            await self._go.acquire()
        if self.error is not None:
            raise self.error
        return [Output(list(r.source_ids[:-1]), ended=True) for r in requests]

    async def stop(self) -> None:
        self.stopped = True


@asynccontextmanager
async def serving(backend: HeldBackend, policy: BatchPolicy) -> AsyncIterator[BatchEngine]:
    engine = BatchEngine(backend, policy, LIMITS)
    await engine.start()
    yield engine
    await engine.stop()
    assert backend.stopped


def submit(engine: BatchEngine, first: int, deadline: float | None = None) -> Generation:
    request = GenerationRequest((first, 3), SearchOptions(), deadline)
    admission = engine.admit(99)
    generation = admission.try_submit(request)
    assert generation is not None
    return generation


async def test_what_arrives_during_a_batch_shares_the_next() -> None:
    backend = HeldBackend()
    async with serving(backend, BatchPolicy(max_batch=3, window_seconds=0.0)) as engine:
        first = submit(engine, 10)
        await backend.began.acquire()
        later = [submit(engine, number) for number in (11, 12, 13, 14)]
        backend.let_go()
        assert (await first.result()).token_ids == [10]
        await backend.began.acquire()
        backend.let_go()
        backend.let_go()
        assert [(await one.result()).token_ids for one in later] == [[11], [12], [13], [14]]
    assert backend.batches == [[10], [11, 12, 13], [14]]


async def test_the_window_waits_for_company_until_the_batch_is_full() -> None:
    backend = HeldBackend(held=False)
    async with serving(backend, BatchPolicy(max_batch=2, window_seconds=3600.0)) as engine:
        alone = submit(engine, 10)
        for _ in range(5):
            await asyncio.sleep(0)  # turns of the loop, not time
        assert backend.batches == []
        other = submit(engine, 11)
        assert (await alone.result()).finish_reason is FinishReason.EOS
        assert (await other.result()).token_ids == [11]
    assert backend.batches == [[10, 11]]


async def test_free_workers_share_what_waits() -> None:
    backend = HeldBackend()
    policy = BatchPolicy(max_batch=8, window_seconds=0.0, num_workers=2)
    async with serving(backend, policy) as engine:
        busy = [submit(engine, number) for number in (10, 11)]
        await backend.began.acquire()
        await backend.began.acquire()
        later = [submit(engine, number) for number in (20, 21, 22)]
        for _ in range(4):
            backend.let_go()
        for generation in (*busy, *later):
            assert (await generation.result()).error is None
    assert backend.batches[:2] == [[10], [11]]
    assert sorted(n for batch in backend.batches[2:] for n in batch) == [20, 21, 22]


async def test_cancelling_and_deadlines() -> None:
    backend = HeldBackend()
    async with serving(backend, BatchPolicy(window_seconds=0.0)) as engine:
        running = submit(engine, 10)
        await backend.began.acquire()
        waiting, late = submit(engine, 11), submit(engine, 12, deadline=0.0)
        waiting.cancel()
        running.cancel()
        backend.let_go()
        assert (await waiting.result()).finish_reason is FinishReason.CANCELLED
        assert (await running.result()).finish_reason is FinishReason.CANCELLED
        assert (await late.result()).finish_reason is FinishReason.DEADLINE
    assert backend.batches == [[10]]


async def test_a_failed_batch_fails_its_own_only() -> None:
    backend = HeldBackend(held=False)
    async with serving(backend, BatchPolicy(window_seconds=0.0)) as engine:
        backend.error = RuntimeError("broken")
        result = await submit(engine, 10).result()
        assert isinstance(result.error, InternalError)
        backend.error = None
        assert (await submit(engine, 11).result()).token_ids == [11]


async def test_a_full_queue_refuses_and_a_stopped_engine_does_not_serve() -> None:
    backend = HeldBackend()
    engine = BatchEngine(backend, BatchPolicy(max_batch=1, max_waiting=2), LIMITS)
    await engine.start()
    held = [submit(engine, number) for number in range(10, 13)]
    with pytest.raises(ResourceExhaustedError) as caught:
        engine.admit(1)
    assert caught.value.retry_after_seconds > 0
    backend.let_go()
    await engine.stop()
    reasons = [(await one.result()).finish_reason for one in held]
    assert set(reasons) <= {FinishReason.EOS, FinishReason.CANCELLED}
    with pytest.raises(UnavailableError):
        engine.admit(1)
