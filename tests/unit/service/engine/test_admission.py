"""Admission of requests, in particular with few inside, whatever the controller has learnt."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.batching.events import Iteration
from service.batching.records import EngineRequest
from service.batching.row_shares import SMALL_SHARE
from service.domain.requests import FinishReason, GenerationResult, ScoringRequest, SearchOptions
from service.engine.admission import AdmissionController
from service.engine.latency_model import CompletionEstimate
from service.engine.quota import Quota
from service.errors import DeadlineExceededError, DragomanError, ResourceExhaustedError
from tests.searches import search, submitted

MAX_ROWS = 64


class EngineStub:
    """An admission controller, and the events that an engine would report to it.

    Args:
        max_waiting: number of rows that may wait.
        pauses_rows: whether the runner can pause rows, as on a CPU.
    """

    def __init__(self, max_waiting: int = 1024, *, pauses_rows: bool = False) -> None:
        self.now = 0.0
        self.admission = AdmissionController(
            MAX_ROWS, max_waiting, None, lambda: self.now, pauses_rows=pauses_rows
        )

    def step(self, seconds: float, num_rows: int = 1, times: int = 200) -> None:
        for _ in range(times):
            self.admission.iterated([Iteration(0, num_rows, num_rows, seconds=seconds)])

    def submit(self, job: EngineRequest) -> None:
        self.admission.submitted(job)

    def ask(
        self,
        beam_size: int = 1,
        patience: float | None = None,
        client: str = "",
        client_id: str = "",
    ) -> EngineRequest:
        """Submit a request and let it join; raises what admission raises."""
        deadline = None if patience is None else self.now + patience
        job = search(
            [10] * 20,
            SearchOptions(beam_size=beam_size),
            deadline=deadline,
            client=client,
            client_id=client_id,
        )
        self.admission.enter(job.request)
        self.submit(job)
        self.admission.iterated([Iteration(0, 0, admitted=[job.id])])
        return job

    def error(self, beam_size: int = 1, client: str = "") -> DragomanError | None:
        """Why a request is refused; an admitted one ends at once."""
        try:
            job = self.ask(beam_size, client=client)
        except DragomanError as error:
            return error
        self.end(job)
        return None

    def end(self, job: EngineRequest) -> None:
        self.admission.answered(job.request, GenerationResult([5] * 19, FinishReason.EOS))
        self.admission.ended(job.id)
        self.admission._quota.release(
            job.request.num_rows, job.request.client, job.request.client_id
        )

    def fill(self) -> list[EngineRequest]:
        """Ask until a request is refused; the admitted ones."""
        inside: list[EngineRequest] = []
        while True:
            try:
                inside.append(self.ask())
            except ResourceExhaustedError:
                return inside

    def calm_down(self) -> None:
        """Let time pass until the overload has ended."""
        while self.admission.is_overloaded:
            self.now += 0.5

    def overload(self) -> None:
        """Ask until a request is refused, then end the admitted ones."""
        for job in self.fill():
            self.end(job)
        assert self.admission.is_overloaded


def overloaded(*, pauses_rows: bool = False) -> EngineStub:
    """An engine in an overload, whose rows cost so much each that few are enough."""
    engine = EngineStub(pauses_rows=pauses_rows)
    engine.step(0.002, num_rows=1)
    engine.step(0.064, num_rows=MAX_ROWS)
    engine.overload()
    return engine


def test_an_idle_engine_tries_what_it_expects_to_miss() -> None:
    engine = EngineStub()
    engine.step(1.0)
    with pytest.raises(DeadlineExceededError):
        engine.ask(patience=0.0)
    probe = engine.ask(patience=0.5)
    with pytest.raises(DeadlineExceededError, match="idle server"):
        engine.ask(patience=0.5)
    engine.step(0.001, times=2000)
    engine.ask(patience=0.5)
    engine.end(probe)


def test_ids_find_no_more_rows_than_their_client_where_rows_are_paused() -> None:
    def num_admitted(num_ids: int) -> int:
        engine = overloaded(pauses_rows=True)
        for number in range(8):
            engine.ask(client=f"other {number}")
        for number in range(MAX_ROWS):
            try:
                engine.ask(client="one", client_id=f"id {number % num_ids}")
            except ResourceExhaustedError:
                return number
        return MAX_ROWS

    assert SMALL_SHARE <= num_admitted(1) < MAX_ROWS / 2
    assert num_admitted(16) <= num_admitted(1)


@pytest.mark.parametrize("max_waiting", [0, 1, 8, 9, 64])
@pytest.mark.parametrize("beam_size", [1, 8, 9, 57, MAX_ROWS])
def test_an_idle_engine_takes_every_beam(beam_size: int, max_waiting: int) -> None:
    assert EngineStub(max_waiting).error(beam_size) is None


@pytest.mark.parametrize("beam_size", [1, 8, 9, 40, MAX_ROWS])
def test_in_an_overload_too(beam_size: int) -> None:
    engine = overloaded()
    assert engine.admission.overload_rows < MAX_ROWS / 2
    assert engine.error(beam_size) is None


def test_a_wide_beam_does_not_keep_up_the_overload_that_keeps_it_out() -> None:
    engine = overloaded()
    engine.ask(client="another")  # and stays
    for _ in range(100):
        if engine.error(60, client="wide") is None:
            break
        engine.now += 0.5
    else:
        pytest.fail("kept out for ever")
    assert not engine.admission.is_overloaded


def test_calls_beyond_what_is_in_use_keep_up_an_overload() -> None:
    engine = overloaded()
    assert 0 < len(engine.fill()) < MAX_ROWS
    for _ in range(100):
        assert engine.error() is not None
        engine.now += 0.5


def test_a_flood_keeps_nobody_out_who_asks_once() -> None:
    """There is one client for each row with one sequence, and one that asks for all rows."""
    engine = EngineStub()
    engine.step(0.002, num_rows=1)
    engine.step(0.064, num_rows=MAX_ROWS)
    running = [engine.ask(client="many") for _ in range(MAX_ROWS)]
    while wait_for_a_row(engine, "many"):
        pass
    flood = engine.admission.num_taken
    assert flood > len(running)
    assert engine.admission.is_overloaded
    for number in range(MAX_ROWS - 1):
        assert wait_for_a_row(engine, f"one {number}")
        assert not wait_for_a_row(engine, "many")
    assert engine.admission.num_taken == flood + MAX_ROWS - 1
    assert not wait_for_a_row(engine, "one too many")


def wait_for_a_row(engine: EngineStub, client: str) -> bool:
    """Submit a request that does not join yet; whether it was admitted."""
    job = search([10] * 20, client=client)
    try:
        engine.admission.enter(job.request)
    except ResourceExhaustedError:
        return False
    engine.submit(job)
    return True


@given(capacity=st.integers(1, 128), share=st.floats(0.0, 1.0))
def test_a_client_s_first_may_be_as_wide_as_what_is_left(capacity: int, share: float) -> None:
    quota = Quota(capacity)
    taken = round(share * (capacity - 1))
    for number in range(taken):
        assert quota.take(1, f"client {number}")
    assert quota.take(capacity - taken, "wide")
    assert not quota.take(1, "late")


def test_a_length_that_was_asked_for_says_nothing_of_others() -> None:
    engine = EngineStub()
    before = engine.admission._latency.expected_steps(20)
    options = SearchOptions(min_new_tokens=19)
    for tokens, learns in ((18, False), (30, True)):
        job = search([10] * 20, options)
        engine.submit(job)
        engine.admission.answered(job.request, GenerationResult([5] * tokens, FinishReason.EOS))
        engine.admission.ended(job.id)
        assert (engine.admission._latency.expected_steps(20) != before) == learns


@pytest.mark.parametrize(
    ("options", "learns"),
    [
        (SearchOptions(max_new_tokens=2), False),
        (SearchOptions(suppressed_ids=(3,)), False),
        (SearchOptions(), True),
    ],
)
def test_a_length_that_a_client_set_says_nothing_of_others(
    options: SearchOptions, learns: bool
) -> None:
    engine = EngineStub()
    before = engine.admission._latency.expected_steps(20)
    job = search([10] * 20, options)
    engine.submit(job)
    engine.admission.answered(job.request, GenerationResult([5] * 2, FinishReason.LENGTH))
    assert (engine.admission._latency.expected_steps(20) != before) == learns


def test_a_score_waits_for_no_row() -> None:
    """The queue for rows is no reason to refuse a score, which needs none."""
    engine = EngineStub()
    engine.step(0.064, num_rows=MAX_ROWS)
    for _ in range(5 * MAX_ROWS):  # from calls that were admitted earlier
        engine.submit(search([10] * 20))
    refusal = engine.error()
    assert isinstance(refusal, ResourceExhaustedError)
    assert refusal.reason == "wait"
    engine.calm_down()  # or else it would have to keep to its client's share
    score = submitted(ScoringRequest((10, 3), target_ids=(3,)), 1, 0.0)
    engine.admission.enter(score.request)
    assert engine.admission.wait_seconds(score.request) == 0.0


def test_scores_that_wait_change_no_estimate() -> None:
    engine = EngineStub()
    engine.step(0.064, num_rows=MAX_ROWS)
    for _ in range(MAX_ROWS):
        engine.ask()
    waits = search([10] * 20, client="waits")
    engine.submit(waits)
    before = engine.admission.wait_seconds(waits.request)
    assert before > 0.0
    for _ in range(10):
        job = submitted(ScoringRequest((10, 3), target_ids=(3,), client="waits"), 1, 0.0)
        engine.submit(job)
    assert engine.admission.wait_seconds(search([10] * 20, client="new").request) == before
    assert engine.admission._queue.num_waiting == 1


def test_tokens_that_are_asked_for_take_their_time() -> None:
    engine = EngineStub()
    engine.step(0.01)
    engine.ask()
    request = search([10], SearchOptions(min_new_tokens=300), 512, deadline=2.0).request
    with pytest.raises(DeadlineExceededError):
        engine.admission.enter(request)


def test_a_deadline_leaves_time_for_what_another_engine_does_first() -> None:
    first, second = EngineStub(), EngineStub()
    for engine in (first, second):
        engine.step(0.01)
        for _ in range(3):
            engine.ask()
    request = search([10] * 20, deadline=100.0).request
    alone = second.admission.estimate(request)
    before = first.admission.estimate(request)
    assert alone is not None
    assert before is not None
    both = alone.after(before)
    assert both.least == alone.least + before.least > 0.0
    patient, hasty, hopeless = (
        search([10] * 20, deadline=seconds).request
        for seconds in (1.5 * both.least, 0.75 * both.least, 0.5 * alone.least)
    )
    second.admission.enter(patient, before)
    second.admission.enter(hasty)
    with pytest.raises(DeadlineExceededError, match="idle server takes"):
        second.admission.enter(hasty, before)
    with pytest.raises(DeadlineExceededError, match="idle server takes"):
        second.admission.enter(hopeless)
    # A queue of the first one is load.
    waiting = CompletionEstimate(before.least, wait=1.0, steps=before.steps)
    with pytest.raises(ResourceExhaustedError, match=r"the queue is 1\.000 s long at least"):
        second.admission.enter(patient, waiting)


@given(
    arrivals=st.lists(
        st.tuples(
            st.sampled_from(["tenant", "tenant", "other"]),
            st.sampled_from(["", "one", "two"]) | st.uuids().map(str),
            st.sampled_from([1, 1, 2, 4]),
            st.integers(0, 2),
        ),
        max_size=150,
    )
)
def test_ids_give_a_client_no_more_than_its_share_of_an_overloaded_engine(
    arrivals: list[tuple[str, str, int, int]],
) -> None:
    """Each request that is admitted with ids would be admitted without."""
    engine = overloaded()
    inside: list[EngineRequest] = []
    for client, client_id, beam_size, num_ended in arrivals:
        allows = engine.admission._is_within_share(
            search([10] * 20, SearchOptions(beam_size=beam_size), client=client).request
        )
        try:
            inside.append(engine.ask(beam_size, client=client, client_id=client_id))
        except ResourceExhaustedError:
            continue
        else:
            assert allows
        for job in inside[:num_ended]:
            engine.end(job)
        del inside[:num_ended]


@pytest.mark.parametrize("patience_of_many", [1, 20])
def test_ids_that_want_more_than_their_parts_get_about_the_same(patience_of_many: int) -> None:
    """One id tries many times as often as the other, and has filled the client's share before."""
    engine = overloaded()
    for _ in range(MAX_ROWS):  # another client fills the rest
        try_to_ask(engine, "other", "")
    inside: list[EngineRequest] = []
    held: Counter[str] = Counter()
    for turn in range(2000):
        for client_id in ["many"] * patience_of_many + ["few"]:
            if turn < 20 and client_id == "few":
                continue  # comes later
            if job := try_to_ask(engine, "tenant", client_id):
                inside.append(job)
        engine.end(inside.pop(0))
        held.update(job.request.client_id for job in inside)
    assert held["few"] > 0.4 * held["many"]


def try_to_ask(engine: EngineStub, client: str, client_id: str) -> EngineRequest | None:
    try:
        return engine.ask(client=client, client_id=client_id)
    except ResourceExhaustedError:
        return None


def test_an_id_that_is_alone_may_use_most_of_its_client_s_share() -> None:
    shares = []
    for client_id in ("", "only"):
        engine = overloaded()
        while try_to_ask(engine, "other", "") is not None:
            pass
        asked = [try_to_ask(engine, "tenant", client_id) for _ in range(MAX_ROWS)]
        shares.append(len([job for job in asked if job]))
    assert 0.7 * shares[0] - 1 <= shares[1] <= shares[0]


def test_an_idle_engine_has_no_estimate() -> None:
    assert EngineStub().admission.estimate(search([10] * 20).request) is None
