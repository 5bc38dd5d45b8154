"""The engine on a runner that checks every plan: its behaviour for requests, and its end."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Sequence

import pytest

from bench.submission import submit, submit_many
from service.batching.events import Iteration
from service.domain.requests import (
    FinishReason,
    GenerationRequest,
    SearchOptions,
)
from service.engine.engine import Engine, EngineConfig
from service.engine.generation import Generation
from service.engine.interface import EngineObserver
from service.errors import (
    DeadlineExceededError,
    InternalError,
    InvalidArgumentError,
    ResourceExhaustedError,
    UnavailableError,
)
from tests.clock import Clock
from tests.fake_runner import FakeRunner
from tests.unit.service.engine.served_engine import (
    EOS,
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
    settled,
)


async def test_each_gets_the_answer_it_gets_alone() -> None:
    runner, recorder = FakeRunner(LIMITS), Recorder()
    requests = [request(*range(10, 10 + i % 20)) for i in range(200)]
    async with serving(runner, observer=recorder) as engine:
        generations = submit_many(engine, requests)
        await check_predictions(runner, generations)
    assert sum(recorder.rows) / len(recorder.rows) > 3.5
    assert recorder.encodes == len(recorder.admitted) == len(recorder.first_tokens) == 200
    assert len(recorder.finished) == 200


async def test_tokens_come_as_they_are_chosen() -> None:
    runner = held_runner(lambda source_ids: [11, 12, 13, EOS])
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


async def test_what_does_not_fit_is_refused_at_once() -> None:
    runner = held_runner(endless)
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
        await all_end(many, FinishReason.CANCELLED)


async def test_cancelled_while_it_runs_frees_its_row_before_the_next_step() -> None:
    runner = held_runner(endless)
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
    runner = held_runner()
    async with serving(runner) as engine:
        generation = submit(engine, asked := request(10))
        impatient = asyncio.create_task(generation.result())
        patient = asyncio.create_task(generation.result())
        await held(runner)
        impatient.cancel()
        runner.release()
        check_prediction(runner, asked, await patient)


async def test_deadlines_end_those_that_run_and_those_that_wait() -> None:
    runner, clock = held_runner(endless), Clock()
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
        await all_end((*others, late), FinishReason.LENGTH)


async def test_a_failing_step_fails_its_requests_and_no_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runner = held_runner()
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


async def test_what_came_before_a_failing_step_is_kept() -> None:
    runner = held_runner(endless)
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


# --- the end: drained, stopped, failed or hanging -------------------------------------------------


async def test_draining_answers_those_inside_and_refuses_others() -> None:
    runner = held_runner()
    async with serving(runner) as engine:
        inside = submit_many(engine, [request(10 + i) for i in range(9)])
        draining = asyncio.create_task(engine.drain(60.0))
        await settled()
        with pytest.raises(UnavailableError, match="shutting down"):
            submit(engine, request(10))
        with pytest.raises(UnavailableError):
            engine.admit(3)
        runner.release()
        assert await draining
        assert not engine.is_serving
        await check_predictions(runner, inside)


async def test_a_drain_has_a_bound_and_stop_ends_the_rest() -> None:
    runner = held_runner(endless)
    engine = Engine.of_runner(runner)
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
    runner = held_runner(endless)
    engine = Engine.of_runner(runner)
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
    engine = Engine.of_runner(runner)
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

    runner, clock = held_runner(endless), BrokenClock()
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
