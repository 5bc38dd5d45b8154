"""Rows for several senders, of which one sends more than all others."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.batching.background_time import BackgroundTime
from service.batching.row_shares import SMALL_SHARE, RowShares
from service.batching.scheduler import Scheduler
from service.domain.plan import RunnerLimits
from service.domain.requests import Priority, SearchOptions
from service.errors import RequestCancelledError
from tests.fake_runner import FakeRunner, encoded_source
from tests.searches import entries_of, search
from tests.unit.service.batching.entries import make_entry

MAX_ROWS = 64
HALF = MAX_ROWS // 2
LIMITS = RunnerLimits(MAX_ROWS, 512, 512, top_k=2, vocab_size=100)
PAUSING = dataclasses.replace(LIMITS, max_paused_rows=MAX_ROWS)


class Lane:
    """A scheduler that encodes ahead, and a runner with endless answers, as its loop uses them."""

    def __init__(self, limits: RunnerLimits = LIMITS) -> None:
        self.scheduler = Scheduler(
            [limits], bos_id=2, eos_id=3, encode_token_budget=512, encodes_ahead=True
        )
        self.runner = FakeRunner(limits, lambda source_ids: [5] * source_ids[0])

    def send(
        self,
        client: str,
        count: int,
        steps: int = 10,
        client_id: str = "",
        *,
        beam_size: int = 1,
        priority: Priority = Priority.NORMAL,
    ) -> list[int]:
        """Add requests; returns their ids."""
        options, most = SearchOptions(beam_size=beam_size), max(100, steps)
        requests = [
            search([steps], options, most, client=client, client_id=client_id, priority=priority)
            for _ in range(count)
        ]
        self.scheduler.add(requests)
        return [request.id for request in requests]

    def step(self, count: int = 1) -> None:
        """Encode whatever may be encoded, and step."""
        for _ in range(count):
            while entries := self.scheduler.to_encode():
                sources = [encoded_source(entry.request.source_ids) for entry in entries]
                self.scheduler.encoded(sources)
            plan = self.scheduler.schedule(0.0).plan
            if plan is not None:
                self.scheduler.update(self.runner.execute(plan), 0.0)

    def is_done(self, request_ids: list[int]) -> bool:
        """Whether requests have finished."""
        return not entries_of(self.scheduler).keys() & set(request_ids)

    def num_rows(self, request_ids: list[int]) -> int:
        """Number of rows of requests."""
        entries = entries_of(self.scheduler)
        return sum(len(entries[number].rows) for number in request_ids if number in entries)


def test_a_sender_alone_fills_all_rows() -> None:
    lane = Lane()
    many = lane.send("many", 500)
    lane.step(4)
    assert lane.num_rows(many) == MAX_ROWS


@pytest.mark.parametrize(("client", "client_id"), [("other", ""), ("many", "other")])
def test_beside_others_a_sender_of_many_requests_gets_half_of_the_rows(
    client: str, client_id: str
) -> None:
    lane = Lane()
    other = lane.send(client, 1, steps=100, client_id=client_id)
    many = lane.send("many", 500)
    lane.step(20)
    assert lane.num_rows(other) == 1
    assert lane.num_rows(many) == HALF


def test_rows_are_free_for_the_next_requests_of_others() -> None:
    lane = Lane()
    lane.send("other", 1, steps=1)
    many = lane.send("many", 500)
    lane.step(20)
    others = [number for n in range(HALF) for number in lane.send(f"client {n}", 1)]
    lane.step()
    assert lane.num_rows(others) == HALF
    assert HALF - 2 <= lane.num_rows(many) <= HALF


def test_a_sender_is_alone_again_some_steps_after_the_others() -> None:
    lane = Lane()
    lane.send("other", 1, steps=1)
    many = lane.send("many", 2000)
    lane.step(60)
    assert lane.num_rows(many) <= HALF
    lane.step(40)
    assert lane.num_rows(many) == MAX_ROWS


@pytest.mark.parametrize(("num_clients", "each"), [(2, 100), (4, 50), (16, 10), (64, 4)])
def test_senders_with_as_many_requests_fill_all_rows(num_clients: int, each: int) -> None:
    lane = Lane()
    sent = [lane.send(f"client {number}", each) for number in range(num_clients)]
    lane.step(4)
    assert sum(map(lane.num_rows, sent)) == MAX_ROWS


greedy_senders = st.lists(
    st.tuples(
        st.sampled_from([1, 4, 5, 32, MAX_ROWS]),
        st.integers(1, 40),
        st.integers(1, 400),
        st.sampled_from(list(Priority)),
    ),
    min_size=1,
    max_size=4,
)


@given(greedy_senders, st.integers(1, 40), st.integers(0, 150), st.integers(1, 8), st.data())
@settings(max_examples=25, deadline=None)
def test_whatever_one_sends_others_have_rows_and_time(
    calls: list[tuple[int, int, int, Priority]],
    num_ids: int,
    num_steps: int,
    num_others: int,
    data: st.DataObject,
) -> None:
    """The sentences of each other take the steps that four at a time need, and few to join."""
    lane = Lane(PAUSING)
    for beam_size, count, steps, priority in calls:
        for number in range(count):
            client_id = f"id {number % num_ids}"
            lane.send("one", 1, steps, client_id, beam_size=beam_size, priority=priority)
    lane.step(num_steps)
    for _ in range(3):
        each = data.draw(st.integers(1, 2 * SMALL_SHARE))
        others = [lane.send(f"other {n}", each) for n in range(num_others)]
        lane.step((10 + 4) * math.ceil(each / SMALL_SHARE))
        assert all(map(lane.is_done, others))


@pytest.mark.parametrize("limits", [LIMITS, PAUSING], ids=["not pausing", "pausing"])
@pytest.mark.parametrize(("num_others", "each", "beam_size"), [(20, 3, 5), (8, 8, 40), (2, 10, 64)])
def test_a_wide_beam_gets_its_turn(
    limits: RunnerLimits, num_others: int, each: int, beam_size: int
) -> None:
    """Also where others keep as many rows as they get, in the background too."""
    lane = Lane(limits)

    def send(number: int) -> list[int]:
        name = number if number < 8 else f"other {number % num_others}"  # eight send one each
        return lane.send(str(name), 1, steps=10 + number * 7 % 31)

    sent = {number: send(number) for number in range(8 + num_others * each)}
    lane.step(5)
    beam = lane.send("wide", 1, steps=20, beam_size=beam_size)
    for _ in range(1000):
        lane.step()
        if lane.is_done(beam):
            return
        sent = {n: send(n) if lane.is_done(ids) else ids for n, ids in sent.items()}
    raise AssertionError("the beam never ends")


def test_background_time_is_not_saved_up() -> None:
    background = BackgroundTime(MAX_ROWS)
    background.begin(0.5, others_run=True)
    for _ in range(1000):
        background.earn(16)
    background.spend(MAX_ROWS)
    assert not background.may_run


def test_a_wide_beam_does_not_wait_for_a_sender_that_has_left() -> None:
    lane = Lane(PAUSING)
    [gone] = lane.send("other", 1)
    lane.scheduler.cancel(gone, RequestCancelledError("no more"), 0.0)
    lane.send("one", 1, beam_size=MAX_ROWS)
    assert lane.scheduler.can_encode


def test_beside_many_others_wide_beams_take_an_eighth_of_the_time() -> None:
    lane = Lane(PAUSING)
    for n in range(16):
        lane.send(f"other {n}", 1, steps=400)
    lane.send("one", 3, steps=400, beam_size=MAX_ROWS)
    lane.step(10)
    lane.runner.plans.clear()
    lane.step(300)
    rows = [plan.num_rows for plan in lane.runner.plans]
    assert set(rows) == {16, 16 + MAX_ROWS}
    background = MAX_ROWS * rows.count(16 + MAX_ROWS)
    assert background / sum(rows) == pytest.approx(1 / 8, abs=0.02)


def test_half_of_the_senders_get_half_of_the_time_in_the_background() -> None:
    lane = Lane(PAUSING)
    lane.send("other", 1, steps=400)
    lane.send("one", 3, steps=400, beam_size=MAX_ROWS)
    lane.step(10)
    lane.runner.plans.clear()
    lane.step(390)
    rows = [plan.num_rows for plan in lane.runner.plans]
    background = MAX_ROWS * rows.count(1 + MAX_ROWS)
    assert background / sum(rows) == pytest.approx(1 / 2, abs=0.1)


def test_a_beam_in_the_background_ends_while_others_never_pause() -> None:
    lane = Lane(PAUSING)
    others = {n: lane.send(f"other {n}", 1) for n in range(16)}
    lane.step()
    beams = [lane.send("one", 1, steps=20, beam_size=MAX_ROWS) for _ in range(3)]
    for _ in range(3 * 20 * 40):
        lane.step()
        for n, sent in others.items():
            if lane.is_done(sent):
                others[n] = lane.send(f"other {n}", 1)
        if all(map(lane.is_done, beams)):
            return
    raise AssertionError("the beams never end")


def test_a_sender_that_is_alone_again_pauses_no_longer() -> None:
    lane = Lane(PAUSING)
    beam = lane.send("one", 1, steps=400, beam_size=MAX_ROWS)
    lane.step(2)
    lane.send("other", 1)
    lane.step(20)
    lane.runner.plans.clear()
    lane.step(100)
    assert [plan.num_rows for plan in lane.runner.plans[-30:]] == [MAX_ROWS] * 30
    assert not lane.is_done(beam)


def test_those_who_wait_aside_let_others_pass_when_they_were_alone() -> None:
    """A sender's requests step aside, and the others leave: the next of others still pass."""
    lane = Lane(PAUSING)
    lane.send("other", 1, steps=10)
    lane.step()
    lane.send("one", 300, steps=400)
    lane.step(100)
    others = lane.send("other", 1)
    lane.step(14)
    assert lane.is_done(others)


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from(["", "x"]), st.integers(1, 4)),
        max_size=30,
    ),
    st.integers(0, 100),
)
def test_senders_are_forgotten(requests: list[tuple[str, str, int]], num_steps: int) -> None:
    shares = RowShares(MAX_ROWS)
    entries = [
        make_entry(client, client_id=client_id, beam_size=beam_size)
        for client, client_id, beam_size in requests
    ]
    for entry in entries:
        shares.take(entry)
    for _ in range(num_steps):
        shares.stepped()
    for entry in entries:
        shares.release(entry)
    for _ in range(64):
        shares.stepped()
    assert not shares.num_rows
    assert not shares.num_background
    for senders in (shares._clients, shares._ids):
        assert not len(senders)
        assert not senders.held
