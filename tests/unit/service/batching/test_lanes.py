"""Which lane a request joins, and what lanes do in turn."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from service.batching.output import Schedule
from service.batching.records import EngineRequest
from service.batching.scheduler import Scheduler
from service.domain.plan import RunnerLimits, ScoreItem, StepOutput
from service.domain.requests import ScoringRequest, SearchOptions
from service.errors import InternalError, RequestCancelledError
from tests.arrivals_machine import MAX_ROWS
from tests.fake_runner import encoded_source
from tests.fake_scorer import FakeScorer
from tests.searches import EOS, entries_of, ids, search, submitted

LIMITS = RunnerLimits(MAX_ROWS, 16, 24, 2, 24)


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


def test_few_rows_stay_on_one_lane_and_more_are_shared_out_evenly() -> None:
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


@pytest.mark.parametrize("has_fewest_rows", [False, True])
def test_a_translation_joins_beside_a_lane_that_scores(has_fewest_rows: bool) -> None:
    """Nobody waits for that lane, even if it has the fewest rows."""
    lanes = scheduler(max_turn_rows=0)
    begin_to_score(lanes)
    if has_fewest_rows:
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
