"""Lanes that step independently: no row leaks, no answer changes, no request is stuck."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from service.batching.records import Finished, RequestEntry, RequestState
from service.batching.scheduler import Scheduler
from service.domain.plan import RunnerLimits, ScoreItem, StepOutput
from service.domain.requests import Priority, ScoringRequest, SearchOptions
from service.errors import InternalError, RequestCancelledError
from tests.arrivals_machine import MAX_ROWS, ArrivalsMachine
from tests.fake_runner import FakeRunner, encoded_source, moody
from tests.fake_scorer import FakeScorer
from tests.searches import EOS, entries_of, ids, submitted

MAX_TURN_ROWS = 5
BUDGET = 100
sources = st.lists(st.integers(10, 20), max_size=3).map(tuple)


class LaneMachine(ArrivalsMachine):
    """Steps begin and end lane by lane, in any order, while jobs come, go and fail."""

    num_lanes = 2
    encodes_ahead = True
    max_paused_rows = 0

    def __init__(self) -> None:
        super().__init__()
        limits = RunnerLimits(MAX_ROWS, 16, 24, 2, 24, self.max_paused_rows)
        self.scheduler = Scheduler(
            [limits] * self.num_lanes,
            bos_id=2,
            eos_id=EOS,
            encode_token_budget=BUDGET,
            max_turn_rows=MAX_TURN_ROWS,
            encodes_ahead=self.encodes_ahead,
        )
        self.runners = [FakeRunner(limits, scores=moody(24)) for _ in range(self.num_lanes)]
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
            assert here <= MAX_ROWS + self.max_paused_rows
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


class PausingLanes(LaneMachine):
    """The same with rows for background requests, which step now and then."""

    max_paused_rows = MAX_ROWS


PausingLanes.TestCase.settings = LaneMachine.TestCase.settings
TestPausingLanes = pytest.mark.timeout(300)(PausingLanes.TestCase)
