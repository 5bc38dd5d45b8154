"""Searches of every kind come, go and fail at random: no row leaks, and no answer changes."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from service.batching.output import Schedule
from service.batching.records import EngineRequest, RequestEntry
from service.domain.plan import StepPlan
from service.errors import InternalError
from tests.arrivals_machine import MAX_ROWS, SEARCHES, ArrivalsMachine
from tests.searches import entries_of, moody_runner, outputs_foreseen, rows_of


class SearchMachine(ArrivalsMachine):
    """One scheduler with steps one after another, which may fail."""

    max_paused_rows = 0

    def __init__(self) -> None:
        super().__init__()
        paused = self.max_paused_rows
        self.scheduler, self.runner = moody_runner(MAX_ROWS, max_paused_rows=paused)
        self.num_rows = MAX_ROWS + paused

    @rule(times=st.integers(1, 6))
    def step(self, times: int) -> None:
        for _ in range(times):
            plan = self.schedule()
            if plan is None:
                return
            self.end(self.scheduler.update(self.runner.execute(plan), self.now).finished)

    @rule(most=st.integers(2, 20))
    def step_as_foreseen(self, most: int) -> None:
        """Run several steps before the first update."""
        if (plan := self.schedule()) is not None:
            *earlier, last = outputs_foreseen(self.scheduler, self.runner, plan, most, self.now)
            if earlier:
                self.scheduler.advance(earlier, self.now)
            self.end(self.scheduler.update(last, self.now).finished)

    @rule()
    def fail(self) -> None:
        if self.schedule() is not None:
            running = {job.id for job in self.running()}
            failed = self.scheduler.fail_step(InternalError("broken"), self.now)
            assert {finished.id for finished in failed} == running
            self.end(failed)

    def schedule(self) -> StepPlan | None:
        schedule: Schedule = self.scheduler.schedule(self.now)
        self.end(schedule.dropped)
        if schedule.plan is not None:
            # A step brings no more candidates than those who run need; nothing stays of the rest.
            if all(job.request.options == SEARCHES[0] for job in self.running()):
                assert schedule.plan.top_k == 1
            assert len(schedule.plan.copies) <= self.num_rows
            paused = [entry for entry in self.entries() if self.pauses(entry, schedule.plan)]
            assert schedule.plan.num_paused == sum(entry.num_rows for entry in paused)
            assert all(entry.is_background for entry in paused), "only the background pauses"
        return schedule.plan

    @invariant()
    def every_row_is_somebody_s(self) -> None:
        running = self.running()
        rows = [row for job in running for row in rows_of(self.scheduler, job)]
        assert len(set(rows)) == len(rows), "two searches share a row"
        assert len(rows) == self.scheduler.num_running <= self.num_rows
        for job in running:
            assert len(rows_of(self.scheduler, job)) == job.request.options.beam_size
        assert self.scheduler.num_waiting == len(self.alive) - len(running), "somebody is lost"

    def entries(self) -> list[RequestEntry]:
        """Records of the requests that have rows."""
        return [entries_of(self.scheduler)[job.id] for job in self.running()]

    def pauses(self, entry: RequestEntry, plan: StepPlan) -> bool:
        """Whether a request does not step in a plan; its rows do it together."""
        steps = [row < plan.num_rows for row in entry.rows]
        assert all(steps) or not any(steps)
        return not any(steps)

    def running(self) -> list[EngineRequest]:
        return [job for job in self.alive if rows_of(self.scheduler, job)]

    def teardown(self) -> None:
        # Nobody waits for more than all the others, one after another.
        for _ in range(25 * (len(self.alive) + 1)):
            if self.alive:
                self.step(1)
        assert not self.alive, "somebody waits for ever"
        assert self.scheduler.is_idle


SearchMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=30)
TestSearches = pytest.mark.timeout(300)(SearchMachine.TestCase)


class PausingSearchMachine(SearchMachine):
    """The same with rows for background requests, which step now and then."""

    max_paused_rows = MAX_ROWS


PausingSearchMachine.TestCase.settings = SearchMachine.TestCase.settings
TestPausingSearches = pytest.mark.timeout(300)(PausingSearchMachine.TestCase)
