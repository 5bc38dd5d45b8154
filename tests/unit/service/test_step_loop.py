"""The step loops without an engine: when they plan, what they tell, and that they rest."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from service.batching.jobs import Job
from service.batching.lane_loop import LaneLoop
from service.batching.lane_scheduler import LaneScheduler
from service.batching.plain_loop import PlainLoop
from service.batching.scheduler import Schedule, Scheduler
from service.batching.step_loop import Events, Iteration, StepLoop
from service.decoding.requests import GenerationResult, ScoringRequest
from service.errors import RequestCancelledError
from service.runtime.plan import RunnerLimits, ScoreItem, StepOutput, StepPlan, TargetScore
from tests.fake_lanes import FakeLanes
from tests.fake_runner import FakeRunner
from tests.fake_scorer import FakeScorer
from tests.searches import EOS, NoReply, search_job
from tests.unit.service.test_engine import Clock, endless

LIMITS = RunnerLimits(
    max_rows=4, max_source_positions=400, max_target_positions=64, top_k=4, vocab_size=512
)
BUDGET = 64


class Audience:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.iterations: list[Iteration] = []
        self.results: dict[Job, GenerationResult] = {}
        self._changed = threading.Condition()

    def told(self, news: Events) -> None:
        with self._changed:
            self.iterations += news.iterations
            self.results.update((finished.job, finished.result) for finished in news.finished)
            self._changed.notify_all()

    def ended(self, failed: bool) -> None:
        assert not failed

    def wait_for(self, job: Job) -> GenerationResult:
        with self._changed:
            assert self._changed.wait_for(lambda: job in self.results, 60.0), "no answer"
        return self.results[job]


class TickingRunner(FakeRunner):
    """Each step takes a second, before which `do` may say what happens."""

    def __init__(self, clock: Clock, limits: RunnerLimits = LIMITS) -> None:
        super().__init__(limits, endless)
        self._clock = clock
        self.do: dict[int, Callable[[], None]] = {}  # by the number of steps before
        self.always: Callable[[], None] = lambda: None

    def execute(self, plan: StepPlan) -> StepOutput:
        if len(self.plans) in self.do:
            self.do.pop(len(self.plans))()
        self.always()
        self._clock.now += 1
        return super().execute(plan)


class CountingScheduler(Scheduler):
    """Counts what it is asked."""

    num_schedules = 0

    def schedule(self, now: float, may_join: Callable[[Job], bool] | None = None) -> Schedule:
        self.num_schedules += 1
        return super().schedule(now, may_join)


class CountingLanes(LaneScheduler):
    """Counts what it is asked."""

    num_schedules = num_looks = 0

    def ready(self) -> list[int]:
        self.num_looks += 1
        return super().ready()

    def schedule(self, number: int, now: float) -> Schedule:
        self.num_schedules += 1
        return super().schedule(number, now)


class NotingScorer(FakeScorer):
    """Notes how many steps came before each scoring."""

    def __init__(self, runner: FakeRunner) -> None:
        super().__init__()
        self.steps_before: list[int] = []
        self._runner = runner
        self.prepare()

    def score(self, items: Sequence[ScoreItem]) -> list[TargetScore]:
        self.steps_before.append(len(self._runner.plans))
        return super().score(items)


class Plain:
    """A started `PlainLoop` on a runner whose steps take a second each."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.runner = TickingRunner(self.clock)
        self.scheduler = CountingScheduler(LIMITS, bos_id=2, eos_id=EOS, encode_token_budget=BUDGET)
        self.audience = Audience()
        self.scorer = NotingScorer(self.runner)
        self.loop = PlainLoop(self.runner, self.scheduler, self.clock, self.audience, self.scorer)
        self.loop.start()

    def job(self, limit: int = 40) -> Job:
        return search_job([10], max_new_tokens=limit, now=self.clock.now)


@pytest.fixture
def plain() -> Any:
    made = Plain()
    yield made
    end(made.loop)


def end(loop: StepLoop) -> None:
    loop.stop()
    loop.join()


def score_job(num_source: int = 4) -> Job:
    request = ScoringRequest((*[10] * num_source, EOS), target_ids=(11, EOS))
    return Job(request, NoReply(), 2, 0.0)


def laned(num_lanes: int, limits: RunnerLimits = LIMITS) -> CountingLanes:
    return CountingLanes(
        [limits] * num_lanes, bos_id=2, eos_id=EOS, encode_token_budget=BUDGET, together=8
    )


def test_a_long_search_is_planned_a_few_times(plain: Plain) -> None:
    job = plain.job()
    plain.loop.add([job])
    result = plain.audience.wait_for(job)
    assert result.token_ids == endless(())[:40]
    assert len(plain.runner.plans) == 40
    assert plain.scheduler.num_schedules == 3, "40 steps, 16 at once"


def test_steps_that_follow_each_other_are_told_as_they_were(plain: Plain) -> None:
    job = plain.job()
    plain.loop.add([job])
    result = plain.audience.wait_for(job)
    assert result.first_token_seconds == 1.0
    assert result.compute_seconds == 40.0
    told = plain.audience.iterations
    assert [iteration.seconds for iteration in told] == [1.0] * 40
    assert [list(iteration.joined) for iteration in told] == [[job]] + [[]] * 39
    assert [list(iteration.first_token_seconds) for iteration in told] == [[1.0]] + [[]] * 39
    assert {plan.top_k for plan in plain.runner.plans} == {1}


def test_news_are_never_more_than_16_steps_old(plain: Plain) -> None:
    first, second = plain.job(), plain.job()
    untold: list[int] = []
    plain.runner.always = lambda: untold.append(
        len(plain.runner.plans) - len(plain.audience.iterations)
    )
    plain.runner.do[14] = lambda: plain.loop.add([second])
    plain.loop.add([first])
    for job in (first, second):
        plain.audience.wait_for(job)
    assert max(untold) <= 16
    assert len(plain.audience.iterations) == len(plain.runner.plans)


def test_a_score_waits_for_one_step(plain: Plain) -> None:
    job, score = plain.job(), score_job()
    plain.loop.add([job, score])
    plain.audience.wait_for(score)
    plain.audience.wait_for(job)
    assert plain.scorer.steps_before == [1]


def test_scores_are_paid_for_in_steps_that_might_have_followed_each_other(plain: Plain) -> None:
    job, dear, second = plain.job(), score_job(120), score_job()
    plain.runner.do[0] = lambda: plain.loop.add([dear])
    plain.runner.do[22] = lambda: plain.loop.add([second])
    plain.loop.add([job])
    plain.audience.wait_for(second)
    plain.audience.wait_for(job)
    assert plain.scorer.steps_before == [2, 24]


@pytest.mark.parametrize("num_lanes", [1, 2, 3])
def test_lanes_that_have_nothing_to_do_rest(num_lanes: int) -> None:
    scheduler, audience = laned(num_lanes), Audience()
    loop = LaneLoop(FakeLanes(LIMITS, num_lanes, endless), scheduler, Clock(), audience)
    loop.start()
    job = search_job([10], max_new_tokens=40)
    loop.add([job])
    audience.wait_for(job)
    assert scheduler.num_schedules <= 4, "40 steps, 16 at once"
    time.sleep(0.02)
    looks = scheduler.num_looks
    time.sleep(0.05)  # time in which a loop that polls would show
    assert scheduler.num_looks == looks
    end(loop)


@pytest.mark.parametrize("num_lanes", [2, 3])
def test_who_gives_up_before_it_is_in_a_lane_waits_for_one_step(num_lanes: int) -> None:
    """Of another lane than the one that is to drop it, which has nothing else to do."""
    limits = dataclasses.replace(LIMITS, max_rows=1)
    clock, audience = Clock(), Audience()
    lanes = FakeLanes(limits, num_lanes)
    runners = [TickingRunner(clock, limits) for _ in range(num_lanes)]
    lanes.runners[:] = runners
    loop = LaneLoop(lanes, laned(num_lanes, limits), clock, audience)
    short, long, third = (search_job([10], max_new_tokens=limit) for limit in (3, 40, 40))

    def give_up() -> None:
        loop.add([third])
        loop.cancel(third, RequestCancelledError("no more"))
        runners[1].always = lambda: unanswered.append(third not in audience.results)

    unanswered: list[bool] = []
    runners[0].do[2] = give_up  # in the short one's last step
    loop.add([short, long])
    loop.start()
    audience.wait_for(long)
    end(loop)
    assert len(unanswered) > 30
    assert sum(unanswered) <= 1
