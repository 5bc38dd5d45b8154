"""Scoring inside the engine: beside the steps, under the token budget, apart in failure."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.submission import submit, submit_many
from model.bundle.tokenizer import Tokenizer
from service.batching.async_scheduler import AsyncScheduler
from service.batching.output import Schedule
from service.batching.records import EngineRequest, RequestEntry
from service.batching.scheduler import Scheduler
from service.decoding.linked_sources import linked_sources
from service.domain.attention import AttentionKind, AttentionSelection
from service.domain.plan import RunnerLimits, ScoreItem, TargetScore
from service.domain.requests import (
    AlignmentKind,
    FinishReason,
    GenerationRequest,
    Hypothesis,
    ScoringRequest,
    SearchOptions,
)
from service.engine.engine import Engine, EngineConfig
from service.errors import (
    DeadlineExceededError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    ResourceExhaustedError,
    UnavailableError,
)
from service.translation import alignments
from service.translation.alignments import alignment_of, given_tokens, source_tokens
from service.translation.options import TranslateOptions, TranslatorLimits
from service.translation.pair_scorer import ScoreOptions
from service.translation.translator import Translator
from tests.factories import tiny_tokenizer
from tests.fake_runner import FakeRunner
from tests.fake_scorer import FakeScorer
from tests.searches import ids, submitted

EOS = 3
SELECTION = AttentionSelection(((AttentionKind.CROSS, (0,)),), heads=(0,))
LIMITS = RunnerLimits(
    max_rows=2, max_source_positions=32, max_target_positions=32, top_k=4, vocab_size=512
)
WIDE = RunnerLimits(
    max_rows=64, max_source_positions=512, max_target_positions=512, top_k=4, vocab_size=512
)


@contextlib.asynccontextmanager
async def serving(
    runner: FakeRunner,
    scorer: FakeScorer | None,
    *,
    clock: Callable[[], float] = time.monotonic,
    **config: Any,
) -> AsyncIterator[Engine]:
    engine = Engine(
        runner, EngineConfig(**{"max_waiting": 64, **config}), scorer=scorer, clock=clock
    )
    await engine.start()
    try:
        if scorer is not None:
            await engine.prepare_scoring()
        yield engine
    finally:
        runner.release()
        await engine.stop()


def scoring(num_source: int = 4, num_target: int = 5, **fields: Any) -> ScoringRequest:
    source, target = range(10, 9 + num_source), range(40, 39 + num_target)
    return ScoringRequest((*source, EOS), target_ids=(*target, EOS), **fields)


def items_of(jobs: Sequence[RequestEntry]) -> list[ScoreItem]:
    return [
        ScoreItem(job.request.source_ids, job.request.target_ids)
        for job in jobs
        if isinstance(job.request, ScoringRequest)
    ]


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


def attention(num_weights: int) -> EngineRequest:
    request = replace(scoring(3, 3), selection=SELECTION, num_weights=num_weights)
    return submitted(request, 3, 0.0)


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


class Clock:
    """A time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class CountingScorer(FakeScorer):
    """Counts attempts to prepare, failed ones too, each of which waits until `may_go`."""

    def __init__(self) -> None:
        super().__init__()
        self.num_attempts = 0
        self.may_go = threading.Event()

    def prepare(self, graph: str = "scoring") -> None:
        self.num_attempts += 1
        assert self.may_go.wait(30.0)
        super().prepare(graph)


@contextlib.asynccontextmanager
async def unprepared(scorer: FakeScorer, clock: Clock) -> AsyncIterator[Engine]:
    engine = Engine(FakeRunner(LIMITS), scorer=scorer, clock=clock)
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
    other = Engine(FakeRunner(LIMITS), scorer=FakeScorer())
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


# --- alignments ----------------------------------------------------------------------------------


@given(st.integers(1, 6), st.integers(1, 6), st.booleans(), st.integers(0, 2**32 - 1))
def test_links_are_the_largest_weights_of_the_words(
    num_source: int, num_target: int, ended: bool, seed: int
) -> None:
    attention = np.random.default_rng(seed).dirichlet(np.ones(num_source + 1), num_target + ended)
    token_ids = list(range(10, 10 + num_target))
    weights = attention.astype(np.float32)
    linked = linked_sources(weights, num_target)
    scored = Hypothesis(
        token_ids, [-1.0] * len(attention), -1.0, -1.0, ended, linked=linked, attention=weights
    )
    alignment = alignment_of(scored)
    assert alignment.rows is weights
    for target, (source, linked_target) in enumerate(alignment.links):
        assert linked_target == target
        assert source == int(weights[target, :-1].argmax())
    assert len(alignment.links) == num_target


def test_a_source_without_words_has_no_links() -> None:
    assert linked_sources(np.ones((3, 1), np.float32), 2).tolist() == []


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return tiny_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def test_tokens_know_where_they_stand(tokenizer: Tokenizer) -> None:
    text = "  A dog ﬁnds\n 12 €"
    *tokens, end = source_tokens(text, tokenizer)
    assert end.span == (len(text), len(text))
    assert "".join(text[slice(*token.span)] for token in tokens) == "Adogﬁnds12€"
    ids = tokenizer.encode(text)
    scored = Hypothesis(ids, [-1.0] * (len(ids) + 1), -1.0, -1.0, True)
    assert [token.span for token in given_tokens(text, scored, tokenizer)] == [
        token.span for token in (*tokens, end)
    ]


@given(text=st.text(max_size=30).filter(lambda text: "\0" not in text))
def test_spans_are_in_order_and_cover_what_is_written(tokenizer: Tokenizer, text: str) -> None:
    spans = tokenizer.encoded_spans(text)
    assert len(spans) == len(tokenizer.encode(text))
    assert all(0 <= start <= end <= len(text) for start, end in spans)
    assert all(first.end <= second.start for first, second in pairwise(spans))
    ids = tokenizer.encode(text)
    decoded = tokenizer.decode(ids)
    made = tokenizer.decoded_spans([*ids, tokenizer.eos_id])
    assert made[-1].start == made[-1].end
    assert "".join(decoded[start:end] for start, end in made) == "".join(decoded.split())


# --- how much of it one call may have ------------------------------------------------------------


@contextlib.asynccontextmanager
async def translating(
    tokenizer: Tokenizer, runner: FakeRunner, scorer: FakeScorer
) -> AsyncIterator[Translator]:
    async with serving(runner, scorer, encode_token_budget=100_000) as engine:
        limits = TranslatorLimits(max_characters=10_000)
        yield Translator(engine, tokenizer, limits=limits)


async def test_soft_alignments_that_are_too_large_altogether_are_refused_unscored(
    tokenizer: Tokenizer,
) -> None:
    scorer = FakeScorer()
    text = "A dog. " * 60
    size = len(tokenizer.encode(text)) + 1
    fit = alignments.MAX_SOFT_WEIGHTS // size**2
    assert fit < 1024  # a call may have so many pairs
    soft, hard = ScoreOptions(return_alignments="soft"), ScoreOptions(return_alignments="hard")
    async with translating(tokenizer, FakeRunner(WIDE), scorer) as translator:
        score = translator.scorer.score
        with pytest.raises(
            InvalidArgumentError, match=r"options.return_alignments: .*4,000,000 weights"
        ):
            await score([(text, text)] * (fit + 1), soft)
        assert scorer.items == []
        results = await score([(text, text)] * fit, soft)
        rows = [result.alignment.rows for result in results if result.alignment]
        assert [row.shape for row in rows if row is not None] == [(size, size)] * fit
        results = await score([(text, text)] * (fit + 1), hard)
        assert all(result.alignment and result.alignment.rows is None for result in results)


async def test_nor_may_those_of_translations_be(tokenizer: Tokenizer) -> None:
    runner = FakeRunner(WIDE, lambda source_ids: [11] * 400)
    text = "A dog. " * 60
    size = len(tokenizer.encode(text)) + 1
    texts = [text] * (alignments.MAX_SOFT_WEIGHTS // (size * 401) + 1)
    async with translating(tokenizer, runner, FakeScorer()) as translator:

        def options(kind: AlignmentKind) -> TranslateOptions:
            return TranslateOptions(
                split_sentences=False, max_new_tokens=401, return_alignments=kind
            )

        with pytest.raises(InvalidArgumentError, match=r"options.return_alignments: .*4,000,000"):
            await translator.translate(texts, options("soft"))
        assert len(await translator.translate(texts, options("hard"))) == len(texts)
        assert len(await translator.translate(texts[1:], options("soft"))) == len(texts) - 1


async def test_tokens_of_languages_are_no_part_of_a_score() -> None:
    source, target = (4, 20, 21, EOS), (5, 30, 31, EOS)
    async with serving(FakeRunner(LIMITS), FakeScorer()) as engine:
        for hidden in (0, 1):
            request = ScoringRequest(
                source,
                target_ids=target,
                num_hidden_source=hidden,
                num_hidden_target=hidden,
                alignment="soft",
            )
            result = await submit(engine, request).result()
            [found] = result.hypotheses
            whole = FakeScorer().predict(ScoreItem(source, target))
            assert found.token_ids == list(target[hidden:-1])
            shown = whole.log_probabilities[hidden:].tolist()
            assert found.token_log_probabilities == shown
            assert found.log_probability == pytest.approx(sum(shown))
            assert found.attention is not None
            assert found.linked is not None
            assert found.attention.shape == (4 - hidden, 4 - hidden)
            assert found.attention.sum(axis=1) == pytest.approx(np.ones(4 - hidden))
            assert found.linked.tolist() == list(range(3 - hidden))
