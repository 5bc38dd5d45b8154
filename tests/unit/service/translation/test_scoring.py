"""Scoring inside the engine: beside the steps, under the token budget, apart in failure."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import weakref
from collections.abc import AsyncIterator

import pytest

from bench.submission import submit, submit_many
from service.domain.plan import ScoreItem
from service.domain.requests import (
    AlignmentKind,
    FinishReason,
    GenerationRequest,
    ScoringRequest,
)
from service.engine.engine import Engine
from service.errors import (
    DeadlineExceededError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    ResourceExhaustedError,
    UnavailableError,
)
from tests.clock import Clock
from tests.fake_runner import FakeRunner
from tests.fake_scorer import FakeScorer
from tests.unit.service.translation.scoring import EOS, LIMITS, scoring, serving


def predicted(request: ScoringRequest) -> list[float]:
    item = ScoreItem(request.source_ids, request.target_ids)
    log_probabilities: list[float] = FakeScorer().predict(item).log_probabilities.tolist()
    return log_probabilities


async def test_each_target_gets_its_own_score() -> None:
    requests = [scoring(1 + i % 7, 1 + i % 11) for i in range(50)]
    async with serving(FakeRunner(LIMITS), FakeScorer()) as engine:
        for request, job in zip(requests, submit_many(engine, requests), strict=True):
            result = await job.result()
            [found] = result.hypotheses
            assert result.finish_reason is FinishReason.EOS
            assert result.token_ids == found.token_ids == list(request.target_ids[:-1])
            assert found.token_log_probabilities == predicted(request)
            assert found.log_probability == found.score == sum(predicted(request))
            assert found.ended
        assert engine._admission.num_taken == 0


@pytest.mark.parametrize("kind", [None, "hard", "soft"])
async def test_a_result_holds_no_more_of_the_attention_than_is_wanted(
    kind: AlignmentKind | None,
) -> None:
    request = scoring(7, 5, alignment=kind)
    async with serving(FakeRunner(LIMITS), FakeScorer()) as engine:
        [found] = (await submit(engine, request).result()).hypotheses
    attention = FakeScorer().predict(ScoreItem(request.source_ids, request.target_ids)).attention
    assert (found.linked is None) == (kind is None)
    assert (found.attention is None) == (kind != "soft")
    if found.linked is not None:
        assert found.linked.tolist() == [0, 1, 2, 3]
        assert found.linked.base is None  # a view would keep the whole of it
    if found.attention is not None:
        assert found.attention.tobytes() == attention.tobytes()


async def test_a_target_without_an_end_is_scored_as_it_is() -> None:
    request = ScoringRequest((10, EOS), target_ids=(40, 41))
    async with serving(FakeRunner(LIMITS), FakeScorer()) as engine:
        result = await submit(engine, request).result()
    assert result.finish_reason is FinishReason.LENGTH
    assert result.token_ids == [40, 41]
    assert not result.hypotheses[0].ended


async def test_nothing_waits_for_a_row_that_only_wants_a_score() -> None:
    """A score is computed although all rows are and stay in use."""
    runner = FakeRunner(LIMITS, lambda source_ids: [11] * 30)
    async with serving(runner, FakeScorer()) as engine:
        runner.hold()
        running = submit_many(engine, [GenerationRequest((10, EOS))] * 2)
        await asyncio.to_thread(runner.wait_until_blocked)
        job = submit(engine, scoring())
        runner.allow(3)  # the step in flight, and one that the score comes with at the latest
        assert (await job.result()).error is None
        runner.release()
        for generation in running:
            assert (await generation.result()).token_ids == [11] * 30


async def test_too_little_memory_for_scores_is_told_as_such() -> None:
    scorer = FakeScorer()
    async with serving(FakeRunner(LIMITS), scorer) as engine:
        scorer.failures.append(MemoryError())
        result = await submit(engine, scoring()).result()
        assert isinstance(result.error, ResourceExhaustedError)
        assert "ran out of memory while it scored" in str(result.error)


async def test_a_failure_of_scoring_touches_nobody_else() -> None:
    runner, scorer = FakeRunner(LIMITS, lambda source_ids: [11] * 20), FakeScorer()
    async with serving(runner, scorer) as engine:
        running = submit(engine, GenerationRequest((10, EOS)))
        scorer.failures.append(RuntimeError("no memory"))
        result = await submit(engine, scoring()).result()
        assert result.finish_reason is FinishReason.ERROR
        assert isinstance(result.error, InternalError)
        assert (await running.result()).token_ids == [11] * 20
        assert (await submit(engine, scoring()).result()).error is None
        assert engine._admission.num_taken == 0


async def test_a_model_without_a_scoring_graph_says_so() -> None:
    async with serving(FakeRunner(LIMITS), None) as engine:
        assert not engine.can_score
        with pytest.raises(FailedPreconditionError, match="export its checkpoint again"):
            await engine.prepare_scoring()


class CountingScorer(FakeScorer):
    """Counts attempts to prepare, failed ones too, each of which waits until `may_go`."""

    def __init__(self) -> None:
        super().__init__()
        self.num_attempts = 0
        self.may_go = threading.Event()

    def prepare(self, graph: str = "scoring") -> None:
        self.num_attempts += 1
        assert self.may_go.wait(60.0)
        super().prepare(graph)


@contextlib.asynccontextmanager
async def unprepared(scorer: FakeScorer, clock: Clock) -> AsyncIterator[Engine]:
    engine = Engine.of_runner(FakeRunner(LIMITS), scorer=scorer, clock=clock)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()


async def test_what_can_t_be_loaded_is_tried_again_after_a_minute_and_not_before(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scorer, clock = CountingScorer(), Clock()
    scorer.may_go.set()
    async with unprepared(scorer, clock) as engine:
        scorer.failures.append(OSError("the file is gone"))
        for seconds in (0.0, 59.0):
            clock.now = 100.0 + seconds
            with pytest.raises(UnavailableError, match="scoring graph"):
                await engine.prepare_scoring()
        assert scorer.num_attempts == 1
        [entry] = [record for record in caplog.records if "scoring graph" in record.message]
        assert entry.message == "the scoring graph could not be loaded: the file is gone"
        assert entry.exc_info is None
        assert not (await submit(engine, GenerationRequest((10, EOS))).result()).error
        clock.now = 160.0
        await engine.prepare_scoring()
        await engine.prepare_scoring()
        assert scorer.num_attempts == 2
        assert not (await submit(engine, scoring()).result()).error


async def test_too_little_memory_to_load_says_when_to_come_back() -> None:
    scorer, clock = CountingScorer(), Clock()
    scorer.may_go.set()
    async with unprepared(scorer, clock) as engine:
        scorer.failures.append(MemoryError())
        for later, left in ((0.0, 60.0), (45.0, 15.0)):
            clock.now = 100.0 + later
            with pytest.raises(ResourceExhaustedError, match="out of memory") as caught:
                await engine.prepare_scoring()
            assert caught.value.retry_after_seconds == left


async def test_all_who_ask_meanwhile_wait_for_one_attempt() -> None:
    scorer = CountingScorer()
    async with unprepared(scorer, Clock()) as engine:
        first, *others = [asyncio.ensure_future(engine.prepare_scoring()) for _ in range(5)]
        while not scorer.num_attempts:
            await asyncio.sleep(0)
        first.cancel()  # who began it and went away takes nobody along
        scorer.may_go.set()
        await asyncio.gather(*others)
        assert scorer.num_attempts == 1
        with pytest.raises(asyncio.CancelledError):
            await first


async def test_an_engine_that_has_ended_lets_go_of_its_scorer() -> None:
    """It shares the runner's sessions, which would stay in memory."""
    scorer = FakeScorer()
    async with serving(FakeRunner(LIMITS), scorer) as engine:
        await submit(engine, scoring()).result()
    alive = weakref.ref(scorer)
    del scorer
    gc.collect()
    assert alive() is None
    assert engine.can_score  # what it was does not change
    other = Engine.of_runner(FakeRunner(LIMITS), scorer=FakeScorer())
    await other.stop()
    with pytest.raises(UnavailableError):
        await other.prepare_scoring()


@pytest.mark.parametrize(("num_source", "num_target"), [(33, 5), (5, 33)])
async def test_a_pair_that_does_not_fit_is_refused(num_source: int, num_target: int) -> None:
    async with serving(FakeRunner(LIMITS), FakeScorer()) as engine:
        field = "source_ids" if num_source > num_target else "target_ids"
        with pytest.raises(InvalidArgumentError, match=f"{field}: 33 tokens; .* 1 and 32"):
            submit(engine, scoring(num_source, num_target))
        assert engine._admission.num_taken == 0


async def test_deadlines_and_cancelling_end_what_waits() -> None:
    runner, scorer = FakeRunner(LIMITS, lambda source_ids: [11] * 30), FakeScorer()
    clock = Clock()
    async with serving(runner, scorer, clock=clock) as engine:
        runner.hold()
        running = submit(engine, GenerationRequest((10, EOS)))
        await asyncio.to_thread(runner.wait_until_blocked)
        cancelled = submit(engine, scoring())
        expiring = submit(engine, scoring(deadline=clock.now + 1.0))
        cancelled.cancel()
        clock.now += 1.0
        runner.release()
        assert (await cancelled.result()).finish_reason is FinishReason.CANCELLED
        result = await expiring.result()
        assert result.finish_reason is FinishReason.DEADLINE
        assert isinstance(result.error, DeadlineExceededError)
        await running.result()
    assert scorer.items == []
