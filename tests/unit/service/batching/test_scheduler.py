"""The scheduler alone, driven step by step through a runner that checks every plan."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from service.batching.output import Update
from service.batching.records import EngineRequest, Finished
from service.batching.scheduler import Scheduler
from service.domain.plan import RowCopy, RunnerLimits, StepPlan
from service.domain.requests import (
    FinishReason,
    GenerationRequest,
    GenerationResult,
    SearchOptions,
)
from service.errors import DeadlineExceededError, InternalError, RequestCancelledError
from tests.arrivals_machine import SEARCHES
from tests.fake_runner import FakeRunner
from tests.searches import (
    entries_of,
    ids,
    moody_runner,
    outputs_foreseen,
    rows_of,
    search,
    submitted,
)

EOS = 3


def make_request(
    *source_ids: int, max_new_tokens: int = 64, now: float = 0.0, deadline: float | None = None
) -> EngineRequest:
    request = GenerationRequest((*source_ids, EOS), deadline=deadline)
    return submitted(request, max_new_tokens, now)


def make_scheduler(runner: FakeRunner, encode_token_budget: int = 1000) -> Scheduler:
    return Scheduler([runner.limits], bos_id=2, eos_id=EOS, encode_token_budget=encode_token_budget)


def scripted(max_rows: int, **tokens: list[int]) -> FakeRunner:
    """A runner that answers the source (10, EOS) with the argument s10, and so on."""
    limits = RunnerLimits(max_rows, 64, 64, 2, 512)
    return FakeRunner(limits, lambda source_ids: tokens[f"s{source_ids[0]}"])


def step(scheduler: Scheduler, runner: FakeRunner, now: float = 0.0) -> list[Finished]:
    """Run one iteration; returns the requests that left in it."""
    schedule = scheduler.schedule(now)
    finished = list(schedule.dropped)
    if schedule.plan is not None:
        finished += scheduler.update(runner.execute(schedule.plan), now).finished
    return finished


def plan_of(scheduler: Scheduler) -> StepPlan:
    plan = scheduler.schedule(0.0).plan
    assert plan is not None
    return plan


def test_a_new_request_takes_the_free_row_and_nothing_is_copied() -> None:
    runner = scripted(3, s10=[EOS], s11=[5, 6, EOS], s12=[5, 6, EOS], s13=[7, EOS])
    scheduler = make_scheduler(runner)
    for source in (10, 11, 12):
        scheduler.add([make_request(source)])
    step(scheduler, runner)
    scheduler.add([make_request(13)])
    plan = plan_of(scheduler)
    assert plan.copies == []
    assert [item.rows for item in plan.encodes] == [(0,)]
    assert plan.positions.tolist() == [0, 1, 1]


def test_last_row_moves_into_a_hole_that_nobody_takes() -> None:
    runner = scripted(3, s10=[EOS], s11=[5, 6, EOS], s12=[7, 8, EOS])
    scheduler = make_scheduler(runner)
    for source in (10, 11, 12):
        scheduler.add([make_request(source)])
    step(scheduler, runner)
    plan = plan_of(scheduler)
    assert plan.copies == [RowCopy(source=2, target=0, start=0, stop=1)]
    assert plan.token_ids.tolist() == [7, 5]
    assert plan.positions.tolist() == [1, 1]


def test_last_row_leaving_needs_no_copy() -> None:
    runner = scripted(2, s10=[5, 6, EOS], s11=[EOS])
    scheduler = make_scheduler(runner)
    scheduler.add([make_request(10)])
    scheduler.add([make_request(11)])
    step(scheduler, runner)
    plan = plan_of(scheduler)
    assert plan.copies == []
    assert plan.num_rows == 1


def test_encodes_come_shortest_first() -> None:
    runner = FakeRunner(RunnerLimits(8, 64, 64, 2, 512))
    scheduler = make_scheduler(runner)
    for length in (9, 3, 7):
        scheduler.add([make_request(*range(10, 10 + length))])
    plan = plan_of(scheduler)
    assert [len(item.source_ids) for item in plan.encodes] == [4, 8, 10]


def test_times_are_told_apart() -> None:
    runner = scripted(1, s10=[5, EOS], s11=[EOS])
    scheduler = make_scheduler(runner)
    scheduler.add([make_request(10, now=1.0)])
    waiting = make_request(11, now=2.0)
    scheduler.add([waiting])
    for now in (3.0, 4.0):
        step(scheduler, runner, now)
    [finished] = step(scheduler, runner, 6.0)
    assert finished.id == waiting.id
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
        self.arrived: list[EngineRequest] = []
        self.joined: list[int] = []
        self.cancelled: set[EngineRequest] = set()
        self.ended: dict[EngineRequest, GenerationResult] = {}
        self.streamed: dict[int, list[int]] = {}
        self.by_id: dict[int, EngineRequest] = {}

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
        job = make_request(*source, max_new_tokens=max_new_tokens, now=self.now, deadline=deadline)
        self.arrived.append(job)
        self.by_id[job.id] = job
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
        assert not self.scheduler.cancel(job.id, RequestCancelledError("no more"), self.now)
        assert not self.scheduler.stream(job.id)

    @precondition(lambda self: self.alive())
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(self.alive()))
        self.cancelled.add(job)
        for finished in self.scheduler.cancel(job.id, RequestCancelledError("no more"), self.now):
            assert finished.result.finish_reason is FinishReason.CANCELLED
            self.end(finished)

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
        """Run several steps before the first update."""
        if (plan := self.schedule()) is None:
            return
        running = [entries_of(self.scheduler)[job.id] for job in self.running()]
        new_requests = [entry for entry in running if entry.first_token_at is None]
        outputs = outputs_foreseen(self.scheduler, self.runner, plan, most, self.now)
        waits = self.scheduler.num_waiting > 0
        assert len(outputs) == 1 or not waits, "a request could join meanwhile"
        first_ended_at = self.now
        if len(outputs) > 1:
            self.scheduler.advance(outputs[:-1], self.now)
            self.now += 1
        self.take_in(self.scheduler.update(outputs[-1], self.now))
        assert all(entry.first_token_at == first_ended_at for entry in new_requests)

    def take_in(self, update: Update) -> None:
        for request_id, tokens in update.streamed:
            self.streamed[request_id] += tokens
        for finished in update.finished:
            assert finished.result.finish_reason in (FinishReason.EOS, FinishReason.LENGTH)
            self.end(finished)

    @rule()
    def fail(self) -> None:
        plan = self.schedule()
        if plan is None:
            return
        running = self.running()
        failed = self.scheduler.fail_step(InternalError("broken"), self.now)
        assert {finished.id for finished in failed} == {job.id for job in running}
        for finished in failed:
            assert finished.result.finish_reason is FinishReason.ERROR
            self.end(finished)

    def schedule(self) -> StepPlan | None:
        schedule = self.scheduler.schedule(self.now)
        for finished in schedule.dropped:
            job, reason = self.by_id[finished.id], finished.result.finish_reason
            if reason is FinishReason.CANCELLED:
                assert job in self.cancelled
            else:
                assert reason is FinishReason.DEADLINE
                assert job.request.deadline is not None
                assert job.request.deadline <= self.now
                assert isinstance(finished.result.error, DeadlineExceededError)
            self.end(finished)
        self.joined += ids(schedule.admitted)
        running = self.running()
        # Requests that were cancelled or expired are gone before the step.
        assert all(entry.deadline > self.now for entry in entries_of(self.scheduler).values())
        assert not self.cancelled & set(self.alive())
        plan = schedule.plan
        assert (plan.num_rows if plan else 0) == len(running) == self.scheduler.num_running
        encoded = sum(len(job.request.source_ids) for job in schedule.admitted)
        assert encoded <= self.budget or len(schedule.admitted) == 1
        waiting = [job for job in self.alive() if job not in running]
        if waiting and len(running) < self.runner.limits.max_rows:
            # A row stays free only for the sake of the budget.
            assert encoded + len(waiting[0].request.source_ids) > self.budget
        return plan

    def stream(self, job: EngineRequest) -> None:
        so_far = self.scheduler.stream(job.id)
        if job.id in self.streamed:
            assert self.streamed[job.id] == so_far
        self.streamed[job.id] = so_far

    def end(self, finished: Finished) -> None:
        job, result = self.by_id[finished.id], finished.result
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
        if job.id in self.streamed:
            streamed = self.streamed[job.id]
            assert streamed == result.token_ids[: len(streamed)]
            if result.finish_reason in (FinishReason.EOS, FinishReason.LENGTH):
                assert streamed == result.token_ids

    def alive(self) -> list[EngineRequest]:
        return [job for job in self.arrived if job not in self.ended]

    def running(self) -> list[EngineRequest]:
        return [job for job in self.alive() if rows_of(self.scheduler, job)]

    @invariant()
    def no_request_is_lost(self) -> None:
        in_scheduler = self.scheduler.num_waiting + self.scheduler.num_running
        assert in_scheduler == len(self.alive())
        assert self.scheduler.is_idle == (not self.alive())
        rows = [row for job in self.alive() for row in rows_of(self.scheduler, job)]
        assert len(set(rows)) == len(rows), "two jobs share a row"

    @invariant()
    def first_come_first_served(self) -> None:
        joined = [job.id for job in self.arrived if job.id in self.joined]
        assert self.joined == joined

    def teardown(self) -> None:
        bound = 25 * (len(self.alive()) + 1)
        for _ in range(bound):
            if not self.alive():
                break
            self.step()
        assert not self.alive(), "a request waits for ever"
        assert self.scheduler.num_running == self.scheduler.num_waiting == 0


SchedulerMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
TestScheduler = pytest.mark.timeout(300)(SchedulerMachine.TestCase)


@pytest.mark.parametrize("options", SEARCHES)
def test_only_greedy_searches_are_foreseen(options: SearchOptions) -> None:
    scheduler, _ = moody_runner(max_rows=8)
    scheduler.add([search([10], options, 24), search([11], max_new_tokens=20)])
    plan_of(scheduler)
    follow = options == SEARCHES[0] or options.has_only_fixed_constraints
    assert scheduler.num_uninterrupted_steps() == (20 if follow else 1)


def test_a_forbidden_token_interrupts_the_steps_foreseen() -> None:
    runner = scripted(3, s10=[5, 6, 7, 8, EOS], s11=[9] * 8, s12=[EOS] * 8)
    scheduler = make_scheduler(runner)
    requests = [
        search([10], SearchOptions(suppressed_ids=(7, 20))),
        search([11], SearchOptions(suppressed_ids=(6, 7, 8))),
        search([12], SearchOptions(min_new_tokens=4), max_new_tokens=4),
    ]
    scheduler.add(requests[:2])
    outputs = outputs_foreseen(scheduler, runner, plan_of(scheduler), 16, 0.0)
    assert len(outputs) == 3, "the best token of the third step is forbidden in one row"
    scheduler.advance(outputs[:-1], 0.0)
    scheduler.update(outputs[-1], 0.0)
    assert scheduler.stream(requests[0].id) == [5, 6, 8]
    assert scheduler.stream(requests[1].id) == [9, 9, 9]
    scheduler.add(requests[2:])
    outputs = outputs_foreseen(scheduler, runner, plan_of(scheduler), 16, 0.0)
    assert len(outputs) == 1, "EOS may not be chosen yet"


def test_no_step_is_foreseen_while_somebody_waits_to_be_encoded() -> None:
    runner = scripted(2, s10=[5] * 20, s11=[6] * 20)
    scheduler = make_scheduler(runner, encode_token_budget=2)
    scheduler.add([make_request(10), make_request(11)])
    plan_of(scheduler)
    assert scheduler.num_waiting == scheduler.num_uninterrupted_steps() == 1


def test_a_plan_is_a_value() -> None:
    runner = scripted(1, s10=[5, 6, EOS])
    scheduler = make_scheduler(runner)
    scheduler.add([make_request(10)])
    for _ in range(3):
        step(scheduler, runner)
    fed = np.concatenate([plan.token_ids for plan in runner.plans])
    assert fed.tolist() == [2, 5, 6]
