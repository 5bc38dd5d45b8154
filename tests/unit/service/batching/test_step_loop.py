"""The step loops without an engine: planning, reports, and no work when idle."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from service.batching.events import Events, Iteration
from service.batching.lane_loop import LaneLoop
from service.batching.output import Schedule
from service.batching.records import EngineRequest
from service.batching.scheduler import Scheduler
from service.batching.step_loop import StepLoop
from service.domain.plan import RunnerLimits, ScoreItem, StepOutput, StepPlan, TargetScore
from service.domain.requests import (
    FinishReason,
    GenerationResult,
    ScoringRequest,
    SearchOptions,
)
from service.errors import RequestCancelledError
from tests.clock import Clock
from tests.fake_lanes import FakeLanes
from tests.fake_runner import FakeRunner
from tests.fake_scorer import FakeScorer
from tests.searches import EOS, search, submitted
from tests.unit.service.engine.served_engine import endless

LIMITS = RunnerLimits(
    max_rows=4, max_source_positions=400, max_target_positions=64, top_k=4, vocab_size=512
)
BUDGET = 64


class Recording:
    """Records the events."""

    def __init__(self) -> None:
        self.iterations: list[Iteration] = []
        self.results: dict[int, GenerationResult] = {}
        self._changed = threading.Condition()

    def on_events(self, events: Events) -> None:
        with self._changed:
            self.iterations += events.iterations
            self.results.update(events.finished)
            self._changed.notify_all()

    def on_end(self, failed: bool) -> None:
        assert not failed

    def wait_for(self, job: EngineRequest) -> GenerationResult:
        with self._changed:
            assert self._changed.wait_for(lambda: job.id in self.results, 60.0), "no answer"
        return self.results[job.id]


class TickingRunner(FakeRunner):
    """A runner with steps of one second, and a function `do` that is called before each."""

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
    """Counts its calls."""

    num_schedules = num_looks = 0

    def ready(self) -> list[int]:
        self.num_looks += 1
        return super().ready()

    def schedule(self, now: float, lane: int = 0) -> Schedule:
        self.num_schedules += 1
        return super().schedule(now, lane)


class NotingScorer(FakeScorer):
    """Records the number of steps before each scoring."""

    def __init__(self, runner: FakeRunner) -> None:
        super().__init__()
        self.steps_before: list[int] = []
        self._runner = runner
        self.prepare()

    def score(self, items: Sequence[ScoreItem]) -> list[TargetScore]:
        self.steps_before.append(len(self._runner.plans))
        return super().score(items)


class Plain:
    """A started loop of one lane on a runner with steps of one second."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.runner = TickingRunner(self.clock)
        self.scheduler = laned(1)
        self.recording = Recording()
        self.scorer = NotingScorer(self.runner)
        self.loop = LaneLoop(self.runner, self.scheduler, self.clock, self.recording, self.scorer)
        self.loop.start()

    def request(
        self,
        limit: int = 40,
        options: SearchOptions | None = None,
        seconds: float | None = None,
    ) -> EngineRequest:
        now = self.clock.now
        deadline = None if seconds is None else now + seconds
        return search([10], options, limit, now=now, deadline=deadline)


@pytest.fixture
def plain() -> Any:
    made = Plain()
    yield made
    end(made.loop)


def end(loop: StepLoop) -> None:
    loop.stop()
    loop.join()


def score_request(num_source: int = 4) -> EngineRequest:
    request = ScoringRequest((*[10] * num_source, EOS), target_ids=(11, EOS))
    return submitted(request, 2, 0.0)


def laned(num_lanes: int, limits: RunnerLimits = LIMITS) -> CountingScheduler:
    return CountingScheduler(
        [limits] * num_lanes, bos_id=2, eos_id=EOS, encode_token_budget=BUDGET, max_turn_rows=8
    )


@pytest.mark.parametrize(
    "options", [SearchOptions(), SearchOptions(suppressed_ids=(400,), min_new_tokens=3)]
)
def test_a_long_search_is_planned_a_few_times(plain: Plain, options: SearchOptions) -> None:
    job = plain.request(options=options)
    plain.loop.add([job])
    result = plain.recording.wait_for(job)
    assert result.token_ids == endless(())[:40]
    assert len(plain.runner.plans) == 40
    assert plain.scheduler.num_schedules == 3, "40 steps, 16 at once"


def test_steps_that_follow_each_other_are_reported_as_they_were(plain: Plain) -> None:
    job = plain.request()
    plain.loop.add([job])
    result = plain.recording.wait_for(job)
    assert result.first_token_seconds == 1.0
    assert result.compute_seconds == 40.0
    reported = plain.recording.iterations
    assert [iteration.seconds for iteration in reported] == [1.0] * 40
    assert [list(iteration.admitted) for iteration in reported] == [[job.id]] + [[]] * 39
    assert {plan.top_k for plan in plain.runner.plans} == {1}


@pytest.mark.parametrize("num_rows", [1, 3])
def test_an_arrival_waits_for_one_step(plain: Plain, num_rows: int) -> None:
    running, new = [plain.request() for _ in range(num_rows)], plain.request()
    plain.runner.do[5] = lambda: plain.loop.add([new])
    plain.loop.add(running)
    for job in (*running, new):
        plain.recording.wait_for(job)
    assert [plan.num_rows for plan in plain.runner.plans][5:7] == [num_rows, num_rows + 1]


def test_a_cancelled_search_leaves_after_one_step(plain: Plain) -> None:
    job = plain.request()
    plain.runner.do[5] = lambda: plain.loop.cancel(job.id, RequestCancelledError("no more"))
    plain.loop.add([job])
    result = plain.recording.wait_for(job)
    assert result.finish_reason is FinishReason.CANCELLED
    assert result.token_ids == endless(())[:6]
    assert len(plain.runner.plans) == 6


def test_a_deadline_ends_the_steps_that_follow_each_other(plain: Plain) -> None:
    job = plain.request(seconds=5)
    plain.loop.add([job])
    assert plain.recording.wait_for(job).finish_reason is FinishReason.DEADLINE
    assert len(plain.runner.plans) == 5


def test_a_step_that_fails_keeps_the_tokens_before_it(plain: Plain) -> None:
    job = plain.request()
    plain.runner.do[5] = lambda: plain.runner.fail_next(RuntimeError("broken"))
    plain.loop.add([job])
    result = plain.recording.wait_for(job)
    assert result.finish_reason is FinishReason.ERROR
    assert result.token_ids == endless(())[:5]
    assert result.first_token_seconds == 1.0
    assert [iteration.num_rows for iteration in plain.recording.iterations] == [1] * 5 + [0]


def test_reports_are_never_more_than_16_steps_old(plain: Plain) -> None:
    first, second = plain.request(), plain.request()
    unreported: list[int] = []
    plain.runner.always = lambda: unreported.append(
        len(plain.runner.plans) - len(plain.recording.iterations)
    )
    plain.runner.do[14] = lambda: plain.loop.add([second])
    plain.loop.add([first])
    for job in (first, second):
        plain.recording.wait_for(job)
    assert max(unreported) <= 16
    assert len(plain.recording.iterations) == len(plain.runner.plans)


def test_a_score_waits_for_one_step(plain: Plain) -> None:
    job, score = plain.request(), score_request()
    plain.loop.add([job, score])
    plain.recording.wait_for(score)
    plain.recording.wait_for(job)
    assert plain.scorer.steps_before == [1]


def test_scores_are_paid_for_in_steps_that_might_have_followed_each_other(plain: Plain) -> None:
    job, dear, second = plain.request(), score_request(120), score_request()
    plain.runner.do[0] = lambda: plain.loop.add([dear])
    plain.runner.do[22] = lambda: plain.loop.add([second])
    plain.loop.add([job])
    plain.recording.wait_for(second)
    plain.recording.wait_for(job)
    assert plain.scorer.steps_before == [2, 24]


@pytest.mark.parametrize("num_lanes", [1, 2, 3])
def test_lanes_that_have_nothing_to_do_rest(num_lanes: int) -> None:
    scheduler, recording = laned(num_lanes), Recording()
    loop = LaneLoop(FakeLanes(LIMITS, num_lanes, endless), scheduler, Clock(), recording)
    loop.start()
    job = search([10], max_new_tokens=40)
    loop.add([job])
    recording.wait_for(job)
    assert scheduler.num_schedules <= 4, "40 steps, 16 at once"
    # A lane may still be on its way to rest; a loop that polls never rests.
    num_looks = -1
    for _ in range(100):
        if num_looks == (num_looks := scheduler.num_looks):
            break
        time.sleep(0.05)
    else:
        pytest.fail("the lanes poll")
    end(loop)


@pytest.mark.parametrize("num_lanes", [2, 3])
def test_who_gives_up_before_it_is_in_a_lane_waits_for_one_step(num_lanes: int) -> None:
    """The step is of another lane than the idle one that drops the request."""
    limits = dataclasses.replace(LIMITS, max_rows=1)
    clock, recording = Clock(), Recording()
    lanes = FakeLanes(limits, num_lanes)
    runners = [TickingRunner(clock, limits) for _ in range(num_lanes)]
    lanes.runners[:] = runners
    loop = LaneLoop(lanes, laned(num_lanes, limits), clock, recording)
    short, long, third = (search([10], max_new_tokens=limit) for limit in (3, 40, 40))

    def give_up() -> None:
        loop.add([third])
        loop.cancel(third.id, RequestCancelledError("no more"))
        runners[1].always = lambda: unanswered.append(third.id not in recording.results)

    unanswered: list[bool] = []
    runners[0].do[2] = give_up  # in the short one's last step
    loop.add([short, long])
    loop.start()
    recording.wait_for(long)
    end(loop)
    assert len(unanswered) > 30
    assert sum(unanswered) <= 1
