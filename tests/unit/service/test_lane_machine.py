"""Lanes that step at times of their own: no row leaks, nobody's answer changes, nobody is stuck."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from service.batching.jobs import Job
from service.batching.lane_scheduler import LaneScheduler
from service.batching.scheduler import Finished
from service.decoding.requests import Priority, ScoringRequest, SearchOptions
from service.errors import InternalError, RequestCancelledError
from service.runtime.plan import RunnerLimits, ScoreItem, StepOutput
from tests.arrivals_machine import MAX_ROWS, ArrivalsMachine
from tests.fake_runner import FakeRunner, encoded_source, moody
from tests.fake_scorer import FakeScorer
from tests.searches import EOS, NoReply, search_job

TOGETHER = 5
BUDGET = 100
sources = st.lists(st.integers(10, 20), max_size=3).map(tuple)
LIMITS = RunnerLimits(MAX_ROWS, 16, 24, 2, 24)


class LaneMachine(ArrivalsMachine):
    """Steps begin and end lane by lane, in any order, while jobs come, go and fail."""

    num_lanes = 2  # for which there is an encoder

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = LaneScheduler(
            [LIMITS] * self.num_lanes,
            bos_id=2,
            eos_id=EOS,
            encode_token_budget=BUDGET,
            together=TOGETHER,
        )
        self.runners = [FakeRunner(LIMITS, scores=moody(24)) for _ in range(self.num_lanes)]
        self.under_way: dict[int, StepOutput] = {}
        self.to_score: dict[Job, None] = {}
        self.scoring: dict[int, list[Job]] = {}
        self.lane_of: dict[Job, int] = {}
        self.encoding: list[Job] = []

    @rule(num_source=st.integers(1, 20), num_target=st.integers(1, 20))
    def arrive_to_be_scored(self, num_source: int, num_target: int) -> None:
        request = ScoringRequest((*[10] * num_source, EOS), target_ids=(*[11] * num_target, EOS))
        job = Job(request, NoReply(), num_target, self.now)
        self.to_score[job] = None
        self.scheduler.add([job])

    @precondition(lambda self: self.to_score)
    @rule(data=st.data())
    def cancel_a_score(self, data: st.DataObject) -> None:
        """While it waits, or while it is scored; twice, too."""
        job = data.draw(st.sampled_from(list(self.to_score)))
        self.scheduler.cancel(job, RequestCancelledError("no more"))

    @rule()
    def begin(self) -> None:
        """Whoever has something to do does it, until nobody has."""
        for _ in range(1000):
            if not (lanes := self.scheduler.ready()):
                return
            if sum(options.beam_size for _, options, _ in self.alive.values()) <= TOGETHER:
                assert len(lanes) == 1
                assert not self.under_way.keys() | self.scoring.keys(), "not in turn"
            for lane in lanes:
                self.begin_lane(lane)
        raise AssertionError("somebody is ready for ever and does nothing")

    @precondition(lambda self: self.scheduler.can_encode)
    @rule()
    def begin_to_encode(self) -> None:
        assert not self.encoding, "one at a time"
        num_waiting = self.scheduler.num_waiting
        self.encoding = self.scheduler.to_encode()
        assert self.scheduler.is_encoding == bool(self.encoding)
        assert self.scheduler.num_waiting == num_waiting, "nobody has joined yet"
        others = self.encoding[1:]
        assert sum(job.request.num_encoded_tokens for job in others) <= BUDGET
        rows = sum(options.beam_size for _, options, _ in self.alive.values())
        assert rows > TOGETHER, "few have the whole processor"

    @precondition(lambda self: self.encoding)
    @rule(fails=st.integers(0, 4).map(lambda n: n == 0))
    def take_in_encoded(self, fails: bool) -> None:
        jobs, self.encoding = self.encoding, []
        assert not any(job.rows for job in jobs)
        if fails:
            here = {job for job in jobs if not job.has_ended}
            failed = self.scheduler.encode_failed(InternalError("broken"), self.now)
            assert {finished.job for finished in failed} == here
            self.end(failed)
        else:
            self.scheduler.encoded([encoded_source(job.request.source_ids) for job in jobs])
        assert not self.scheduler.is_encoding

    def begin_lane(self, lane: int) -> None:
        schedule = self.scheduler.schedule(lane, self.now)
        self.end(schedule.dropped)
        assert not self.lane_of.keys() & set(schedule.admitted), "joined twice"
        self.lane_of.update(dict.fromkeys(schedule.admitted, lane))
        if self.scoring and self.num_lanes == 2 and not self.scheduler.takes_turns:
            # The other lane scores, and whoever is ready and finds room here joins.
            free = MAX_ROWS - self.scheduler.lane(lane).num_running
            ready = [job for job in self.alive if job.encoded is not None and not job.cancelled]
            assert schedule.admitted or any(job.num_rows > free for job in ready) or not ready
        if schedule.scoring:
            assert not self.scoring, "two lanes score at the same time"
            if any(job.rows for job in self.alive if job not in schedule.admitted):
                # Others wait for it, or have less of the processor.
                others = schedule.scoring[1:]
                tokens = sum(job.request.num_encoded_tokens for job in others)
                assert tokens <= BUDGET // 4
                assert self.scheduler.lane(lane).num_running > 0
            self.scoring[lane] = schedule.scoring
        if schedule.plan is not None:
            self.under_way[lane] = self.runners[lane].execute(schedule.plan)

    @precondition(lambda self: self.scoring and not self.scheduler.takes_turns)
    @rule(data=st.data())
    def go_on_beside_a_score(self, data: st.DataObject) -> None:
        """Somebody comes, is encoded, and joins another lane if there is room."""
        self.arrive(data.draw(sources), SearchOptions(), 24, None, "a", Priority.HIGH)
        for _ in range(2):  # the encode under way, and the next
            if self.scheduler.can_encode:
                self.begin_to_encode()
            if self.encoding:
                self.take_in_encoded(fails=False)
        for lane in self.under_way.keys() - self.scoring.keys():
            self.take_in_lane(lane, fails=False)
        self.begin()

    @precondition(lambda self: self.scoring)
    @rule(fails=st.booleans())
    def take_in_scores(self, fails: bool) -> None:
        ((lane, jobs),) = self.scoring.items()
        if lane in self.under_way:  # it scores after its step
            self.take_in_lane(lane, fails=False)
        del self.scoring[lane]
        if fails:
            self.end(self.scheduler.fail(jobs, InternalError("broken"), self.now))
        else:
            scorer = FakeScorer()
            scorer.prepare()
            requests = [job.request for job in jobs]
            items = [
                ScoreItem(request.source_ids, request.target_ids)
                for request in requests
                if isinstance(request, ScoringRequest)
            ]
            self.end(self.scheduler.scored(jobs, scorer.score(items), self.now))
        self.scheduler.release(lane)

    @precondition(lambda self: self.under_way)
    @rule(data=st.data(), fails=st.integers(0, 9).map(lambda n: n == 0))
    def take_in(self, data: st.DataObject, fails: bool) -> None:
        self.take_in_lane(data.draw(st.sampled_from(sorted(self.under_way))), fails)

    def take_in_lane(self, lane: int, fails: bool) -> None:
        output = self.under_way.pop(lane)
        if fails:
            here = {job for job in self.alive if job.rows and self.lane_of[job] == lane}
            failed = self.scheduler.lane(lane).fail_running(InternalError("broken"), self.now)
            assert {finished.job for finished in failed} == here
            self.end(failed)
        else:
            self.end(self.scheduler.lane(lane).update(output, self.now).finished)
        if lane not in self.scoring:
            self.scheduler.release(lane)

    def end(self, all_finished: list[Finished]) -> None:
        for finished in all_finished:
            if finished.job in self.to_score:
                del self.to_score[finished.job]
            else:
                super().end([finished])

    @invariant()
    def every_row_is_somebody_s(self) -> None:
        running = [job for job in self.alive if job.rows]
        rows = [(self.lane_of[job], row) for job in running for row in job.rows]
        assert len(set(rows)) == len(rows), "two searches share a row"
        assert len(rows) == self.scheduler.num_running
        for lane in range(self.num_lanes):
            here = sum(number == lane for number, _ in rows)
            assert here <= MAX_ROWS
            assert self.scheduler.num_beside(lane) == len(rows) - here
        assert self.scheduler.num_busy == len(self.under_way.keys() | self.scoring.keys())

    @invariant()
    def nobody_is_stuck(self) -> None:
        if (self.alive or self.to_score) and not (self.under_way or self.scoring or self.encoding):
            assert self.scheduler.ready() or self.scheduler.can_encode
            assert not self.scheduler.is_idle

    def teardown(self) -> None:
        # Each lane in turn, if there are few.
        for _ in range(self.num_lanes * 25 * (len(self.alive) + len(self.to_score) + 1)):
            if not self.alive and not self.to_score:
                break
            self.begin()
            if self.scheduler.can_encode:
                self.begin_to_encode()
            self.take_in_all()
        assert not [*self.alive, *self.to_score], "somebody waits for ever"
        self.take_in_all()
        assert self.scheduler.is_idle

    def take_in_all(self) -> None:
        if self.encoding:
            self.take_in_encoded(fails=False)
        if self.scoring:
            self.take_in_scores(fails=False)
        for lane in sorted(self.under_way):
            self.take_in_lane(lane, fails=False)


LaneMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40)
TestLanes = pytest.mark.timeout(300)(LaneMachine.TestCase)


class SelfEncodingLanes(LaneMachine):
    """The same with so many lanes that they encode for themselves."""

    num_lanes = 3


SelfEncodingLanes.TestCase.settings = LaneMachine.TestCase.settings
TestSelfEncodingLanes = pytest.mark.timeout(300)(SelfEncodingLanes.TestCase)


def scheduler(num_lanes: int = 2, together: int = 4) -> LaneScheduler:
    return LaneScheduler(
        [LIMITS] * num_lanes, bos_id=2, eos_id=EOS, encode_token_budget=100, together=together
    )


def rows_by_lane(lanes: LaneScheduler) -> list[int]:
    """Let whoever is ready begin, and leave it under way; encodes end at once."""
    while (ready := lanes.ready()) or lanes.can_encode:
        if jobs := lanes.to_encode():
            lanes.encoded([encoded_source(job.request.source_ids) for job in jobs])
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


@pytest.mark.parametrize("fails", [False, True])
def test_a_score_that_the_lane_beside_dropped_does_not_end_again(fails: bool) -> None:
    lanes = scheduler()
    lanes.add([search_job([10], SearchOptions(beam_size=size)) for size in (2, 5)])
    assert rows_by_lane(lanes) == [2, 5]
    lanes.release(0)
    lanes.release(1)
    request = ScoringRequest((10, EOS), target_ids=(11, EOS))
    job = Job(request, NoReply(), 1, 0.0)
    lanes.add([job])
    assert lanes.schedule(1, 0.0).scoring == [job]
    lanes.cancel(job, RequestCancelledError("no more"))
    assert [finished.job for finished in lanes.schedule(0, 0.0).dropped] == [job]
    if fails:
        assert lanes.fail([job], InternalError("broken"), 0.0) == []
    else:
        score = FakeScorer().predict(ScoreItem(request.source_ids, request.target_ids))
        assert lanes.scored([job], [score], 0.0) == []


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


def test_few_rows_in_several_lanes_take_turns() -> None:
    lanes = scheduler(together=4)
    jobs = [search_job([10]) for _ in range(6)]
    lanes.add(jobs)
    assert rows_by_lane(lanes) == [3, 3]
    for job in jobs[:2] + jobs[3:5]:
        lanes.cancel(job, RequestCancelledError("no more"))
    for lane in range(2):
        lanes.release(lane)
        lanes.schedule(lane, 0.0)
        lanes.release(lane)
    turns = []
    for _ in range(6):
        (lane,) = lanes.ready()
        lanes.schedule(lane, 0.0)
        assert not lanes.ready(), "beside another"
        lanes.release(lane)
        turns.append(lane)
    assert sorted(turns[:2]) == [0, 1]
    assert turns == turns[:2] * 3


def test_who_waits_gets_the_row_of_who_is_dropped_in_the_same_step() -> None:
    lanes = scheduler(together=0)
    running = [search_job([10]) for _ in range(2 * MAX_ROWS)]
    lanes.add(running)
    assert rows_by_lane(lanes) == [MAX_ROWS, MAX_ROWS]
    waiting = search_job([10])
    lanes.add([waiting])
    assert rows_by_lane(lanes) == [MAX_ROWS, MAX_ROWS]  # it is encoded ahead
    lanes.cancel(running[0], RequestCancelledError("no more"))
    (lane,) = (number for number in range(2) if lanes.lane(number).owns(running[0]))
    lanes.release(lane)
    schedule = lanes.schedule(lane, 0.0)
    assert [finished.job for finished in schedule.dropped] == [running[0]]
    assert schedule.admitted == [waiting]


def test_scores_keep_no_translation_from_being_encoded() -> None:
    lanes = scheduler(num_lanes=1, together=0)
    translated = [search_job([10]) for _ in range(4)]
    scored = [
        Job(ScoringRequest((10, EOS), target_ids=(11, EOS)), NoReply(), 2, 0.0) for _ in range(4)
    ]
    for pair in zip(scored, translated, strict=True):
        lanes.add(pair)
    assert lanes.to_encode() == translated
    lanes.encoded([encoded_source(job.request.source_ids) for job in translated])
    schedule = lanes.schedule(0, 0.0)
    assert schedule.scoring == scored
    assert set(schedule.admitted) == set(translated)


def large_scores(number: int) -> list[Job]:
    request = ScoringRequest((*[10] * 19, EOS), target_ids=(*[11] * 14, EOS))  # counts as 50
    return [Job(request, NoReply(), 15, 0.0) for _ in range(number)]


def test_however_many_scores_wait_the_next_translation_is_encoded() -> None:
    lanes = scheduler(num_lanes=1, together=0)
    lanes.add(large_scores(9))
    assert not lanes.to_encode()
    translated = search_job([10])
    lanes.add([translated])
    assert lanes.to_encode() == [translated]


def begin_to_score(lanes: LaneScheduler) -> None:
    """Fill two lanes with four rows each, and let the first one score, with more that wait."""
    lanes.add([search_job([10]) for _ in range(8)])
    assert rows_by_lane(lanes) == [4, 4]
    lanes.add(large_scores(3))
    lanes.release(0)
    assert len(lanes.schedule(0, 0.0).scoring) == 1


def add_encoded(lanes: LaneScheduler) -> Job:
    newcomer = search_job([10])
    lanes.add([newcomer])
    assert lanes.to_encode() == [newcomer]
    lanes.encoded([encoded_source(newcomer.request.source_ids)])
    return newcomer


def test_a_translation_joins_beside_a_lane_that_scores() -> None:
    lanes = scheduler(together=0)
    begin_to_score(lanes)
    newcomer = add_encoded(lanes)
    lanes.release(1)
    assert lanes.schedule(1, 0.0).admitted == [newcomer]


def test_nobody_waits_for_a_lane_that_scores_though_it_has_the_fewest_rows() -> None:
    lanes = scheduler(together=0)
    begin_to_score(lanes)
    assert len(lanes.lane(0).fail_running(InternalError("broken"), 0.0)) == 4
    newcomer = add_encoded(lanes)
    lanes.release(1)
    assert lanes.schedule(1, 0.0).admitted == [newcomer]


def test_a_lane_that_owes_for_a_score_takes_translations() -> None:
    lanes = scheduler(together=0)
    begin_to_score(lanes)
    lanes.release(0)
    newcomer = add_encoded(lanes)
    schedule = lanes.schedule(0, 0.0)
    assert schedule.admitted == [newcomer]
    assert not schedule.scoring


def test_more_than_two_lanes_encode_for_themselves() -> None:
    lanes = scheduler(num_lanes=3, together=0)
    lanes.add([search_job([10]) for _ in range(6)])
    assert not lanes.can_encode
    assert not lanes.to_encode()
    assert lanes.ready() == [0, 1, 2]


def test_a_lane_is_alone_if_the_others_have_neither_rows_nor_anybody_to_drop() -> None:
    one_row = dataclasses.replace(LIMITS, max_rows=1)
    lanes = LaneScheduler([one_row] * 2, bos_id=2, eos_id=EOS, encode_token_budget=9, together=8)
    first, second, third = (search_job([10]) for _ in range(3))
    lanes.add([first, second])
    assert rows_by_lane(lanes) == [1, 0]
    lanes.release(0)
    assert rows_by_lane(lanes) == [1, 1]
    lanes.release(1)
    assert not lanes.is_alone(1)
    lanes.cancel(first, RequestCancelledError("no more"))
    lanes.schedule(0, 0.0)
    assert lanes.is_alone(1)
    lanes.add([third])
    lanes.cancel(third, RequestCancelledError("no more"))
    assert not lanes.is_alone(1), "the first lane has yet to answer"
    assert lanes.schedule(0, 0.0).dropped
    assert lanes.is_alone(1)
