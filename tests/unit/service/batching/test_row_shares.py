"""Rows for several senders, of which one sends more than all others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.batching.row_shares import RowShares
from service.batching.scheduler import Scheduler
from service.domain.plan import RunnerLimits
from tests.fake_runner import FakeRunner, encoded_source
from tests.searches import entries_of, search
from tests.unit.service.batching.entries import make_entry

MAX_ROWS = 64
HALF = MAX_ROWS // 2
LIMITS = RunnerLimits(MAX_ROWS, 512, 512, top_k=2, vocab_size=100)


class Lane:
    """A scheduler that encodes ahead, and a runner with endless answers, as its loop uses them."""

    def __init__(self) -> None:
        self.scheduler = Scheduler(
            [LIMITS], bos_id=2, eos_id=3, encode_token_budget=512, encodes_ahead=True
        )
        self.runner = FakeRunner(LIMITS, lambda source_ids: [5] * source_ids[0])

    def send(self, client: str, count: int, steps: int = 10, client_id: str = "") -> list[int]:
        """Add requests; returns their ids."""
        requests = [
            search([steps], client=client, client_id=client_id, max_new_tokens=100)
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
    assert not shares._held
    assert not shares._left
