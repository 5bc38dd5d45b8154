"""Calls of several sequences, and any mixture of clients."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.submission import submit, submit_many
from service.domain.plan import StepOutput, StepPlan
from service.domain.requests import (
    FinishReason,
    GenerationRequest,
    SearchOptions,
)
from service.engine.engine import Engine, EngineConfig
from service.engine.generation import Generation
from service.errors import (
    DeadlineExceededError,
    InvalidArgumentError,
    ResourceExhaustedError,
)
from tests.clock import Clock
from tests.fake_runner import FakeRunner
from tests.unit.service.engine.served_engine import (
    LIMITS,
    Recorder,
    all_end,
    check_prediction,
    check_predictions,
    endless,
    held,
    held_runner,
    request,
    serving,
)


async def test_several_tasks_of_a_call_wait_for_room() -> None:
    runner = FakeRunner(LIMITS)
    async with serving(runner) as engine:
        admission = engine.admit(max_in_flight=1)
        requests = [request(10 + i) for i in range(4)]
        generations = await asyncio.gather(*map(admission.submit, requests))
        await check_predictions(runner, generations)
        admission.close()


async def test_a_call_larger_than_the_queue_gets_through() -> None:
    runner, recorder = FakeRunner(LIMITS), Recorder()
    async with serving(runner, EngineConfig(max_waiting=4), recorder) as engine:
        admission = engine.admit(max_in_flight=100)
        requests = [request(10 + i % 40, 60 + i % 7) for i in range(500)]
        generations = [await admission.submit(asked) for asked in requests]
        await check_predictions(runner, generations)
        admission.close()
        assert recorder.most_waiting <= 8
        assert (max(recorder.held_back), recorder.held_back[-1]) == (1, 0)
        assert await engine.drain(10.0)


async def test_a_large_call_leaves_room_for_new_requests() -> None:
    runner = held_runner(endless)
    recorder = Recorder()
    async with serving(runner, EngineConfig(max_waiting=6), recorder) as engine:
        large = engine.admit(max_in_flight=100)
        inside = 0
        while large.try_submit(request(10)) is not None:
            inside += 1
        assert inside == 7  # 4 rows and half of the 6 places
        admissions = [engine.admit(5, request(11, client=f"c{number}")) for number in range(3)]
        with pytest.raises(ResourceExhaustedError):
            engine.admit(5)
        # Each of those that are in gets one in, however full it is.
        assert all(admission.try_submit(request(11)) for admission in admissions)
        assert all(admission.try_submit(request(11)) is None for admission in admissions)
        assert engine._admission.num_taken == 10
        assert recorder.held_back == [0, 1, 2, 3, 4]
        for admission in admissions:
            admission.close()
        large.close()
        assert recorder.held_back == [0, 1, 2, 3, 4, 3, 2, 1, 0]


async def test_in_flight_keeps_to_the_callers_bound() -> None:
    runner = held_runner(endless)
    async with serving(runner) as engine:
        admission = engine.admit(max_in_flight=2)
        first = admission.try_submit(request(10))
        assert first is not None
        assert admission.try_submit(request(11)) is not None
        assert admission.try_submit(request(12)) is None
        following = asyncio.create_task(admission.submit(request(12)))
        await held(runner)
        first.cancel()
        runner.release()
        assert (await (await following).result()).finish_reason is FinishReason.LENGTH
        admission.close()


async def test_closing_a_call_frees_everything_it_held() -> None:
    runner = held_runner(endless)
    async with serving(runner, EngineConfig(max_waiting=6)) as engine:
        admission = engine.admit(max_in_flight=100)
        generations = [
            generation for _ in range(7) if (generation := admission.try_submit(request(10)))
        ]
        await held(runner)
        admission.close()
        admission.close()
        runner.release()
        await all_end(generations, FinishReason.CANCELLED)
        submit_many(engine, [request(11)] * 9)  # every place of one client is free again


async def test_a_refused_request_costs_its_call_no_place() -> None:
    runner = held_runner(endless)
    async with serving(runner, EngineConfig(max_waiting=6)) as engine:
        admission = engine.admit(max_in_flight=100)
        assert admission.try_submit(request(10)) is not None
        for _ in range(20):
            with pytest.raises(InvalidArgumentError):
                admission.try_submit(GenerationRequest((10,) * 33))
        assert admission.try_submit(request(10)) is not None
        admission.close()
        runner.release()
        assert await engine.drain(10.0)


# --- any mixture ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Client:
    """The behaviour of one client, timed in iterations of the event loop."""

    source: list[int]
    turns_before: int
    max_new_tokens: int | None
    streams: bool
    cancelled_after: int | None
    patience: int | None
    num_sequences: int


clients_of_any_kind = st.lists(
    st.builds(
        Client,
        source=st.lists(st.integers(10, 99), max_size=20),
        turns_before=st.integers(0, 12),
        max_new_tokens=st.none() | st.integers(1, 40),
        streams=st.booleans(),
        cancelled_after=st.none() | st.integers(0, 12),
        patience=st.none() | st.integers(0, 30),
        num_sequences=st.sampled_from([1, 1, 3, 30]),
    ),
    min_size=1,
    max_size=25,
)


class FailingRunner(FakeRunner):
    """Every step takes a second of the clock, and some fail."""

    def __init__(self, clock: Clock, failing: set[int]) -> None:
        super().__init__(LIMITS)
        self.clock = clock
        self.failing = failing
        self.num_executed = 0

    def execute(self, plan: StepPlan) -> StepOutput:
        self.num_executed += 1
        self.clock.now += 1.0
        if self.num_executed in self.failing:
            raise RuntimeError("broken")
        return super().execute(plan)


@settings(max_examples=60)
@given(clients=clients_of_any_kind, failing=st.sets(st.integers(0, 40)))
def test_any_mixture_of_clients(clients: list[Client], failing: set[int]) -> None:
    asyncio.run(_serve_mixture(clients, failing))


async def _serve_mixture(clients: list[Client], failing: set[int]) -> None:
    clock, recorder = Clock(), Recorder()
    runner = FailingRunner(clock, failing)
    async with serving(runner, EngineConfig(max_waiting=6), recorder, clock) as engine:
        await asyncio.gather(*(_use(engine, runner, client) for client in clients))
        assert await engine.drain(10.0), "a place was lost"
        assert engine._admission.num_taken == 0
        assert recorder.most_waiting <= 10


async def _use(engine: Engine, runner: FailingRunner, client: Client) -> None:
    for _ in range(client.turns_before):
        await asyncio.sleep(0)
    deadline = None if client.patience is None else runner.clock.now + client.patience
    asked = request(*client.source, options=SearchOptions(client.max_new_tokens), deadline=deadline)
    try:
        if client.num_sequences == 1:
            await _follow(submit(engine, asked), runner, client)
            return
        admission = engine.admit(5)
    except (ResourceExhaustedError, DeadlineExceededError):
        return
    try:
        generations = [await admission.submit(asked) for _ in range(client.num_sequences)]
        for generation in generations:
            await _follow(generation, runner, client)
    finally:
        admission.close()


async def _follow(generation: Generation, runner: FakeRunner, client: Client) -> None:
    if client.cancelled_after is not None:
        for _ in range(client.cancelled_after):
            await asyncio.sleep(0)
        generation.cancel()
    streamed = [t async for tokens in generation for t in tokens] if client.streams else None
    result = await generation.result()
    assert streamed is None or streamed == result.token_ids
    if result.finish_reason in (FinishReason.EOS, FinishReason.LENGTH):
        check_prediction(runner, generation.request, result)
        assert result.error is None
    else:
        assert result.error is not None
