"""Encodes and scores beside the steps of lanes."""

from __future__ import annotations

import asyncio

import pytest

from bench.submission import submit, submit_many
from service.domain.plan import ScoreItem
from service.domain.requests import FinishReason, GenerationRequest, ScoringRequest
from service.engine.engine import Engine
from service.engine.generation import Generation
from service.errors import InternalError
from tests.clock import Clock
from tests.fake_lanes import FakeLanes
from tests.fake_scorer import FakeScorer
from tests.unit.service.batching.served_lanes import LIMITS, all_busy, all_held, held_lanes, serving
from tests.unit.service.engine.served_engine import (
    Recorder,
    all_end,
    check_prediction,
    endless,
    request,
    settled,
)


async def while_one_is_encoded(engine: Engine, runner: FakeLanes) -> list[Generation]:
    """Six requests that step, and a seventh whose encode has begun and does not end."""
    runner.hold()
    generations = submit_many(engine, [request(10 + n) for n in range(6)])
    await all_held(runner)
    runner.may_encode.clear()
    generations.append(submit(engine, request(30)))
    await asyncio.to_thread(runner.is_encoding.wait)
    for fake in runner.runners:
        fake.release()
    return generations


async def test_nobody_waits_for_another_s_encode() -> None:
    runner, recorder = FakeLanes(LIMITS, script=endless), Recorder()
    async with serving(runner, turn_rows=0, recorder=recorder) as engine:
        *others, new_request = await while_one_is_encoded(engine, runner)
        await all_end(others, FinishReason.LENGTH)
        assert recorder.encodes == 6
        runner.may_encode.set()
        check_prediction(runner.runners[0], new_request.request, await new_request.result())
    assert [len(sources) for sources in runner.encoded] == [6, 1]
    assert recorder.encodes == 7


async def test_few_are_encoded_where_they_join() -> None:
    runner = FakeLanes(LIMITS)
    async with serving(runner, turn_rows=2) as engine:
        for generation in submit_many(engine, [request(10 + n) for n in range(4)]):
            await generation.result()
    assert not runner.encoded


async def test_who_is_cancelled_while_it_is_encoded_never_joins() -> None:
    runner, clock = FakeLanes(LIMITS, script=endless), Clock()
    async with serving(runner, turn_rows=0, clock=clock) as engine:
        *others, new_request = await while_one_is_encoded(engine, runner)
        late = submit(engine, request(31, deadline=clock.now + 5))
        new_request.cancel()
        assert (await new_request.result()).finish_reason is FinishReason.CANCELLED
        clock.now += 6
        assert (await late.result()).finish_reason is FinishReason.DEADLINE
        runner.may_encode.set()
        await all_end(others, FinishReason.LENGTH)
        await submit(engine, request(32)).result()
    joined = [item.source_ids for fake in runner.runners for p in fake.plans for item in p.encodes]
    assert len(joined) == 7


async def test_an_encode_that_fails_fails_those_it_is_for(caplog: pytest.LogCaptureFixture) -> None:
    runner, recorder = FakeLanes(LIMITS, script=endless), Recorder()
    async with serving(runner, turn_rows=0, recorder=recorder) as engine:
        *others, new_request = await while_one_is_encoded(engine, runner)
        runner.failures.append(RuntimeError("broken"))
        runner.may_encode.set()
        error = (await new_request.result()).error
        assert isinstance(error, InternalError)
        assert "broken" not in str(error)
        assert "RuntimeError: broken" in caplog.text
        await all_end([*others, submit(engine, request(32))], FinishReason.LENGTH)
        runner.failures.append(RuntimeError("broken"))
        last = submit(engine, request(33, request_id="r-33"))
        assert (await last.result()).error is not None
        assert "encoding failed for the requests ['r-33']" in caplog.text
        assert recorder.queue[-1] == (0, 0), "nobody is left, and the gauges say so"


async def test_beside_an_encode_nobody_has_the_whole_processor() -> None:
    runner = FakeLanes(LIMITS, num_lanes=1, script=endless)
    async with serving(runner, turn_rows=2) as engine:
        runner.hold()
        generations = submit_many(engine, [request(10 + n) for n in range(4)])
        await all_held(runner)
        runner.may_encode.clear()
        new_request = submit(engine, request(30))
        runner.runners[0].allow()  # an encode begins between two steps
        await asyncio.to_thread(runner.is_encoding.wait)
        for generation in generations[:3]:
            generation.cancel()
        runner.runners[0].release()
        assert (await generations[3].result()).finish_reason is FinishReason.LENGTH
        [ways] = runner.ways
        assert set(ways) == {"beside"}
        runner.may_encode.set()
        await new_request.result()
        assert ways[-1] == "alone"


async def test_stopping_waits_for_an_encode() -> None:
    runner = FakeLanes(LIMITS, script=endless)
    async with serving(runner, turn_rows=0) as engine:
        generations = await while_one_is_encoded(engine, runner)
        stopping = asyncio.create_task(engine.stop())
        await settled()
        assert not runner.closed
        runner.may_encode.set()
        await stopping
        assert (await generations[-1].result()).finish_reason is FinishReason.CANCELLED


async def test_scores_beside_steps() -> None:
    runner = FakeLanes(LIMITS)
    async with serving(runner) as engine:
        await engine.prepare_scoring()
        asked = [ScoringRequest((10 + n, 3), target_ids=(11, 12, 3)) for n in range(30)]
        translated = [request(*range(10, 10 + n)) for n in range(30)]
        mixed: list[GenerationRequest] = [
            one for pair in zip(asked, translated, strict=True) for one in pair
        ]
        results = [await generation.result() for generation in submit_many(engine, mixed)]
    for one, result in zip(mixed, results, strict=True):
        if isinstance(one, ScoringRequest):
            score = FakeScorer().predict(ScoreItem(one.source_ids, one.target_ids))
            (hypothesis,) = result.hypotheses
            assert hypothesis.token_log_probabilities == score.log_probabilities.tolist()
        else:
            check_prediction(runner.runners[0], one, result)


async def test_a_scoring_that_fails_beside_steps_touches_nobody_else() -> None:
    runner, scorer = held_lanes(script=endless), FakeScorer()
    async with serving(runner, turn_rows=0, scorer=scorer) as engine:
        await engine.prepare_scoring()
        generations = await all_busy(engine, runner)
        scorer.failures.append(RuntimeError("broken"))
        failing = submit(engine, ScoringRequest((10, 3), target_ids=(11, 3)))
        cancelled = submit(engine, ScoringRequest((10, 3), target_ids=(12, 3)))
        cancelled.cancel()
        runner.release()
        assert isinstance((await failing.result()).error, InternalError)
        assert (await cancelled.result()).finish_reason is FinishReason.CANCELLED
        fine = await submit(engine, ScoringRequest((10, 3), target_ids=(11, 3))).result()
        assert fine.error is None
        await all_end(generations, FinishReason.LENGTH)


async def test_a_score_that_is_cancelled_while_another_lane_computes_it_ends_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runner, scorer = held_lanes(script=endless), FakeScorer()
    async with serving(runner, turn_rows=0, scorer=scorer) as engine:
        await engine.prepare_scoring()
        generations = await all_busy(engine, runner)
        runner.runners[0].allow()
        await asyncio.to_thread(runner.runners[0].wait_until_blocked)
        [plan] = runner.runners[0].plans
        in_first = {item.source_ids for item in plan.encodes}
        there = [one for one in generations if one.request.source_ids in in_first]
        assert len(there) == 4
        for generation in there[1:]:
            generation.cancel()
        runner.runners[0].allow()
        for generation in there[1:]:
            await generation.result()
        # The second lane has more rows now, so that it scores; the first steps beside it.
        scorer.may_score.clear()
        score = submit(engine, ScoringRequest((10, 3), request_id="r-1", target_ids=(11, 3)))
        runner.runners[1].release()
        await asyncio.to_thread(scorer.is_scoring.wait)
        score.cancel()
        runner.runners[0].allow()
        assert (await score.result()).finish_reason is FinishReason.CANCELLED
        scorer.may_score.set()
        runner.release()
        for generation in generations:
            if generation not in there[1:]:
                assert (await generation.result()).finish_reason is FinishReason.LENGTH
        scorer.failures.append(RuntimeError("broken"))
        failing = submit(engine, ScoringRequest((10, 3), request_id="r-2", target_ids=(11, 3)))
        assert isinstance((await failing.result()).error, InternalError)
    assert "scoring failed for the requests ['r-2']" in caplog.text
    assert "Exception in callback" not in caplog.text
