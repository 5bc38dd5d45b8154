"""The end of an engine: drained, stopped, failed or hanging."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from bench.submission import submit, submit_many
from service.batching.events import Iteration
from service.domain.requests import (
    FinishReason,
)
from service.engine.engine import Engine
from service.engine.interface import EngineObserver
from service.errors import (
    UnavailableError,
)
from tests.fake_runner import FakeRunner
from tests.unit.service.engine.served_engine import (
    LIMITS,
    Clock,
    check_prediction,
    check_predictions,
    endless,
    held,
    held_runner,
    request,
    serving,
    settled,
)


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
    runner = held_runner(endless)
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
