"""An engine whose rows are in lanes, each on a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from service.engine import Engine, EngineConfig
from service.errors import InternalError, InvalidArgumentError, RequestCancelledError
from service.fake_lanes import FakeLanes
from service.fake_scorer import FakeScorer
from service.plan import RunnerLimits, ScoreItem
from service.requests import FinishReason, GenerationRequest, ScoringRequest, SearchOptions
from tests.unit.service.test_engine import Recorder, check_prediction, endless, request, settled

LIMITS = RunnerLimits(
    max_rows=4, max_source_positions=32, max_target_positions=40, top_k=2, vocab_size=512
)


@asynccontextmanager
async def serving(
    runner: FakeLanes, together: int = 2, recorder: Recorder | None = None
) -> AsyncIterator[Engine]:
    engine = Engine(runner, EngineConfig(rows_together=together), recorder, FakeScorer())
    await engine.start()
    try:
        yield engine
    finally:
        runner.release()
        await engine.stop()
        assert runner.closed
        assert not engine.has_failed


async def all_held(runner: FakeLanes) -> None:
    """Wait until every lane has a step under way that does not end."""
    for fake in runner.runners:
        await asyncio.to_thread(fake.wait_until_blocked)


async def test_each_gets_the_answer_it_gets_alone() -> None:
    runner, recorder = FakeLanes(LIMITS), Recorder()
    requests = [request(*range(10, 10 + i % 20)) for i in range(300)]
    async with serving(runner, recorder=recorder) as engine:
        for asked, generation in zip(requests, engine.submit_many(requests), strict=True):
            check_prediction(runner.runners[0], asked, await generation.result())
    assert len(recorder.finished) == len(recorder.admitted) == recorder.encodes == 300
    assert all("beside" in ways for ways in runner.ways)


async def test_one_at_a_time_has_the_whole_processor() -> None:
    runner = FakeLanes(LIMITS)
    async with serving(runner) as engine:
        for number in range(5):
            await engine.submit(request(*range(10, 20 + number))).result()
    assert set(runner.ways[0]) == {"alone"}
    assert not runner.ways[1]


async def test_lanes_step_at_the_same_time_and_wait_for_none_of_the_others() -> None:
    runner = FakeLanes(LIMITS, script=endless)
    runner.hold()
    async with serving(runner, together=0) as engine:
        generations = engine.submit_many([request(10 + n) for n in range(8)])
        await all_held(runner)
        # The second lane goes through its texts while the first one's step is under way.
        runner.runners[1].release()
        results = [asyncio.ensure_future(generation.result()) for generation in generations]
        await asyncio.wait(results, return_when=asyncio.FIRST_COMPLETED)
        assert not runner.runners[0].plans
        runner.release()
        await asyncio.gather(*results)


async def test_a_step_that_fails_fails_its_own_lane() -> None:
    runner = FakeLanes(LIMITS)
    runner.hold()
    async with serving(runner, together=0) as engine:
        requests = [request(*range(10, 18 + n)) for n in range(8)]
        generations = engine.submit_many(requests)
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
        check_prediction(runner.runners[0], requests[0], await engine.submit(requests[0]).result())


async def test_the_cancelled_leave_before_their_lane_s_next_step() -> None:
    runner = FakeLanes(LIMITS, script=endless)
    runner.hold()
    async with serving(runner, together=0) as engine:
        generations = engine.submit_many([request(10 + n) for n in range(8)])
        await all_held(runner)
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


async def test_stopping_ends_everybody() -> None:
    runner = FakeLanes(LIMITS, script=endless)
    runner.hold()
    async with serving(runner, together=0) as engine:
        generations = engine.submit_many([request(10 + n) for n in range(20)])
        await all_held(runner)
        stopping = asyncio.create_task(engine.stop())
        await settled()
        runner.release()
        await stopping
        for generation in generations:
            assert (await generation.result()).finish_reason is FinishReason.CANCELLED


async def test_scores_beside_steps() -> None:
    runner = FakeLanes(LIMITS)
    async with serving(runner) as engine:
        await engine.prepare_scoring()
        asked = [ScoringRequest((10 + n, 3), target_ids=(11, 12, 3)) for n in range(30)]
        translated = [request(*range(10, 10 + n)) for n in range(30)]
        mixed: list[GenerationRequest] = [
            one for pair in zip(asked, translated, strict=True) for one in pair
        ]
        results = [await generation.result() for generation in engine.submit_many(mixed)]
    for one, result in zip(mixed, results, strict=True):
        if isinstance(one, ScoringRequest):
            score = FakeScorer().predict(ScoreItem(one.source_ids, one.target_ids))
            (hypothesis,) = result.hypotheses
            assert hypothesis.token_log_probabilities == score.log_probabilities.tolist()
        else:
            check_prediction(runner.runners[0], one, result)


async def test_a_beam_wider_than_a_lane_is_refused() -> None:
    runner = FakeLanes(LIMITS)
    async with serving(runner) as engine:
        with pytest.raises(InvalidArgumentError, match=r"beam_size.* 4"):
            engine.submit(request(10, options=SearchOptions(beam_size=5)))
        await engine.submit(request(10, options=SearchOptions(beam_size=4))).result()
