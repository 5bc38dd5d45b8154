"""The scheduler alone, driven step by step through a runner that checks every plan."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from service.batching.jobs import Job
from service.batching.scheduler import Finished, Scheduler, Update
from service.decoding.requests import (
    FinishReason,
    GenerationRequest,
    GenerationResult,
    SearchOptions,
)
from service.errors import DeadlineExceededError, InternalError, RequestCancelledError
from service.runtime.plan import RowCopy, RunnerLimits, StepPlan
from tests.arrivals_machine import SEARCHES
from tests.fake_runner import FakeRunner
from tests.searches import NoReply, moody_runner, outputs_foreseen, search_job

EOS = 3


def make_job(
    *source_ids: int, max_new_tokens: int = 64, now: float = 0.0, deadline: float | None = None
) -> Job:
    request = GenerationRequest((*source_ids, EOS), deadline=deadline)
    return Job(request, NoReply(), max_new_tokens, now)


def make_scheduler(runner: FakeRunner, encode_token_budget: int = 1000) -> Scheduler:
    return Scheduler(runner.limits, bos_id=2, eos_id=EOS, encode_token_budget=encode_token_budget)


def scripted(max_rows: int, **tokens: list[int]) -> FakeRunner:
    """A runner that answers the source (10, EOS) with the argument s10, and so on."""
    limits = RunnerLimits(max_rows, 64, 64, 2, 512)
    return FakeRunner(limits, lambda source_ids: tokens[f"s{source_ids[0]}"])


def step(scheduler: Scheduler, runner: FakeRunner, now: float = 0.0) -> list[Finished]:
    """One iteration; everybody who left in it."""
    schedule = scheduler.schedule(now)
    finished = list(schedule.dropped)
    if schedule.plan is not None:
        finished += scheduler.update(runner.execute(schedule.plan), now).finished
    return finished


def plan_of(scheduler: Scheduler, now: float = 0.0) -> StepPlan:
    plan = scheduler.schedule(now).plan
    assert plan is not None
    return plan


def test_rows_join_and_leave_between_steps() -> None:
    runner = scripted(2, s10=[5, EOS], s11=[5, 6, 7, EOS], s12=[8, EOS])
    scheduler = make_scheduler(runner)
    jobs = [make_job(10), make_job(11), make_job(12)]
    for job in jobs:
        scheduler.add([job])
    ended = [{finished.job for finished in step(scheduler, runner)} for _ in range(4)]
    # The third joins in the very step after the first has left, while the second goes on.
    assert ended == [set(), {jobs[0]}, set(), {jobs[1], jobs[2]}]
    assert [plan.num_rows for plan in runner.plans] == [2, 2, 2, 2]
    assert scheduler.schedule(0.0).plan is None


def test_newcomer_takes_the_hole_and_nothing_is_copied() -> None:
    runner = scripted(3, s10=[EOS], s11=[5, 6, EOS], s12=[5, 6, EOS], s13=[7, EOS])
    scheduler = make_scheduler(runner)
    for source in (10, 11, 12):
        scheduler.add([make_job(source)])
    step(scheduler, runner)
    scheduler.add([make_job(13)])
    plan = plan_of(scheduler)
    assert plan.copies == []
    assert [item.rows for item in plan.encodes] == [(0,)]
    assert plan.positions.tolist() == [0, 1, 1]


def test_last_row_moves_into_a_hole_that_nobody_takes() -> None:
    runner = scripted(3, s10=[EOS], s11=[5, 6, EOS], s12=[7, 8, EOS])
    scheduler = make_scheduler(runner)
    for source in (10, 11, 12):
        scheduler.add([make_job(source)])
    step(scheduler, runner)
    plan = plan_of(scheduler)
    assert plan.copies == [RowCopy(source=2, target=0, start=0, stop=1)]
    assert plan.token_ids.tolist() == [7, 5]
    assert plan.positions.tolist() == [1, 1]


def test_last_row_leaving_needs_no_copy() -> None:
    runner = scripted(2, s10=[5, 6, EOS], s11=[EOS])
    scheduler = make_scheduler(runner)
    scheduler.add([make_job(10)])
    scheduler.add([make_job(11)])
    step(scheduler, runner)
    plan = plan_of(scheduler)
    assert plan.copies == []
    assert plan.num_rows == 1


def test_encoding_keeps_to_the_token_budget_and_to_the_order() -> None:
    runner = FakeRunner(RunnerLimits(8, 64, 64, 2, 512))
    scheduler = make_scheduler(runner, encode_token_budget=10)
    lengths = [30, 4, 4, 4]  # the first exceeds the budget all alone
    for length in lengths:
        scheduler.add([make_job(*range(10, 10 + length - 1))])
    encoded = []
    for _ in range(3):
        schedule = scheduler.schedule(0.0)
        assert schedule.plan is not None
        encoded.append([len(job.request.source_ids) for job in schedule.admitted])
        scheduler.update(runner.execute(schedule.plan), 0.0)
    assert encoded == [[30], [4, 4], [4]]


def test_encodes_come_shortest_first() -> None:
    runner = FakeRunner(RunnerLimits(8, 64, 64, 2, 512))
    scheduler = make_scheduler(runner)
    for length in (9, 3, 7):
        scheduler.add([make_job(*range(10, 10 + length))])
    plan = plan_of(scheduler)
    assert [len(item.source_ids) for item in plan.encodes] == [4, 8, 10]


def test_length_limit_counts_eos() -> None:
    runner = scripted(2, s10=[5, 6, EOS], s11=[5, 6, EOS])
    scheduler = make_scheduler(runner)
    long_enough, too_short = make_job(10, max_new_tokens=3), make_job(11, max_new_tokens=2)
    scheduler.add([long_enough])
    scheduler.add([too_short])
    results = {f.job: f.result for _ in range(3) for f in step(scheduler, runner)}
    assert results[long_enough].finish_reason is FinishReason.EOS
    assert results[too_short].finish_reason is FinishReason.LENGTH
    assert results[long_enough].token_ids == results[too_short].token_ids == [5, 6]


def test_log_probability_is_the_sum_over_all_tokens_with_eos() -> None:
    runner = scripted(2, s10=[5, 6, EOS], s11=[EOS])
    scheduler = make_scheduler(runner)
    long, short = make_job(10), make_job(11)
    scheduler.add([long])
    scheduler.add([short])
    results = {f.job: f.result for _ in range(3) for f in step(scheduler, runner)}
    # FakeRunner gives every best token the logit 0 and a log-sum-exp of 0.5.
    assert results[short].log_probability == -0.5
    assert results[long].log_probability == -1.5


def test_times_are_told_apart() -> None:
    runner = scripted(1, s10=[5, EOS], s11=[EOS])
    scheduler = make_scheduler(runner)
    scheduler.add([make_job(10, now=1.0)])
    waiting = make_job(11, now=2.0)
    scheduler.add([waiting])
    for now in (3.0, 4.0):
        step(scheduler, runner, now)
    [finished] = step(scheduler, runner, 6.0)
    assert finished.job is waiting
    assert finished.result.queue_seconds == 4.0
    assert finished.result.compute_seconds == 0.0
    assert finished.result.first_token_seconds == 4.0


class SchedulerMachine(RuleBasedStateMachine):
    """Random arrivals, lengths, streams, cancellations, deadlines and failures."""

    def __init__(self) -> None:
        super().__init__()
        self.budget = 12
        self.runner = FakeRunner(RunnerLimits(3, 16, 24, 2, 512))
        self.scheduler = make_scheduler(self.runner, self.budget)
        self.now = 0.0
        self.arrived: list[Job] = []
        self.joined: list[Job] = []
        self.cancelled: set[Job] = set()
        self.ended: dict[Job, GenerationResult] = {}
        self.streamed: dict[Job, list[int]] = {}

    @rule(
        source=st.lists(st.integers(10, 99), max_size=14),
        max_new_tokens=st.integers(1, 24),
        patience=st.none() | st.integers(0, 20),
        streams=st.booleans(),
    )
    def arrive(
        self, source: list[int], max_new_tokens: int, patience: int | None, streams: bool
    ) -> None:
        deadline = None if patience is None else self.now + patience
        job = make_job(*source, max_new_tokens=max_new_tokens, now=self.now, deadline=deadline)
        self.arrived.append(job)
        self.scheduler.add([job])
        if streams:
            self.stream(job)

    @precondition(lambda self: self.alive())
    @rule(data=st.data())
    def start_to_stream(self, data: st.DataObject) -> None:
        self.stream(data.draw(st.sampled_from(self.alive())))

    @precondition(lambda self: self.ended)
    @rule(data=st.data())
    def ask_too_late(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(list(self.ended)))
        self.scheduler.cancel(job, RequestCancelledError("no more"))
        self.scheduler.stream(job)

    @precondition(lambda self: self.alive())
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(self.alive()))
        self.cancelled.add(job)
        self.scheduler.cancel(job, RequestCancelledError("no more"))

    @rule(seconds=st.integers(1, 5))
    def pass_time(self, seconds: int) -> None:
        self.now += seconds

    @rule()
    def step(self) -> None:
        plan = self.schedule()
        if plan is None:
            return
        self.take_in(self.scheduler.update(self.runner.execute(plan), self.now))

    @rule(most=st.integers(2, 20))
    def step_as_foreseen(self, most: int) -> None:
        """Several steps, before the first is taken in."""
        if (plan := self.schedule()) is None:
            return
        newcomers = [job for job in self.alive() if job.rows and job.first_token_at is None]
        outputs = outputs_foreseen(self.scheduler, self.runner, plan, most, self.now)
        waits = any(not job.rows for job in self.alive())
        assert len(outputs) == 1 or not waits, "somebody could join meanwhile"
        for output in outputs:
            update = self.scheduler.update(output, self.now)
            assert update.first_tokens == (newcomers if output is outputs[0] else [])
            assert output is outputs[-1] or not update.finished
            self.take_in(update)

    def take_in(self, update: Update) -> None:
        for job, tokens in update.streamed:
            self.streamed[job] += tokens
        for finished in update.finished:
            assert finished.result.finish_reason in (FinishReason.EOS, FinishReason.LENGTH)
            self.end(finished)

    @rule()
    def fail(self) -> None:
        plan = self.schedule()
        if plan is None:
            return
        running = [job for job in self.alive() if job.rows]
        failed = self.scheduler.fail_running(InternalError("broken"), self.now)
        assert {finished.job for finished in failed} == set(running)
        for finished in failed:
            assert finished.result.finish_reason is FinishReason.ERROR
            self.end(finished)

    def schedule(self) -> StepPlan | None:
        schedule = self.scheduler.schedule(self.now)
        for finished in schedule.dropped:
            job, reason = finished.job, finished.result.finish_reason
            if reason is FinishReason.CANCELLED:
                assert job in self.cancelled
            else:
                assert reason is FinishReason.DEADLINE
                assert job.deadline <= self.now
                assert isinstance(finished.result.error, DeadlineExceededError)
            self.end(finished)
        self.joined += schedule.admitted
        running = [job for job in self.alive() if job.rows]
        # Whoever cancelled or ran out of time is gone before the step.
        assert all(job.deadline > self.now for job in self.alive())
        assert not self.cancelled & set(self.alive())
        plan = schedule.plan
        assert (plan.num_rows if plan else 0) == len(running) == self.scheduler.num_running
        encoded = sum(len(job.request.source_ids) for job in schedule.admitted)
        assert encoded <= self.budget or len(schedule.admitted) == 1
        waiting = [job for job in self.alive() if not job.rows]
        if waiting and len(running) < self.runner.limits.max_rows:
            # A row stays free only for the sake of the budget.
            assert encoded + len(waiting[0].request.source_ids) > self.budget
        return plan

    def stream(self, job: Job) -> None:
        so_far = self.scheduler.stream(job)
        if job in self.streamed:
            assert self.streamed[job] == so_far
        self.streamed[job] = so_far

    def end(self, finished: Finished) -> None:
        job, result = finished.job, finished.result
        assert job not in self.ended, "answered twice"
        self.ended[job] = result
        predicted, reason = self.runner.predict(job.request.source_ids, job.max_new_tokens)
        assert result.token_ids == predicted[: len(result.token_ids)]
        if result.finish_reason in (FinishReason.EOS, FinishReason.LENGTH):
            assert (result.token_ids, result.finish_reason) == (predicted, reason)
        else:
            assert result.error is not None
        num_chosen = len(result.token_ids) + (result.finish_reason is FinishReason.EOS)
        assert result.log_probability == -0.5 * num_chosen
        if job in self.streamed:
            assert self.streamed[job] == result.token_ids[: len(self.streamed[job])]
            if result.finish_reason in (FinishReason.EOS, FinishReason.LENGTH):
                assert self.streamed[job] == result.token_ids

    def alive(self) -> list[Job]:
        return [job for job in self.arrived if job not in self.ended]

    @invariant()
    def nobody_is_lost(self) -> None:
        in_scheduler = self.scheduler.num_waiting + self.scheduler.num_running
        assert in_scheduler == len(self.alive())
        assert self.scheduler.is_idle == (not self.alive())
        rows = [row for job in self.alive() for row in job.rows]
        assert len(set(rows)) == len(rows), "two jobs share a row"

    @invariant()
    def first_come_first_served(self) -> None:
        assert self.joined == [job for job in self.arrived if job.admitted_at is not None]

    def teardown(self) -> None:
        bound = 25 * (len(self.alive()) + 1)
        for _ in range(bound):
            if not self.alive():
                break
            self.step()
        assert not self.alive(), "somebody waits for ever"
        assert self.scheduler.num_running == self.scheduler.num_waiting == 0


SchedulerMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
TestScheduler = pytest.mark.timeout(300)(SchedulerMachine.TestCase)


@pytest.mark.parametrize("options", SEARCHES)
def test_only_greedy_searches_are_foreseen(options: SearchOptions) -> None:
    scheduler, _ = moody_runner(max_rows=8)
    scheduler.add([search_job([10], options, 24), search_job([11], max_new_tokens=20)])
    plan_of(scheduler)
    assert scheduler.num_foreseen == (20 if options == SEARCHES[0] else 1)


def test_no_step_is_foreseen_while_somebody_waits_to_be_encoded() -> None:
    runner = scripted(2, s10=[5] * 20, s11=[6] * 20)
    scheduler = make_scheduler(runner, encode_token_budget=2)
    scheduler.add([make_job(10), make_job(11)])
    plan_of(scheduler)
    assert scheduler.num_waiting == scheduler.num_foreseen == 1


def test_a_plan_is_a_value() -> None:
    runner = scripted(1, s10=[5, 6, EOS])
    scheduler = make_scheduler(runner)
    scheduler.add([make_job(10)])
    for _ in range(3):
        step(scheduler, runner)
    fed = np.concatenate([plan.token_ids for plan in runner.plans])
    assert fed.tolist() == [2, 5, 6]
