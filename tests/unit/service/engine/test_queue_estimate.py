"""The queue estimate, compared with the queue."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.batching.fair_queue import FairQueue
from service.batching.records import RequestEntry
from service.domain.requests import Priority
from service.engine.queue_estimate import QueueEstimate
from tests.searches import search

LARGEST = 30
flows = st.tuples(st.sampled_from("abcde"), st.sampled_from(list(Priority)))


def make_entry(flow: tuple[str, Priority], work: int, client_id: str = "") -> RequestEntry:
    client, priority = flow
    source = range(10, 9 + work)
    return RequestEntry(search(source, client=client, client_id=client_id, priority=priority))


def ahead(estimate: QueueEstimate, client: str, priority: Priority = Priority.NORMAL) -> float:
    return estimate.ahead(make_entry((client, priority), 1).request)


@given(
    st.lists(st.tuples(flows, st.integers(1, LARGEST)), max_size=60),
    flows,
)
def test_what_is_ahead_is_what_comes_first(
    waiting: list[tuple[tuple[str, Priority], int]], new_flow: tuple[str, Priority]
) -> None:
    estimate, queue = QueueEstimate(), FairQueue()
    for flow, work in waiting:
        one = make_entry(flow, work)
        estimate.submitted(one.id, one.request, one.work)
        queue.push(one)
    last = make_entry(new_flow, 1)
    expected = estimate.ahead(last.request)
    queue.push(last)
    # A job cannot be begun by halves: each flow may be off by one.
    num_flows = len({flow for flow, _ in waiting})
    assert abs(expected - work_before(queue, last)) <= LARGEST * (num_flows + 1)


def work_before(queue: FairQueue, last: RequestEntry) -> int:
    before = 0
    while (one := queue.take()) is not last:
        before += one.work
    return before


clients = st.tuples(st.sampled_from("abc"), st.sampled_from(["", "one", "two", "three"]))


@given(st.lists(st.tuples(clients, st.integers(1, LARGEST)), max_size=60), clients)
def test_what_other_ids_of_a_client_send_is_ahead_in_its_turn(
    waiting: list[tuple[tuple[str, str], int]], new_client: tuple[str, str]
) -> None:
    estimate, queue = QueueEstimate(), FairQueue()
    for (client, client_id), work in waiting:
        one = make_entry((client, Priority.NORMAL), work, client_id)
        estimate.submitted(one.id, one.request, one.work)
        queue.push(one)
    client, client_id = new_client
    last = make_entry((client, Priority.NORMAL), 1, client_id)
    expected = estimate.ahead(last.request)
    queue.push(last)
    # Each id may be off by one; and by what its own client is off, each other client.
    num_ids, num_clients = 4, 3
    most = LARGEST * (num_ids + 1) * num_clients
    assert abs(expected - work_before(queue, last)) <= most


@pytest.mark.parametrize(
    ("many", "other"), [(("many", ""), ("other", "")), (("tenant", "many"), ("tenant", "other"))]
)
def test_one_who_sends_much_is_not_ahead_of_others(
    many: tuple[str, str], other: tuple[str, str]
) -> None:
    """Nor is an id ahead of others of its client."""
    estimate = QueueEstimate()

    def entry(sender: tuple[str, str]) -> RequestEntry:
        client, client_id = sender
        return make_entry((client, Priority.NORMAL), 10, client_id)

    for _ in range(1000):
        one = entry(many)
        estimate.submitted(one.id, one.request, 10.0)
    assert estimate.ahead(entry(other).request) == 10.0
    assert estimate.ahead(entry(many).request) == 10_000.0


def test_who_gave_up_and_then_ended_has_left_once() -> None:
    estimate = QueueEstimate()
    waits, runs = (make_entry(("one", Priority.NORMAL), 10) for _ in range(2))
    stays = make_entry(("one", Priority.NORMAL), 10)
    for one in (waits, runs, stays):
        estimate.submitted(one.id, one.request, 10.0)
    estimate.joined(runs.id)
    for one in (waits, runs, waits, runs):
        estimate.ended(one.id)
        estimate.joined(one.id)  # as the step loop may report late
    assert (estimate.num_rows_inside, estimate.num_rows_running) == (1, 0)
    assert (estimate.num_waiting, estimate.total) == (1, 10.0)


def test_very_many_clients_are_summed_up() -> None:
    estimate = QueueEstimate()
    jobs = [make_entry((f"client {number}", Priority.NORMAL), 10) for number in range(1000)]
    for one in jobs:
        estimate.submitted(one.id, one.request, 10.0)
    assert ahead(estimate, "another") == 10_000.0
    assert ahead(estimate, "client 1") <= estimate.total
    for one in jobs:
        estimate.joined(one.id)
    assert (estimate.num_waiting, estimate.total, ahead(estimate, "another", Priority.HIGH)) == (
        0,
        0.0,
        0,
    )
    assert estimate.num_rows_running == estimate.num_rows_inside == 1000
