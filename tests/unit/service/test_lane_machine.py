"""Lanes that step at times of their own: no row leaks, nobody's answer changes, nobody is stuck."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from service.errors import InternalError, RequestCancelledError
from service.fake_runner import FakeRunner, moody
from service.jobs import Job
from service.laned_scheduler import LanedScheduler
from service.plan import RunnerLimits, StepOutput
from service.requests import FinishReason, Priority, SearchOptions
from service.scheduler import Finished
from tests.searches import EOS, search_job
from tests.unit.service.test_search_machine import MAX_ROWS, SEARCHES, alone

NUM_LANES = 3
TOGETHER = 5
LIMITS = RunnerLimits(MAX_ROWS, 16, 24, 2, 24)


class LaneMachine(RuleBasedStateMachine):
    """Steps begin and end lane by lane, in any order, while jobs come, go and fail."""

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = LanedScheduler(
            [LIMITS] * NUM_LANES, bos_id=2, eos_id=EOS, encode_token_budget=100, together=TOGETHER
        )
        self.runners = [FakeRunner(LIMITS, scores=moody(24)) for _ in range(NUM_LANES)]
        self.under_way: dict[int, StepOutput] = {}
        self.now = 0.0
        self.alive: dict[Job, tuple[tuple[int, ...], SearchOptions, int]] = {}
        self.lane_of: dict[Job, int] = {}
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
        deadline = None if patience is None else self.now + patience
        job = search_job(
            source,
            options,
            limit,
            now=self.now,
            deadline=deadline,
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

    @rule()
    def begin(self) -> None:
        """Whoever has something to do does it."""
        for lane in self.scheduler.ready():
            schedule = self.scheduler.schedule(lane, self.now)
            self.end(schedule.dropped)
            assert not self.lane_of.keys() & set(schedule.admitted), "joined twice"
            self.lane_of.update(dict.fromkeys(schedule.admitted, lane))
            if schedule.plan is not None:
                self.under_way[lane] = self.runners[lane].execute(schedule.plan)

    @precondition(lambda self: self.under_way)
    @rule(data=st.data(), fails=st.integers(0, 9).map(lambda n: n == 0))
    def take_in(self, data: st.DataObject, fails: bool) -> None:
        self.take_in_lane(data.draw(st.sampled_from(sorted(self.under_way))), fails)

    def take_in_lane(self, lane: int, fails: bool) -> None:
        output = self.under_way.pop(lane)
        if fails:
            here = {job for job in self.alive if job.rows and self.lane_of[job] == lane}
            failed = self.scheduler.fail_running(lane, InternalError("broken"), self.now)
            assert {finished.job for finished in failed} == here
            self.end(failed)
        else:
            self.end(self.scheduler.update(lane, output, self.now).finished)
        self.scheduler.release(lane)

    def end(self, all_finished: list[Finished]) -> None:
        for finished in all_finished:
            job, result = finished.job, finished.result
            assert job not in self.ended, "answered twice"
            self.ended.add(job)
            expected = alone(*self.alive.pop(job))
            if result.finish_reason in (FinishReason.EOS, FinishReason.LENGTH):
                assert result.hypotheses == expected
            else:
                assert result.error is not None

    @invariant()
    def every_row_is_somebody_s(self) -> None:
        running = [job for job in self.alive if job.rows]
        rows = [(self.lane_of[job], row) for job in running for row in job.rows]
        assert len(set(rows)) == len(rows), "two searches share a row"
        assert len(rows) == self.scheduler.num_running
        for lane in range(NUM_LANES):
            here = sum(number == lane for number, _ in rows)
            assert here <= MAX_ROWS
            assert self.scheduler.num_beside(lane) == len(rows) - here
        assert self.scheduler.num_busy == len(self.under_way)

    @invariant()
    def nobody_is_stuck(self) -> None:
        if self.alive and not self.under_way:
            assert self.scheduler.ready()
            assert not self.scheduler.is_idle

    def teardown(self) -> None:
        for _ in range(25 * (len(self.alive) + 1)):
            if not self.alive:
                break
            self.begin()
            for lane in sorted(self.under_way):
                self.take_in_lane(lane, fails=False)
        assert not self.alive, "somebody waits for ever"
        for lane in sorted(self.under_way):
            self.take_in_lane(lane, fails=False)
        assert self.scheduler.is_idle


LaneMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40)
TestLanes = pytest.mark.timeout(300)(LaneMachine.TestCase)


def scheduler(num_lanes: int = 2, together: int = 4) -> LanedScheduler:
    return LanedScheduler(
        [LIMITS] * num_lanes, bos_id=2, eos_id=EOS, encode_token_budget=100, together=together
    )


def rows_by_lane(lanes: LanedScheduler) -> list[int]:
    """Let whoever is ready begin, and leave it under way."""
    while ready := lanes.ready():
        for lane in ready:
            lanes.schedule(lane, 0.0)
    return [lanes.num_running - lanes.num_beside(lane) for lane in range(2)]


def test_few_rows_stay_on_one_lane() -> None:
    lanes = scheduler()
    lanes.add([search_job([10]) for _ in range(4)])
    assert rows_by_lane(lanes) == [4, 0]


def test_more_rows_are_shared_out_evenly() -> None:
    lanes = scheduler()
    lanes.add([search_job([10]) for _ in range(4)])
    assert rows_by_lane(lanes) == [4, 0]
    lanes.add([search_job([10]) for _ in range(6)])
    assert rows_by_lane(lanes) == [4, 5]  # the first lane's step is under way
    lanes.release(0)
    assert rows_by_lane(lanes) == [5, 5]


def test_a_burst_is_shared_out_at_once() -> None:
    lanes = scheduler()
    lanes.add([search_job([10]) for _ in range(12)])
    assert rows_by_lane(lanes) == [6, 6]


def test_a_beam_goes_where_it_fits() -> None:
    lanes = scheduler()
    lanes.add([search_job([10], SearchOptions(beam_size=5)), search_job([10])])
    assert rows_by_lane(lanes) == [5, 1]
    lanes.release(0)
    lanes.release(1)
    lanes.add([search_job([10], SearchOptions(beam_size=3)) for _ in range(2)])
    assert rows_by_lane(lanes) == [5, 7]


def test_who_waits_and_is_cancelled_joins_no_lane() -> None:
    lanes = scheduler()
    job = search_job([10])
    lanes.add([job])
    lanes.cancel(job, RequestCancelledError("no more"))
    assert lanes.num_waiting == 0
    (lane,) = lanes.ready()
    schedule = lanes.schedule(lane, 0.0)
    assert [finished.job for finished in schedule.dropped] == [job]
    assert schedule.plan is None
    assert lanes.is_idle
    assert not lanes.ready()
