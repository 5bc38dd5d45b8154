"""Searches of every kind come, go and fail at random: no row leaks, nobody's answer changes."""

from __future__ import annotations

import functools

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from service.errors import InternalError, RequestCancelledError
from service.jobs import Job
from service.plan import StepPlan
from service.requests import (
    FinishReason,
    GenerationResult,
    Hypothesis,
    Priority,
    Sampling,
    SearchOptions,
)
from service.scheduler import Finished
from tests.searches import moody_runner, run_all, search_job

MAX_ROWS = 7
SEARCHES = [
    SearchOptions(),
    SearchOptions(beam_size=2, num_hypotheses=2),
    SearchOptions(beam_size=3, length_penalty=0.6, length_penalty_kind="gnmt"),
    SearchOptions(beam_size=3, num_hypotheses=2, early_stopping="never", repetition_penalty=1.5),
    SearchOptions(beam_size=5, num_hypotheses=5, early_stopping="first"),
    SearchOptions(beam_size=7, no_repeat_ngram_size=2),
    SearchOptions(beam_size=2, prefix_ids=(5, 6, 7)),
    SearchOptions(min_new_tokens=6, suppressed_ids=(4, 9)),
    SearchOptions(sampling=Sampling(seed=3)),
]


@functools.lru_cache(maxsize=4096)
def alone(source: tuple[int, ...], options: SearchOptions, limit: int) -> list[Hypothesis]:
    """What the search comes to when nobody else is there."""
    scheduler, runner = moody_runner(options.beam_size)
    job = search_job(source, options, limit)
    scheduler.add([job])
    return run_all(scheduler, runner)[job].hypotheses


class SearchMachine(RuleBasedStateMachine):
    """Clients, priorities, beams, rules, samples, cancellations, deadlines and failures."""

    def __init__(self) -> None:
        super().__init__()
        self.scheduler, self.runner = moody_runner(MAX_ROWS)
        self.now = 0.0
        self.alive: dict[Job, tuple[tuple[int, ...], SearchOptions, int]] = {}
        self.ended: set[Job] = set()

    @rule(
        source=st.lists(st.integers(10, 20), max_size=3).map(tuple),
        options=st.sampled_from(SEARCHES),
        limit=st.integers(4, 24),
        patience=st.none() | st.integers(0, 20),
        client=st.sampled_from("abc"),
        priority=st.sampled_from(list(Priority)),
    )
    def arrive(
        self,
        source: tuple[int, ...],
        options: SearchOptions,
        limit: int,
        patience: int | None,
        client: str,
        priority: Priority,
    ) -> None:
        job = search_job(
            source,
            options,
            limit,
            now=self.now,
            deadline=None if patience is None else self.now + patience,
            client=client,
            priority=priority,
        )
        self.alive[job] = (source, options, limit)
        self.scheduler.add([job])

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(list(self.alive)))
        self.scheduler.cancel(job, RequestCancelledError("no more"))

    @rule(seconds=st.integers(1, 5))
    def pass_time(self, seconds: int) -> None:
        self.now += seconds

    @rule(times=st.integers(1, 6))
    def step(self, times: int) -> None:
        for _ in range(times):
            plan = self.schedule()
            if plan is None:
                return
            self.end(self.scheduler.update(self.runner.execute(plan), self.now).finished)

    @rule()
    def fail(self) -> None:
        if self.schedule() is not None:
            running = {job for job in self.alive if job.rows}
            failed = self.scheduler.fail_running(InternalError("broken"), self.now)
            assert {finished.job for finished in failed} == running
            self.end(failed)

    def schedule(self) -> StepPlan | None:
        schedule = self.scheduler.schedule(self.now)
        self.end(schedule.dropped)
        if schedule.plan is not None:
            # A step brings no more candidates than those who run need; nothing stays of the rest.
            if all(job.request.options == SEARCHES[0] for job in self.alive if job.rows):
                assert schedule.plan.top_k == 1
            assert len(schedule.plan.copies) <= MAX_ROWS
        return schedule.plan

    def end(self, all_finished: list[Finished]) -> None:
        for finished in all_finished:
            job, result = finished.job, finished.result
            assert job not in self.ended, "answered twice"
            self.ended.add(job)
            self.check(result, alone(*self.alive.pop(job)))

    def check(self, result: GenerationResult, expected: list[Hypothesis]) -> None:
        if result.finish_reason in (FinishReason.EOS, FinishReason.LENGTH):
            assert result.hypotheses == expected
            assert result.error is None
            assert result.token_ids == expected[0].token_ids
        else:
            assert result.error is not None
            assert len(result.hypotheses) <= max(1, len(expected))

    @invariant()
    def every_row_is_somebody_s(self) -> None:
        running = [job for job in self.alive if job.rows]
        rows = [row for job in running for row in job.rows]
        assert len(set(rows)) == len(rows), "two searches share a row"
        assert len(rows) == self.scheduler.num_running <= MAX_ROWS
        assert all(len(job.rows) == job.request.options.beam_size for job in running)
        assert self.scheduler.num_waiting == len(self.alive) - len(running), "somebody is lost"

    def teardown(self) -> None:
        # Nobody waits for more than all the others, one after another.
        for _ in range(25 * (len(self.alive) + 1)):
            if self.alive:
                self.step(1)
        assert not self.alive, "somebody waits for ever"
        assert self.scheduler.is_idle


SearchMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=30)
TestSearches = pytest.mark.timeout(300)(SearchMachine.TestCase)
