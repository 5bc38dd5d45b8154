"""An engine with lanes, each on a thread of its own."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import threading
from itertools import pairwise

import pytest

from bench.submission import submit, submit_many
from model.bundle.tokenizer import Tokenizer
from service.domain.requests import FinishReason, SearchOptions
from service.engine.engine import Engine, EngineConfig
from service.errors import (
    InternalError,
    InvalidArgumentError,
    RequestCancelledError,
    UnavailableError,
)
from service.translation.options import TranslateOptions
from service.translation.translator import Translator
from tests.clock import Clock
from tests.fake_lanes import FakeLanes
from tests.unit.service.batching.served_lanes import LIMITS, all_busy, all_held, held_lanes, serving
from tests.unit.service.engine.served_engine import (
    Recorder,
    all_end,
    check_prediction,
    check_predictions,
    endless,
    request,
)


@pytest.mark.parametrize("num_lanes", [2, 3, 5])
async def test_each_gets_the_answer_it_gets_alone(num_lanes: int) -> None:
    runner, recorder = FakeLanes(LIMITS, num_lanes), Recorder()
    requests = [request(*range(10, 10 + i % 20)) for i in range(300)]
    async with serving(runner, recorder=recorder) as engine:
        await check_predictions(runner.runners[0], submit_many(engine, requests))
    assert len(recorder.finished) == len(recorder.admitted) == recorder.encodes == 300
    assert all("beside" in ways for ways in runner.ways)


async def test_one_at_a_time_has_the_whole_processor() -> None:
    runner = FakeLanes(LIMITS)
    async with serving(runner) as engine:
        for number in range(5):
            await submit(engine, request(*range(10, 20 + number))).result()
    assert set(runner.ways[0]) == {"alone"}
    assert not runner.ways[1]


async def test_what_many_leave_in_several_lanes_has_the_whole_processor_in_turn() -> None:
    runner, recorder = held_lanes(script=endless), Recorder()
    async with serving(runner, recorder=recorder) as engine:
        generations = await all_busy(engine, runner)
        assert [ways[-1] for ways in runner.ways] == ["beside", "beside"]
        many = generations[:3] + generations[5:]  # all but one of each lane
        for generation in many:
            generation.cancel()
        for fake in runner.runners:
            fake.allow()
        for generation in many:  # the last are answered when both lanes have been planned for
            assert (await generation.result()).finish_reason is FinishReason.CANCELLED
        num_steps, num_turns = [len(ways) for ways in runner.ways], len(runner.stepped)
        runner.release()
        await all_end(generations[3:5], FinishReason.LENGTH)
        # One may be in flight that began beside the other lane's; then they take turns.
        for ways, before in zip(runner.ways, num_steps, strict=True):
            assert set(ways[before + 1 :]) == {"alone"}
        both = runner.stepped[num_turns + 2 : num_turns + 20]
        assert all(lane != after for lane, after in pairwise(both)), "one had two turns"
    assert recorder.rows[-1] == 1, "a turn is of one lane's rows"
    assert max(recorder.rows) == 8, "beside each other, the rows of all lanes step"


async def test_a_single_lane_leaves_room_beside_many_rows() -> None:
    runner = held_lanes(num_lanes=1, script=endless)
    async with serving(runner, turn_rows=2) as engine:
        generations = submit_many(engine, [request(10 + n) for n in range(4)])
        await all_held(runner)
        [ways] = runner.ways
        assert ways == ["beside"]
        for generation in generations[:2]:
            generation.cancel()
        runner.release()
        await all_end(generations[2:], FinishReason.LENGTH)
        assert set(ways[1:]) == {"alone"}


@pytest.mark.parametrize(("num_rows", "way"), [(4, "alone"), (5, "beside")])
async def test_a_single_lane_takes_all_threads_up_to_four_rows(num_rows: int, way: str) -> None:
    runner = FakeLanes(dataclasses.replace(LIMITS, max_rows=8), num_lanes=1, script=endless)
    runner.hold()
    async with serving(runner, turn_rows=8) as engine:
        submit_many(engine, [request(10 + n) for n in range(num_rows)])
        await all_held(runner)
        assert runner.ways == [[way]]


async def test_lanes_step_at_the_same_time_and_wait_for_none_of_the_others() -> None:
    runner = held_lanes(script=endless)
    async with serving(runner, turn_rows=0) as engine:
        generations = await all_busy(engine, runner)
        # The second lane goes through its texts while the first one's step is in flight.
        runner.runners[1].release()
        results = [asyncio.ensure_future(generation.result()) for generation in generations]
        await asyncio.wait(results, return_when=asyncio.FIRST_COMPLETED)
        assert not runner.runners[0].plans
        runner.release()
        await asyncio.gather(*results)


async def test_a_step_that_fails_fails_its_own_lane() -> None:
    runner = held_lanes()
    async with serving(runner, turn_rows=0) as engine:
        requests = [request(*range(10, 18 + n)) for n in range(8)]
        generations = submit_many(engine, requests)
        await all_held(runner)
        runner.runners[1].fail_next(RuntimeError("broken"))
        runner.release()
        results = [await generation.result() for generation in generations]
        failed = [result for result in results if result.error is not None]
        assert len(failed) == 4
        assert all(isinstance(result.error, InternalError) for result in failed)
        for asked, result in zip(requests, results, strict=True):
            if result.error is None:
                check_prediction(runner.runners[0], asked, result)
        check_prediction(runner.runners[0], requests[0], await submit(engine, requests[0]).result())


async def test_the_cancelled_leave_before_their_lane_s_next_step() -> None:
    runner = held_lanes(script=endless)
    async with serving(runner, turn_rows=0) as engine:
        generations = await all_busy(engine, runner)
        for generation in generations[:7]:
            generation.cancel()
        results = [asyncio.ensure_future(generation.result()) for generation in generations]
        for fake in runner.runners:
            fake.allow()
        for result in await asyncio.gather(*results[:7]):
            assert result.finish_reason is FinishReason.CANCELLED
            assert isinstance(result.error, RequestCancelledError)
        runner.release()
        assert (await results[7]).finish_reason is FinishReason.LENGTH
    assert sorted(plan.num_rows for fake in runner.runners for plan in fake.plans[1:2]) == [1]


async def test_streams_and_deadlines_in_lanes() -> None:
    runner, clock = held_lanes(script=endless), Clock()
    async with serving(runner, turn_rows=0, clock=clock) as engine:
        requests = [request(10 + n, deadline=clock.now + 5 if n % 2 else None) for n in range(8)]
        generations = submit_many(engine, requests)
        await all_held(runner)
        clock.now += 6
        runner.release()
        for number, generation in enumerate(generations):
            if number % 2:
                assert (await generation.result()).finish_reason is FinishReason.DEADLINE
            else:
                streamed = [token async for tokens in generation for token in tokens]
                assert streamed == (await generation.result()).token_ids


async def test_a_loop_that_breaks_answers_all_and_leaves_a_lane_that_hangs_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runner = held_lanes(script=endless)
    clock = Clock()
    engine = Engine.of_runner(
        runner, EngineConfig(turn_rows_per_lane=0), clock=BreakableClock(clock)
    )
    await engine.start()
    generations = await all_busy(engine, runner)
    clock.now = math.nan
    runner.runners[1].release()  # whose step's end is looked at the clock for
    for generation in generations:
        assert isinstance((await generation.result()).error, UnavailableError)
    assert engine.has_failed
    assert not runner.closed, "a lane still steps"
    runner.release()
    await engine.stop()
    assert "the step loop failed" in caplog.text


async def test_what_waiting_requests_do_is_no_progress_of_lanes_that_hang() -> None:
    """Cancellations and encodes of waiting requests don't hide hung lanes from the watchdog."""
    runner = held_lanes(script=endless)
    async with serving(runner) as engine:
        await all_busy(engine, runner)
        waiting = submit_many(engine, [request(10 + n) for n in range(40)])
        reports = []
        for generation in waiting[:30]:
            generation.cancel()
            assert (await generation.result()).finish_reason is FinishReason.CANCELLED
            reports.append(num_reports(engine))
        # The first cancel brings along what was encoded before the lanes stepped.
        assert set(reports[1:]) == {reports[0]}
        runner.release()
        await waiting[30].result()
        assert num_reports(engine) > reports[0]


def num_reports(engine: Engine) -> int:
    progress = engine.pulse()
    assert progress is not None
    return progress.num_reports


def test_threads_begin_with_the_start() -> None:
    Engine.of_runner(FakeLanes(LIMITS))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("lane-")]


class BreakableClock:
    """A clock that raises outside of the event loop's thread when its time is set to NaN."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._owner = threading.get_ident()

    def __call__(self) -> float:
        if math.isnan(self._clock.now):
            if threading.get_ident() == self._owner:
                return 0.0
            raise RuntimeError("the clock is broken")
        return self._clock()


async def test_a_beam_wider_than_a_lane_is_refused() -> None:
    runner = FakeLanes(LIMITS)
    async with serving(runner) as engine:
        with pytest.raises(InvalidArgumentError, match=r"beam_size.* 4"):
            submit(engine, request(10, options=SearchOptions(beam_size=5)))
        await submit(engine, request(10, options=SearchOptions(beam_size=4))).result()


async def test_the_client_is_told_of_its_own_field(tokenizer: Tokenizer) -> None:
    wide = TranslateOptions(search=SearchOptions(beam_size=5))
    async with serving(FakeLanes(LIMITS)) as engine:
        translator = Translator(engine, tokenizer)
        with pytest.raises(InvalidArgumentError) as caught:
            await translator.translate(["A dog."], wide)
        assert caught.value.field == "options.search.beam_size"
        assert "4, the limit" in caught.value.description
