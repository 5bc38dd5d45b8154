"""How scores share iterations with translations."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.submission import submit, submit_many
from service.batching.async_scheduler import AsyncScheduler
from service.batching.output import Schedule
from service.batching.records import EngineRequest, RequestEntry
from service.batching.scheduler import Scheduler
from service.domain.plan import ScoreItem, TargetScore
from service.domain.requests import (
    GenerationRequest,
    ScoringRequest,
    SearchOptions,
)
from tests.fake_runner import FakeRunner
from tests.fake_scorer import FakeScorer
from tests.searches import ids, submitted
from tests.unit.service.translation.scoring import EOS, LIMITS, WIDE, attention, scoring, serving


def items_of(jobs: Sequence[RequestEntry]) -> list[ScoreItem]:
    return [
        ScoreItem(job.request.source_ids, job.request.target_ids)
        for job in jobs
        if isinstance(job.request, ScoringRequest)
    ]


async def test_scores_share_the_budget_of_encodes() -> None:
    """No iteration takes on more tokens of both kinds than the budget, unless one alone is more."""
    scorer = FakeScorer()
    runner = FakeRunner(LIMITS)
    requests = [scoring(10, 10) for _ in range(9)] + [scoring(30, 30)]
    async with serving(runner, scorer, encode_token_budget=65) as engine:
        for job in submit_many(engine, requests):
            await job.result()
    # A target's token counts twice.
    tokens = [
        [len(item.source_ids) + 2 * len(item.target_ids) for item in items]
        for items in scorer.items
    ]
    assert tokens == [[30, 30]] * 4 + [[30]] + [[90]]


async def test_while_somebody_waits_for_tokens_scores_take_a_quarter_of_it() -> None:
    runner, scorer = FakeRunner(LIMITS, lambda source_ids: [11] * 30), FakeScorer()
    async with serving(runner, scorer, encode_token_budget=120) as engine:
        runner.hold()
        running = submit(engine, GenerationRequest((10, EOS)))
        await asyncio.to_thread(runner.wait_until_blocked)
        # Each takes 15, and one is more than 30 all by itself.
        requests = [scoring(5, 5) for _ in range(6)] + [scoring(20, 20)]
        scorings = submit_many(engine, requests)
        runner.release()
        for job in scorings:
            assert (await job.result()).error is None
        await running.result()
    assert [len(items) for items in scorer.items] == [2, 2, 2, 1]
    assert sum(plan.num_rows for plan in runner.plans) == 31


def test_what_a_score_costs_beyond_its_part_later_iterations_pay() -> None:
    """However large pairs are, scores get no more of the model than their part."""
    scheduler = Scheduler([LIMITS], bos_id=2, eos_id=EOS, encode_token_budget=40)
    runner, scorer = FakeRunner(LIMITS, lambda source_ids: [11] * 30), FakeScorer()
    scorer.prepare()
    running = submitted(GenerationRequest((10, EOS)), 31, 0.0)
    scheduler.add([running])
    first = scheduler.schedule(0.0)
    assert first.plan is not None
    scheduler.update(runner.execute(first.plan), 0.0)
    # A part is 10. Each of the first two takes 3 * 15 and each of the others 3.
    sizes = [15, 15, 1, 1, 1, 1]
    scheduler.add(submitted(scoring(size, size), size, 0.0) for size in sizes)
    scored = []
    for _ in range(12):
        schedule = scheduler.schedule(0.0)
        assert schedule.plan is not None  # the row goes on in every one of them
        scheduler.update(runner.execute(schedule.plan), 0.0)
        scheduler.scored(schedule.scoring, scorer.score(items_of(schedule.scoring)), 0.0)
        scored.append([job.request.num_encoded_tokens for job in schedule.scoring])
    # 45 at once, of which 35 are owed, paid by three iterations and half of the fourth.
    nothing: list[int] = []
    assert scored == [
        [45], nothing, nothing, nothing, [45], nothing, nothing, nothing,
        [], [3, 3, 3], [3], nothing,
    ]  # fmt: skip


def test_attention_weights_are_reported_one_request_at_a_time() -> None:
    """The results of an iteration are one message, and reports of translations wait behind it."""
    scheduler = Scheduler([LIMITS], bos_id=2, eos_id=EOS, encode_token_budget=10_000)
    plain = [submitted(scoring(3, 3), 3, 0.0) for _ in range(4)]
    maps = [attention(1000) for _ in range(3)]
    scheduler.add([*plain[:2], *maps, *plain[2:]])
    scored = []
    while scheduler.num_waiting:
        schedule = scheduler.schedule(0.0)
        scores = [TargetScore(np.zeros(3, np.float32), np.zeros((3, 3), np.float32))]
        scheduler.scored(schedule.scoring, scores * len(schedule.scoring), 0.0)
        scored.append(ids(schedule.scoring))
    assert scored == [ids(plain[:2]), *([one.id] for one in maps), ids(plain[2:])]


def test_translations_go_on_between_attention_weights() -> None:
    scheduler = Scheduler([LIMITS], bos_id=2, eos_id=EOS, encode_token_budget=40)
    running = submitted(GenerationRequest((10, EOS)), 31, 0.0)
    # 9 tokens and 51 of 10 that are a part.
    arrivals = [[running], [attention(51 * 512) for _ in range(4)], *[[] for _ in range(24)]]
    schedules = stepping(scheduler, FakeRunner(LIMITS, one_then_the_end), arrivals)
    scored = [number for number, schedule in enumerate(schedules) if schedule.scoring]
    assert scored == [1, 7, 13, 19]


def test_what_waits_to_be_paid_for_does_not_keep_a_device_from_planning_ahead() -> None:
    scheduler = AsyncScheduler(LIMITS, bos_id=2, eos_id=EOS, encode_token_budget=40)
    runner = FakeRunner(LIMITS, lambda source_ids: [11] * 30)
    scorer = FakeScorer()
    scorer.prepare()
    scheduler.add([submitted(GenerationRequest((10, EOS)), 31, 0.0)])
    first = scheduler.schedule(0.0)
    assert first.plan is not None
    scheduler.add(submitted(scoring(15, 15), 15, 0.0) for _ in range(2))
    assert not scheduler.can_schedule()  # a score may go: not beside a step in flight
    scheduler.update(runner.execute(first.plan), 0.0)
    second = scheduler.schedule(0.0)
    assert len(second.scoring) == 1
    scheduler.scored(second.scoring, scorer.score(items_of(second.scoring)), 0.0)
    for _ in range(3):  # 35 tokens are owed, and 10 an iteration are paid
        assert scheduler.can_schedule()
        ahead = scheduler.schedule(0.0)
        assert ahead.plan is not None
        assert ahead.admitted == ahead.scoring == []
    assert not scheduler.can_schedule()


def stepping(
    scheduler: Scheduler, runner: FakeRunner, arrivals: Iterable[Sequence[EngineRequest]]
) -> Iterator[Schedule]:
    """Every iteration's schedule, for the requests that come before each."""
    scorer = FakeScorer()
    scorer.prepare()
    for jobs in arrivals:
        scheduler.add(jobs)
        schedule = scheduler.schedule(0.0)
        assert schedule.plan is not None
        scheduler.update(runner.execute(schedule.plan), 0.0)
        scheduler.scored(schedule.scoring, scorer.score(items_of(schedule.scoring)), 0.0)
        yield schedule


def one_then_the_end(source_ids: Sequence[int]) -> list[int]:
    return [11] * 30 if source_ids[0] == 10 else [EOS]


@pytest.mark.parametrize("client", ["the same", "another"])
@pytest.mark.parametrize("arrives", range(12))
def test_a_new_request_passes_scores_that_are_not_paid_for(arrives: int, client: str) -> None:
    """And loses no iteration where one may go at last."""
    scheduler = Scheduler([LIMITS], bos_id=2, eos_id=EOS, encode_token_budget=40)
    # More work than a score, so that its client's turn comes after one.
    long = GenerationRequest((*[10] * 31, EOS), client="another")
    running = submitted(long, 31, 0.0)
    new_request = submitted(GenerationRequest((12, EOS), client=client), 31, 0.0)
    # Each takes 90 of a part of 10.
    scores = [submitted(scoring(30, 30, client="the same"), 30, 0.0) for _ in range(9)]
    arrivals: list[list[EngineRequest]] = [[] for _ in range(30)]
    arrivals[0] = [running]
    arrivals[1] = scores
    arrivals[1 + arrives] = [*arrivals[1 + arrives], new_request]
    schedules = list(stepping(scheduler, FakeRunner(LIMITS, one_then_the_end), arrivals))
    assert new_request.id in ids(schedules[1 + arrives].admitted)
    scored = [number for number, schedule in enumerate(schedules) if schedule.scoring]
    assert len(scored) == 4
    assert all(later - earlier in (9, 10) for earlier, later in pairwise(scored))


def test_new_requests_at_every_iteration_keep_no_score_from_its_part() -> None:
    scheduler = Scheduler([WIDE], bos_id=2, eos_id=EOS, encode_token_budget=40)
    new_requests = [
        submitted(GenerationRequest((10 + n, EOS), client="another"), 31, 0.0) for n in range(30)
    ]
    arrivals = [[one] for one in new_requests]
    arrivals[0] += [submitted(scoring(15, 15), 15, 0.0) for _ in range(9)]  # 45 of 10
    schedules = list(stepping(scheduler, FakeRunner(WIDE, one_then_the_end), arrivals))
    scored = [number for number, schedule in enumerate(schedules) if schedule.scoring]
    assert all(later - earlier <= 6 for earlier, later in pairwise([0, *scored, len(schedules)]))
    for number, schedule in enumerate(schedules):
        # The iteration of a score that is larger than the budget has no room for anybody.
        assert (new_requests[number].id in ids(schedule.admitted)) == (number not in scored)


def test_a_new_request_passes_them_beside_a_step_in_flight() -> None:
    scheduler = AsyncScheduler(LIMITS, bos_id=2, eos_id=EOS, encode_token_budget=40)
    runner = FakeRunner(LIMITS, lambda source_ids: [11] * 30)
    arrivals = [
        [submitted(GenerationRequest((10, EOS)), 31, 0.0)],
        [submitted(scoring(15, 15), 15, 0.0) for _ in range(2)],
    ]
    *_, last = stepping(scheduler, runner, arrivals)
    assert len(last.scoring) == 1
    assert scheduler.schedule(0.0).plan is not None
    new_request = submitted(GenerationRequest((12, EOS)), 31, 0.0)
    scheduler.add([new_request])
    assert scheduler.can_schedule()
    assert ids(scheduler.schedule(0.0).admitted) == [new_request.id]


async def test_nothing_is_owed_to_rows_that_have_ended() -> None:
    runner, scorer = FakeRunner(LIMITS, lambda source_ids: [11] * 3), FakeScorer()
    async with serving(runner, scorer, encode_token_budget=4) as engine:
        jobs = submit_many(engine, [GenerationRequest((10, EOS)), *[scoring(30, 30)] * 5])
        for job in jobs:
            assert (await job.result()).error is None
    assert [len(items) for items in scorer.items] == [1] * 5


@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(1, 12), st.integers(1, 12), st.sampled_from("abc")),
        min_size=1,
        max_size=40,
    ),
    st.integers(8, 40),
)
def test_whoever_comes_is_answered_once_in_the_order_of_its_client_and_kind(
    arrivals: list[tuple[bool, int, int, str]], budget: int
) -> None:
    """Searches and scores of three clients through one scheduler, on a scripted model."""
    scheduler = Scheduler([LIMITS], bos_id=2, eos_id=EOS, encode_token_budget=budget)
    runner, scorer = FakeRunner(LIMITS), FakeScorer()
    scorer.prepare()
    jobs = []
    for is_score, num_source, num_target, client in arrivals:
        request: GenerationRequest = scoring(num_source, num_target, client=client)
        if not is_score:
            request = GenerationRequest(request.source_ids, SearchOptions(), client=client)
        jobs.append(submitted(request, 24, 0.0))
    scheduler.add(jobs)
    ended: list[int] = []
    begun: list[int] = []
    while not scheduler.is_idle:
        schedule = scheduler.schedule(0.0)
        admitted = [*schedule.admitted, *schedule.scoring]
        tokens = sum(entry.num_encoded_tokens for entry in admitted)
        assert tokens <= budget or len(admitted) == 1
        begun += sorted(ids(admitted))
        if schedule.plan is not None:
            finished = scheduler.update(runner.execute(schedule.plan), 0.0).finished
            ended += [item.id for item in finished]
        scores = scorer.score(items_of(schedule.scoring))
        ended += [item.id for item in scheduler.scored(schedule.scoring, scores, 0.0)]
    assert sorted(ended) == [job.id for job in jobs]

    def line(job: EngineRequest) -> tuple[str, int]:
        return job.request.client, job.request.num_rows

    for own in set(map(line, jobs)):
        in_order = [job.id for job in jobs if line(job) == own]
        assert [number for number in begun if number in in_order] == in_order
