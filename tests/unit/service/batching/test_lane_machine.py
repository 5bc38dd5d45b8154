"""Lanes that step independently: no row leaks, no answer changes, no request is stuck."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from service.batching.output import Schedule
from service.batching.records import EngineRequest, Finished, RequestEntry, RequestState
from service.batching.scheduler import Scheduler
from service.domain.plan import RunnerLimits, ScoreItem, StepOutput
from service.domain.requests import Priority, ScoringRequest, SearchOptions
from service.errors import InternalError, RequestCancelledError
from tests.arrivals_machine import MAX_ROWS, ArrivalsMachine
from tests.fake_runner import FakeRunner, encoded_source, moody
from tests.fake_scorer import FakeScorer
from tests.searches import EOS, entries_of, ids, search, submitted

MAX_TURN_ROWS = 5
BUDGET = 100
sources = st.lists(st.integers(10, 20), max_size=3).map(tuple)
LIMITS = RunnerLimits(MAX_ROWS, 16, 24, 2, 24)


class LaneMachine(ArrivalsMachine):
    """Steps begin and end lane by lane, in any order, while jobs come, go and fail."""

    num_lanes = 2
    encodes_ahead = True

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = Scheduler(
            [LIMITS] * self.num_lanes,
            bos_id=2,
            eos_id=EOS,
            encode_token_budget=BUDGET,
            max_turn_rows=MAX_TURN_ROWS,
            encodes_ahead=self.encodes_ahead,
        )
        self.runners = [FakeRunner(LIMITS, scores=moody(24)) for _ in range(self.num_lanes)]
        self.in_flight: dict[int, StepOutput] = {}
        self.to_score: dict[int, None] = {}
        self.scoring: dict[int, list[RequestEntry]] = {}
        self.lane_of: dict[int, int] = {}
        self.encoding: list[RequestEntry] = []
        self.cancelled: set[int] = set()

    @rule(num_source=st.integers(1, 20), num_target=st.integers(1, 20))
    def arrive_to_be_scored(self, num_source: int, num_target: int) -> None:
        request = ScoringRequest((*[10] * num_source, EOS), target_ids=(*[11] * num_target, EOS))
        job = submitted(request, num_target, self.now)
        self.to_score[job.id] = None
        self.scheduler.add([job])

    @precondition(lambda self: self.to_score)
    @rule(data=st.data())
    def cancel_a_score(self, data: st.DataObject) -> None:
        """Cancel a score while it waits or is computed, possibly twice."""
        number = data.draw(st.sampled_from(list(self.to_score)))
        self.end(self.scheduler.cancel(number, RequestCancelledError("no more"), self.now))

    @rule()
    def begin(self) -> None:
        """Begin all possible work of all lanes."""
        for _ in range(1000):
            if not (lanes := self.scheduler.ready()):
                return
            if sum(options.beam_size for _, options, _ in self.alive.values()) <= MAX_TURN_ROWS:
                assert len(lanes) == 1
                assert not self.in_flight.keys() | self.scoring.keys(), "not in turn"
            for lane in lanes:
                self.begin_lane(lane)
        raise AssertionError("a lane is ready for ever and does nothing")

    @precondition(lambda self: self.scheduler.can_encode)
    @rule()
    def begin_to_encode(self) -> None:
        assert not self.encoding, "one at a time"
        num_waiting = self.scheduler.num_waiting
        self.encoding = self.scheduler.to_encode()
        assert self.scheduler.is_encoding == bool(self.encoding)
        assert self.scheduler.num_waiting == num_waiting, "nobody has joined yet"
        others = self.encoding[1:]
        assert sum(entry.num_encoded_tokens for entry in others) <= BUDGET
        rows = sum(options.beam_size for _, options, _ in self.alive.values())
        assert rows > MAX_TURN_ROWS, "few have the whole processor"

    @precondition(lambda self: self.encoding)
    @rule(fails=st.integers(0, 4).map(lambda n: n == 0))
    def take_in_encoded(self, fails: bool) -> None:
        entries, self.encoding = self.encoding, []
        assert not any(entry.rows for entry in entries)
        if fails:
            here = {entry.id for entry in entries if entry.state is not RequestState.FINISHED}
            failed = self.scheduler.encode_failed(InternalError("broken"), self.now)
            assert {finished.id for finished in failed} == here
            self.end(failed)
        else:
            self.scheduler.encoded([encoded_source(entry.request.source_ids) for entry in entries])
        assert not self.scheduler.is_encoding

    def begin_lane(self, lane: int) -> None:
        schedule = self.scheduler.schedule(self.now, lane)
        self.end(schedule.dropped)
        admitted = ids(schedule.admitted)
        assert not self.lane_of.keys() & set(admitted), "joined twice"
        self.lane_of.update(dict.fromkeys(admitted, lane))
        if self.scoring and self.num_lanes == 2 and not self.scheduler.takes_turns:
            # The other lane scores, and a request that is ready and finds room here joins.
            free = MAX_ROWS - self.num_running(lane)
            ready = [entry for entry in self.entries() if entry.encoded is not None]
            assert admitted or any(entry.num_rows > free for entry in ready) or not ready
        if schedule.scoring:
            assert not self.scoring, "two lanes score at the same time"
            if any(entry.rows for entry in self.entries() if entry.id not in admitted):
                # Others wait for it, or have less of the processor.
                others = schedule.scoring[1:]
                assert sum(entry.num_encoded_tokens for entry in others) <= BUDGET // 4
                assert self.num_running(lane) > 0
            self.scoring[lane] = schedule.scoring
        if schedule.plan is not None:
            self.in_flight[lane] = self.runners[lane].execute(schedule.plan)

    @precondition(lambda self: self.scoring and not self.scheduler.takes_turns)
    @rule(data=st.data())
    def go_on_beside_a_score(self, data: st.DataObject) -> None:
        """A request comes, is encoded, and joins another lane if there is room."""
        self.arrive(data.draw(sources), SearchOptions(), 24, None, "a", Priority.HIGH)
        for _ in range(2):  # the encode in flight, and the next
            if self.scheduler.can_encode:
                self.begin_to_encode()
            if self.encoding:
                self.take_in_encoded(fails=False)
        for lane in self.in_flight.keys() - self.scoring.keys():
            self.take_in_lane(lane, fails=False)
        self.begin()

    @precondition(lambda self: self.scoring)
    @rule(fails=st.booleans())
    def take_in_scores(self, fails: bool) -> None:
        ((lane, entries),) = self.scoring.items()
        if lane in self.in_flight:  # it scores after its step
            self.take_in_lane(lane, fails=False)
        del self.scoring[lane]
        if fails:
            self.end(self.scheduler.fail_scores(entries, InternalError("broken"), self.now))
        else:
            scorer = FakeScorer()
            scorer.prepare()
            requests = [entry.request for entry in entries]
            items = [
                ScoreItem(request.source_ids, request.target_ids)
                for request in requests
                if isinstance(request, ScoringRequest)
            ]
            self.end(self.scheduler.scored(entries, scorer.score(items), self.now))

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data(), fails=st.integers(0, 9).map(lambda n: n == 0))
    def take_in(self, data: st.DataObject, fails: bool) -> None:
        self.take_in_lane(data.draw(st.sampled_from(sorted(self.in_flight))), fails)

    def take_in_lane(self, lane: int, fails: bool) -> None:
        output = self.in_flight.pop(lane)
        if fails:
            here = {entry.id for entry in self.entries() if entry.lane == lane}
            failed = self.scheduler.fail_step(InternalError("broken"), self.now, lane)
            assert {finished.id for finished in failed} == here
            self.end(failed)
        else:
            self.end(self.scheduler.update(output, self.now, lane).finished)

    def end(self, all_finished: list[Finished]) -> None:
        for finished in all_finished:
            if finished.id in self.to_score:
                del self.to_score[finished.id]
            else:
                super().end([finished])

    def entries(self) -> list[RequestEntry]:
        """Records of all translations without an answer."""
        return [entries_of(self.scheduler)[job.id] for job in self.alive]

    def num_running(self, lane: int) -> int:
        """Rows in use in a lane."""
        return int(self.scheduler.num_running - self.scheduler.num_beside(lane))

    @invariant()
    def every_row_has_one_request(self) -> None:
        running = [entry for entry in self.entries() if entry.rows]
        assert all(entry.lane == self.lane_of[entry.id] for entry in running)
        rows = [(entry.lane, row) for entry in running for row in entry.rows]
        assert len(set(rows)) == len(rows), "two searches share a row"
        assert len(rows) == self.scheduler.num_running
        for lane in range(self.num_lanes):
            here = sum(number == lane for number, _ in rows)
            assert here <= MAX_ROWS
            assert self.scheduler.num_beside(lane) == len(rows) - here
        assert self.scheduler.num_busy == len(self.in_flight.keys() | self.scoring.keys())

    @invariant()
    def no_request_is_stuck(self) -> None:
        if (self.alive or self.to_score) and not (self.in_flight or self.scoring or self.encoding):
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
        assert not [*self.alive, *self.to_score], "a request waits for ever"
        self.take_in_all()
        assert self.scheduler.is_idle

    def take_in_all(self) -> None:
        if self.encoding:
            self.take_in_encoded(fails=False)
        if self.scoring:
            self.take_in_scores(fails=False)
        for lane in sorted(self.in_flight):
            self.take_in_lane(lane, fails=False)


LaneMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=40)
TestLanes = pytest.mark.timeout(300)(LaneMachine.TestCase)


class SelfEncodingLanes(LaneMachine):
    """The same with lanes that encode for themselves."""

    num_lanes = 3
    encodes_ahead = False


SelfEncodingLanes.TestCase.settings = LaneMachine.TestCase.settings
TestSelfEncodingLanes = pytest.mark.timeout(300)(SelfEncodingLanes.TestCase)


class Lanes(Scheduler):
    """Lanes with steps that tests end without a runner; no search ends by itself.

    Attributes:
        last: present or last schedule of each lane.
    """

    def __init__(self, num_lanes: int, max_turn_rows: int, max_rows: int, budget: int) -> None:
        super().__init__(
            [dataclasses.replace(LIMITS, max_rows=max_rows)] * num_lanes,
            bos_id=2,
            eos_id=EOS,
            encode_token_budget=budget,
            max_turn_rows=max_turn_rows,
            encodes_ahead=num_lanes <= 2,
        )
        self.last: dict[int, Schedule] = {}

    def schedule(self, now: float, lane: int = 0) -> Schedule:
        self.last[lane] = super().schedule(now, lane)
        return self.last[lane]

    def end_step(self, lane: int) -> None:
        """End the lane's work: its step, then its scores."""
        schedule = self.last[lane]
        if schedule.plan is not None:
            shape = schedule.plan.num_rows, schedule.plan.top_k or 1
            top_ids = np.broadcast_to(np.arange(10, 10 + shape[1]), shape)
            logits = np.broadcast_to(-np.arange(shape[1], dtype=np.float32), shape)
            zeros = np.zeros(shape[0], np.float32)
            self.update(StepOutput(top_ids, logits, zeros, 0.0, 0.0), 0.0, lane)
        if schedule.scoring:
            self.fail_scores(schedule.scoring, InternalError("not scored"), 0.0)

    def rows(self) -> list[int]:
        """Let all lanes that are ready begin, and leave it in flight; encodes end at once.

        Returns:
            The rows in use in each of the first two lanes.
        """
        while (ready := self.ready()) or self.can_encode:
            if entries := self.to_encode():
                self.encoded([encoded_source(entry.request.source_ids) for entry in entries])
            for lane in ready:
                self.schedule(0.0, lane)
        return [self.num_running - self.num_beside(lane) for lane in range(2)]


def scheduler(num_lanes: int = 2, max_turn_rows: int = 4) -> Lanes:
    return Lanes(num_lanes, max_turn_rows, MAX_ROWS, budget=100)


def test_few_rows_stay_on_one_lane() -> None:
    lanes = scheduler()
    lanes.add([search([10]) for _ in range(4)])
    assert lanes.rows() == [4, 0]


def test_more_rows_are_shared_out_evenly() -> None:
    lanes = scheduler()
    lanes.add([search([10]) for _ in range(4)])
    assert lanes.rows() == [4, 0]
    lanes.add([search([10]) for _ in range(6)])
    assert lanes.rows() == [4, 5]  # the first lane's step is in flight
    lanes.end_step(0)
    assert lanes.rows() == [5, 5]


def test_a_burst_is_shared_out_at_once() -> None:
    lanes = scheduler()
    lanes.add([search([10]) for _ in range(12)])
    assert lanes.rows() == [6, 6]


def test_a_beam_goes_where_it_fits() -> None:
    lanes = scheduler()
    lanes.add([search([10], SearchOptions(beam_size=5)), search([10])])
    assert lanes.rows() == [5, 1]
    lanes.end_step(0)
    lanes.end_step(1)
    lanes.add([search([10], SearchOptions(beam_size=3)) for _ in range(2)])
    assert lanes.rows() == [5, 7]


@pytest.mark.parametrize("fails", [False, True])
def test_a_score_that_is_cancelled_while_it_is_computed_does_not_end_again(fails: bool) -> None:
    lanes = scheduler()
    lanes.add([search([10], SearchOptions(beam_size=size)) for size in (2, 5)])
    assert lanes.rows() == [2, 5]
    lanes.end_step(0)
    lanes.end_step(1)
    request = ScoringRequest((10, EOS), target_ids=(11, EOS))
    job = submitted(request, 1, 0.0)
    lanes.add([job])
    scoring = lanes.schedule(0.0, 1).scoring
    assert ids(scoring) == [job.id]
    assert ids(lanes.cancel(job.id, RequestCancelledError("no more"), 0.0)) == [job.id]
    if fails:
        assert lanes.fail_scores(scoring, InternalError("broken"), 0.0) == []
    else:
        score = FakeScorer().predict(ScoreItem(request.source_ids, request.target_ids))
        assert lanes.scored(scoring, [score], 0.0) == []


def test_a_request_that_is_cancelled_while_it_waits_joins_no_lane() -> None:
    lanes = scheduler()
    job = search([10])
    lanes.add([job])
    assert ids(lanes.cancel(job.id, RequestCancelledError("no more"), 0.0)) == [job.id]
    assert lanes.num_waiting == 0
    assert lanes.is_idle
    assert not lanes.ready()


def test_few_rows_in_several_lanes_take_turns() -> None:
    lanes = scheduler(max_turn_rows=4)
    jobs = [search([10]) for _ in range(6)]
    lanes.add(jobs)
    assert lanes.rows() == [3, 3]
    for job in jobs[:2] + jobs[3:5]:
        assert not lanes.cancel(job.id, RequestCancelledError("no more"), 0.0)
    for lane in range(2):
        lanes.end_step(lane)
        lanes.schedule(0.0, lane)
        lanes.end_step(lane)
    turns = []
    for _ in range(6):
        (lane,) = lanes.ready()
        lanes.schedule(0.0, lane)
        assert not lanes.ready(), "beside another"
        lanes.end_step(lane)
        turns.append(lane)
    assert sorted(turns[:2]) == [0, 1]
    assert turns == turns[:2] * 3


def test_the_row_of_a_dropped_request_is_free_in_the_same_step() -> None:
    lanes = scheduler(max_turn_rows=0)
    running = [search([10]) for _ in range(2 * MAX_ROWS)]
    lanes.add(running)
    assert lanes.rows() == [MAX_ROWS, MAX_ROWS]
    waiting = search([10])
    lanes.add([waiting])
    assert lanes.rows() == [MAX_ROWS, MAX_ROWS]  # it is encoded ahead
    lanes.cancel(running[0].id, RequestCancelledError("no more"), 0.0)
    lane = entries_of(lanes)[running[0].id].lane
    assert lane is not None
    lanes.end_step(lane)
    schedule = lanes.schedule(0.0, lane)
    assert ids(schedule.dropped) == [running[0].id]
    assert ids(schedule.admitted) == [waiting.id]


def test_scores_keep_no_translation_from_being_encoded() -> None:
    lanes = scheduler(num_lanes=1, max_turn_rows=0)
    translated = [search([10]) for _ in range(4)]
    scored = [submitted(ScoringRequest((10, EOS), target_ids=(11, EOS)), 2, 0.0) for _ in range(4)]
    for pair in zip(scored, translated, strict=True):
        lanes.add(pair)
    assert ids(lanes.to_encode()) == ids(translated)
    lanes.encoded([encoded_source(job.request.source_ids) for job in translated])
    schedule = lanes.schedule(0.0, 0)
    assert ids(schedule.scoring) == ids(scored)
    assert set(ids(schedule.admitted)) == set(ids(translated))


def large_scores(number: int) -> list[EngineRequest]:
    request = ScoringRequest((*[10] * 19, EOS), target_ids=(*[11] * 14, EOS))  # counts as 50
    return [submitted(request, 15, 0.0) for _ in range(number)]


def test_however_many_scores_wait_the_next_translation_is_encoded() -> None:
    lanes = scheduler(num_lanes=1, max_turn_rows=0)
    lanes.add(large_scores(9))
    assert not lanes.to_encode()
    translated = search([10])
    lanes.add([translated])
    assert ids(lanes.to_encode()) == [translated.id]


def begin_to_score(lanes: Lanes) -> None:
    """Fill two lanes with four rows each, and let the first one score, with more that wait."""
    lanes.add([search([10]) for _ in range(8)])
    assert lanes.rows() == [4, 4]
    lanes.add(large_scores(3))
    lanes.end_step(0)
    assert len(lanes.schedule(0.0, 0).scoring) == 1


def add_encoded(lanes: Lanes) -> EngineRequest:
    new_request = search([10])
    lanes.add([new_request])
    assert ids(lanes.to_encode()) == [new_request.id]
    lanes.encoded([encoded_source(new_request.request.source_ids)])
    return new_request


def test_a_translation_joins_beside_a_lane_that_scores() -> None:
    lanes = scheduler(max_turn_rows=0)
    begin_to_score(lanes)
    new_request = add_encoded(lanes)
    lanes.end_step(1)
    assert lanes.schedule(0.0, 1).admitted[0].id == new_request.id


def test_nobody_waits_for_a_lane_that_scores_though_it_has_the_fewest_rows() -> None:
    lanes = scheduler(max_turn_rows=0)
    begin_to_score(lanes)
    assert len(lanes.fail_step(InternalError("broken"), 0.0)) == 4
    new_request = add_encoded(lanes)
    lanes.end_step(1)
    assert lanes.schedule(0.0, 1).admitted[0].id == new_request.id


def test_a_lane_that_owes_for_a_score_takes_translations() -> None:
    lanes = scheduler(max_turn_rows=0)
    begin_to_score(lanes)
    lanes.end_step(0)
    new_request = add_encoded(lanes)
    schedule = lanes.schedule(0.0, 0)
    assert schedule.admitted[0].id == new_request.id
    assert not schedule.scoring


def test_more_than_two_lanes_encode_for_themselves() -> None:
    lanes = scheduler(num_lanes=3, max_turn_rows=0)
    lanes.add([search([10]) for _ in range(6)])
    assert not lanes.can_encode
    assert not lanes.to_encode()
    assert lanes.ready() == [0, 1, 2]


def test_steps_follow_each_other_at_once_only_in_a_lane_that_is_alone() -> None:
    lanes = Lanes(2, max_turn_rows=8, max_rows=1, budget=9)
    first, second = search([10]), search([10])
    lanes.add([first, second])
    assert lanes.rows() == [1, 0]
    lanes.end_step(0)
    assert lanes.rows() == [1, 1]
    assert lanes.num_uninterrupted_steps(1) == 1
    lanes.end_step(1)
    lanes.cancel(first.id, RequestCancelledError("no more"), 0.0)
    assert lanes.num_uninterrupted_steps(1) == 1
    lanes.schedule(0.0, 0)
    assert lanes.num_uninterrupted_steps(1) > 1
