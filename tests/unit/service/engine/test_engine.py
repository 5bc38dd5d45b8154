"""The engine on a runner that checks every plan: its behaviour for requests."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.submission import submit, submit_many
from model.bundle.limits import default_max_new_tokens
from service.batching.events import Iteration
from service.domain.plan import RunnerLimits, StepOutput, StepPlan
from service.domain.requests import (
    FinishReason,
    GenerationRequest,
    GenerationResult,
    SearchOptions,
)
from service.engine.engine import Engine, EngineConfig
from service.engine.generation import Generation
from service.engine.interface import EngineObserver
from service.errors import (
    DeadlineExceededError,
    InternalError,
    InvalidArgumentError,
    RequestCancelledError,
    ResourceExhaustedError,
    UnavailableError,
)
from tests.fake_runner import FakeRunner

EOS = 3
LIMITS = RunnerLimits(
    max_rows=4, max_source_positions=32, max_target_positions=40, top_k=2, vocab_size=512
)


class Clock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Recorder(EngineObserver):
    """Records the events."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.encodes = 0
        self.most_waiting = 0
        self.queue: list[tuple[int, int]] = []
        self.held_back = [0]
        self.admitted: list[int] = []
        self.first_tokens: list[float] = []
        self.finished: list[FinishReason] = []

    def on_iterations(self, iterations: Sequence[Iteration]) -> None:
        for iteration in iterations:
            if iteration.num_rows or iteration.num_encodes:
                self.rows.append(iteration.num_stepping)
                self.encodes += iteration.num_encodes
            self.most_waiting = max(self.most_waiting, iteration.num_waiting)
            self.queue.append((iteration.num_waiting, iteration.num_running))
            self.admitted += iteration.admitted

    def on_held_back(self, calls: int) -> None:
        self.held_back.append(calls)

    def on_finished(
        self,
        result: GenerationResult,
        request: GenerationRequest,
        trace_ids: Mapping[str, str] | None = None,
    ) -> None:
        self.finished.append(result.finish_reason)
        if result.first_token_seconds is not None:
            self.first_tokens.append(result.first_token_seconds)


@asynccontextmanager
async def serving(
    runner: FakeRunner,
    config: EngineConfig | None = None,
    observer: EngineObserver | None = None,
    clock: Callable[[], float] | None = None,
) -> AsyncIterator[Engine]:
    engine = Engine(runner, config, observer, clock=clock or Clock())
    await engine.start()
    try:
        yield engine
    finally:
        runner.release()
        await engine.stop()
        assert runner.closed


def request(*source_ids: int, **fields: Any) -> GenerationRequest:
    return GenerationRequest((*source_ids, EOS), **fields)


def endless(source_ids: tuple[int, ...]) -> list[int]:
    return [10 + position for position in range(100)]


async def held(runner: FakeRunner) -> None:
    """Wait until a step is in flight that ends only when the test allows it."""
    await asyncio.to_thread(runner.wait_until_blocked)


async def settled() -> None:
    """Let all tasks run until they wait."""
    for _ in range(10):
        await asyncio.sleep(0)


def check_prediction(
    runner: FakeRunner, asked: GenerationRequest, result: GenerationResult
) -> None:
    length = asked.options.max_new_tokens or default_max_new_tokens(
        len(asked.source_ids), runner.limits.max_target_positions
    )
    predicted = runner.predict(asked.source_ids, length)
    assert (result.token_ids, result.finish_reason) == predicted


async def test_each_gets_the_answer_it_gets_alone() -> None:
    runner, recorder = FakeRunner(LIMITS), Recorder()
    requests = [request(*range(10, 10 + i % 20)) for i in range(200)]
    async with serving(runner, observer=recorder) as engine:
        generations = submit_many(engine, requests)
        for asked, generation in zip(requests, generations, strict=True):
            check_prediction(runner, asked, await generation.result())
    assert sum(recorder.rows) / len(recorder.rows) > 3.5
    assert recorder.encodes == len(recorder.admitted) == len(recorder.first_tokens) == 200
    assert len(recorder.finished) == 200


async def test_tokens_come_as_they_are_chosen() -> None:
    runner = FakeRunner(LIMITS, lambda source_ids: [11, 12, 13, EOS])
    runner.hold()
    async with serving(runner) as engine:
        generation = submit(engine, request(10))
        tokens = aiter(generation)
        for expected in ([11], [12], [13]):
            runner.allow()
            assert await anext(tokens) == expected
        runner.allow()
        assert await anext(tokens, None) is None
        assert (await generation.result()).token_ids == [11, 12, 13]


async def test_who_listens_late_misses_nothing() -> None:
    runner = FakeRunner(LIMITS, lambda source_ids: [11, 12, 13, 14, EOS])
    async with serving(runner) as engine:
        generation = submit(engine, request(10))
        await generation.result()
        assert [token async for tokens in generation for token in tokens] == [11, 12, 13, 14]
        runner.hold()
        generation = submit(engine, request(10))
        await held(runner)
        runner.allow(2)
        while len(runner.plans) < 7:
            await asyncio.sleep(0)
        runner.release()
        assert [token async for tokens in generation for token in tokens] == [11, 12, 13, 14]


async def test_a_request_joins_the_step_after_it_came() -> None:
    runner = FakeRunner(LIMITS, endless)
    runner.hold()
    async with serving(runner) as engine:
        submit(engine, request(10))
        await held(runner)
        second = submit(engine, request(11))
        runner.allow()
        await held(runner)
        runner.allow()
        await held(runner)
        assert [plan.num_rows for plan in runner.plans] == [1, 2]
        second.cancel()


async def test_what_does_not_fit_is_refused_at_once() -> None:
    runner = FakeRunner(LIMITS, endless)
    runner.hold()
    async with serving(runner, EngineConfig(max_waiting=3)) as engine:
        taken = submit_many(engine, [request(10)] * 6)
        with pytest.raises(ResourceExhaustedError) as caught:
            submit(engine, GenerationRequest((11, 3), SearchOptions(beam_size=2)))
        assert caught.value.retry_after_seconds > 0
        taken.append(submit(engine, request(11)))  # nothing of the refused two is inside
        with pytest.raises(ResourceExhaustedError):
            submit(engine, request(12))
        runner.release()
        await asyncio.gather(*(generation.result() for generation in taken))
        check_prediction(runner, asked := request(12), await submit(engine, asked).result())


async def test_waiting_is_bounded() -> None:
    runner, recorder = FakeRunner(LIMITS), Recorder()
    async with serving(runner, EngineConfig(max_waiting=5), recorder) as engine:
        accepted: list[Generation] = []
        refused = 0
        for i in range(300):
            try:
                accepted.append(submit(engine, request(10 + i % 50)))
            except ResourceExhaustedError:
                refused += 1
                await asyncio.sleep(0)
            assert engine._admission.num_taken <= 9
        results = await asyncio.gather(*(generation.result() for generation in accepted))
    assert refused > 0
    assert len(results) == 300 - refused
    assert recorder.most_waiting <= 9


@pytest.mark.parametrize(
    ("source_length", "options", "field"),
    [
        (0, SearchOptions(), "source_ids"),
        (33, SearchOptions(), "source_ids"),
        (3, SearchOptions(max_new_tokens=41), "max_new_tokens"),
        (3, SearchOptions(beam_size=5), "beam_size"),
    ],
)
async def test_what_the_model_cannot_do_is_refused(
    source_length: int, options: SearchOptions, field: str
) -> None:
    asked = GenerationRequest((10,) * source_length, options)
    async with serving(FakeRunner(LIMITS)) as engine:
        with pytest.raises(InvalidArgumentError) as caught:
            submit(engine, asked)
        assert caught.value.field == field
        assert engine._admission.num_taken == 0


def test_no_tokens_at_all_is_not_an_option() -> None:
    with pytest.raises(InvalidArgumentError, match="max_new_tokens"):
        SearchOptions(max_new_tokens=0)


async def test_cancelled_while_it_waits_never_runs() -> None:
    runner = FakeRunner(LIMITS, endless)
    runner.hold()
    async with serving(runner) as engine:
        submit_many(engine, [request(10)] * 4)
        await held(runner)
        waiting = submit(engine, request(11))
        waiting.cancel()
        runner.allow()
        result = await waiting.result()
        assert result.finish_reason is FinishReason.CANCELLED
        assert isinstance(result.error, RequestCancelledError)
        assert engine._admission.num_taken == 4
        runner.release()
        assert await engine.drain(10.0)
    assert sum(len(plan.encodes) for plan in runner.plans) == 4


async def test_nobody_is_refused_for_those_who_gave_up() -> None:
    """Cancelled requests leave only before the next step, but don't cause refusals until then."""
    runner = FakeRunner(LIMITS)
    ticks = itertools.count()  # each look at the clock takes a second, so that steps take time
    config = EngineConfig(max_queue_seconds=1e-9)
    async with serving(runner, config, clock=lambda: float(next(ticks))) as engine:
        for _ in range(3):  # so that it knows how slow it is
            await submit(engine, request(10)).result()
        runner.hold()
        call = engine.admit(8, request(10))
        many = [await call.submit(request(10)) for _ in range(8)]
        with pytest.raises(ResourceExhaustedError):
            submit(engine, request(11))
        call.close()
        late = submit(engine, request(11))
        runner.release()
        check_prediction(runner, request(11), await late.result())
        for generation in many:
            assert (await generation.result()).finish_reason is FinishReason.CANCELLED


async def test_cancelled_while_it_runs_frees_its_row_before_the_next_step() -> None:
    runner = FakeRunner(LIMITS, endless)
    runner.hold()
    async with serving(runner) as engine:
        running = submit_many(engine, [request(10), request(11), request(12)])
        await held(runner)
        running[0].cancel()
        running[0].cancel()
        runner.allow()
        await held(runner)
        result = await running[0].result()
        assert result.finish_reason is FinishReason.CANCELLED
        assert result.token_ids == [10]
        runner.allow()
        await held(runner)
        assert [plan.num_rows for plan in runner.plans] == [3, 2]


async def test_cancelling_one_who_waits_for_the_result_cancels_nothing_else() -> None:
    runner = FakeRunner(LIMITS)
    runner.hold()
    async with serving(runner) as engine:
        generation = submit(engine, asked := request(10))
        impatient = asyncio.create_task(generation.result())
        patient = asyncio.create_task(generation.result())
        await held(runner)
        impatient.cancel()
        runner.release()
        check_prediction(runner, asked, await patient)


async def test_deadlines_end_those_that_run_and_those_that_wait() -> None:
    runner, clock = FakeRunner(LIMITS, endless), Clock()
    runner.hold()
    async with serving(runner, clock=clock) as engine:
        running = submit_many(engine, [request(10, deadline=clock.now + 5)] * 2)
        others = submit_many(engine, [request(11)] * 2)
        await held(runner)
        waiting = submit(engine, request(12, deadline=clock.now + 5))
        late = submit(engine, request(13, deadline=clock.now + 50))
        clock.now += 5
        runner.allow()
        await held(runner)
        for generation in (*running, waiting):
            result = await generation.result()
            assert result.finish_reason is FinishReason.DEADLINE
            assert isinstance(result.error, DeadlineExceededError)
            assert result.was_admitted == (generation is not waiting)
        runner.release()
        for generation in (*others, late):
            assert (await generation.result()).finish_reason is FinishReason.LENGTH


async def test_nobody_steps_beyond_its_deadline() -> None:
    runner, clock = FakeRunner(LIMITS, endless), Clock()
    runner.hold()
    async with serving(runner, clock=clock) as engine:
        generation = submit(engine, request(10, deadline=clock.now + 5))
        await held(runner)
        runner.allow(3)
        await held(runner)
        clock.now += 5
        runner.release()
        result = await generation.result()
    assert result.finish_reason is FinishReason.DEADLINE
    assert result.token_ids == [10, 11, 12, 13]
    assert len(runner.plans) == 4


async def test_a_failing_step_fails_its_requests_and_no_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runner = FakeRunner(LIMITS)
    runner.hold()
    async with serving(runner) as engine:
        running = submit_many(engine, [request(10, request_id=f"r{i}") for i in range(4)])
        await held(runner)
        waiting = submit(engine, asked := request(11))
        runner.fail_next(RuntimeError("out of memory at 0xdeadbeef"))
        runner.release()
        for generation in running:
            result = await generation.result()
            assert result.finish_reason is FinishReason.ERROR
            assert isinstance(result.error, InternalError)
            assert "0xdeadbeef" not in str(result.error)  # the client learns nothing of our inside
        check_prediction(runner, asked, await waiting.result())
        check_prediction(runner, asked, await submit(engine, asked).result())
    [record] = [r for r in caplog.records if r.name == "service.batching.step_loop"]
    assert all(f"r{i}" in record.getMessage() for i in range(4))
    assert record.exc_info is not None


async def test_every_step_is_told_and_every_first_token_once() -> None:
    runner, recorder = FakeRunner(LIMITS, endless), Recorder()
    async with serving(runner, observer=recorder) as engine:
        result = await submit(engine, request(10)).result()
        others = [generation.result() for generation in submit_many(engine, [request(11)] * 4)]
        await asyncio.gather(*others)
        await settled()
    length = len(result.token_ids)
    assert recorder.rows == [1] * length + [4] * length
    assert len(recorder.first_tokens) == recorder.encodes == 5


async def test_what_came_before_a_failing_step_is_kept() -> None:
    runner = FakeRunner(LIMITS, endless)
    runner.hold()
    async with serving(runner) as engine:
        generation = submit(engine, request(10))
        await held(runner)
        runner.allow(5)
        await held(runner)
        runner.fail_next(RuntimeError("broken"))
        runner.release()
        result = await generation.result()
    assert result.finish_reason is FinishReason.ERROR
    assert result.token_ids == [10, 11, 12, 13, 14]


async def test_an_idle_engine_does_nothing() -> None:
    runner, recorder = FakeRunner(LIMITS), Recorder()
    async with serving(runner, observer=recorder) as engine:
        await submit(engine, request(10)).result()
        await settled()
        steps, reported = len(runner.plans), len(recorder.rows)
        await asyncio.sleep(0.05)  # time in which a loop that polls would show
        assert (len(runner.plans), len(recorder.rows)) == (steps, reported)


async def test_draining_answers_those_inside_and_refuses_others() -> None:
    runner = FakeRunner(LIMITS)
    runner.hold()
    async with serving(runner) as engine:
        inside = submit_many(engine, asked := [request(10 + i) for i in range(9)])
        draining = asyncio.create_task(engine.drain(60.0))
        await settled()
        with pytest.raises(UnavailableError, match="shutting down"):
            submit(engine, request(10))
        with pytest.raises(UnavailableError):
            engine.admit(3)
        runner.release()
        assert await draining
        assert not engine.is_serving
        for one, generation in zip(asked, inside, strict=True):
            check_prediction(runner, one, await generation.result())


async def test_a_drain_has_a_bound_and_stop_ends_the_rest() -> None:
    runner = FakeRunner(LIMITS, endless)
    runner.hold()
    engine = Engine(runner)
    await engine.start()
    inside = submit_many(engine, [request(10 + i) for i in range(9)])
    await held(runner)
    assert not await engine.drain(0.0)
    stopping = asyncio.create_task(engine.stop())
    await settled()
    closed_early = runner.closed  # under the feet of a step
    runner.release()
    await stopping
    for generation in inside:
        result = await generation.result()
        assert result.finish_reason is FinishReason.CANCELLED
        assert isinstance(result.error, UnavailableError)
    assert (closed_early, runner.closed) == (False, True)
    with pytest.raises(UnavailableError, match="stopped"):
        submit(engine, request(10))
    await engine.stop()


async def test_a_step_that_hangs_does_not_hold_the_end(caplog: pytest.LogCaptureFixture) -> None:
    runner = FakeRunner(LIMITS, endless)
    runner.hold()
    engine = Engine(runner)
    await engine.start()
    inside = submit_many(engine, [request(10 + i) for i in range(9)])
    await held(runner)
    await engine.stop(timeout_seconds=0.0)
    assert engine.has_failed
    assert await engine.wait_until_ended()
    assert "hangs" in caplog.text
    for generation in inside:
        assert isinstance((await generation.result()).error, UnavailableError)
    assert engine._admission.num_taken == 0
    await engine.stop()  # does not wait either
    runner.release()  # its late output belongs to no request
    while not runner.closed:
        await asyncio.sleep(0)
    await settled()
    assert engine.has_failed


async def test_before_its_start_it_refuses() -> None:
    runner = FakeRunner(LIMITS)
    engine = Engine(runner)
    with pytest.raises(UnavailableError, match="not started"):
        submit(engine, request(10))
    await engine.stop()


async def test_a_bug_of_our_own_leaves_nobody_waiting(caplog: pytest.LogCaptureFixture) -> None:
    class BrokenClock(Clock):
        is_broken = False

        def __call__(self) -> float:
            if self.is_broken and threading.current_thread() is not threading.main_thread():
                raise ZeroDivisionError
            return super().__call__()

    runner, clock = FakeRunner(LIMITS, endless), BrokenClock()
    runner.hold()
    async with serving(runner, clock=clock) as engine:
        inside = submit_many(engine, [request(10)] * 9)
        await held(runner)
        clock.is_broken = True
        runner.release()
        for generation in inside:
            assert isinstance((await generation.result()).error, UnavailableError)
        with pytest.raises(UnavailableError, match="failed"):
            submit(engine, request(10))
        assert engine._admission.num_taken == 0
    assert "ZeroDivisionError" in caplog.text


async def test_an_observer_that_raises_costs_nobody_an_answer() -> None:
    class Broken(EngineObserver):
        def on_iterations(self, iterations: Sequence[Iteration]) -> None:
            raise ZeroDivisionError

    runner, asked = FakeRunner(LIMITS), request(10)
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    async with serving(runner, observer=Broken()) as engine:
        check_prediction(runner, asked, await submit(engine, asked).result())
    assert complaints


# --- admission -----------------------------------------------------------------------------------


async def test_several_tasks_of_a_call_wait_for_room() -> None:
    runner = FakeRunner(LIMITS)
    async with serving(runner) as engine:
        admission = engine.admit(max_in_flight=1)
        requests = [request(10 + i) for i in range(4)]
        generations = await asyncio.gather(*map(admission.submit, requests))
        for asked, generation in zip(requests, generations, strict=True):
            check_prediction(runner, asked, await generation.result())
        admission.close()


async def test_a_call_larger_than_the_queue_gets_through() -> None:
    runner, recorder = FakeRunner(LIMITS), Recorder()
    async with serving(runner, EngineConfig(max_waiting=4), recorder) as engine:
        admission = engine.admit(max_in_flight=100)
        requests = [request(10 + i % 40, 60 + i % 7) for i in range(500)]
        generations = [await admission.submit(asked) for asked in requests]
        for asked, generation in zip(requests, generations, strict=True):
            check_prediction(runner, asked, await generation.result())
        admission.close()
        assert recorder.most_waiting <= 8
        assert (max(recorder.held_back), recorder.held_back[-1]) == (1, 0)
        assert await engine.drain(10.0)


async def test_a_large_call_leaves_room_for_new_requests() -> None:
    runner = FakeRunner(LIMITS, endless)
    runner.hold()
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
    runner = FakeRunner(LIMITS, endless)
    runner.hold()
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
    runner = FakeRunner(LIMITS, endless)
    runner.hold()
    async with serving(runner, EngineConfig(max_waiting=6)) as engine:
        admission = engine.admit(max_in_flight=100)
        generations = [
            generation for _ in range(7) if (generation := admission.try_submit(request(10)))
        ]
        await held(runner)
        admission.close()
        admission.close()
        runner.release()
        for generation in generations:
            assert (await generation.result()).finish_reason is FinishReason.CANCELLED
        submit_many(engine, [request(11)] * 9)  # every place of one client is free again


async def test_a_refused_request_costs_its_call_no_place() -> None:
    runner = FakeRunner(LIMITS, endless)
    runner.hold()
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
