"""The queue estimate, compared with the queue."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from service.batching.fair_queue import FairQueue
from service.batching.records import RequestEntry
from service.decoding.requests import Priority
from service.engine.queue_estimate import QueueEstimate
from tests.searches import search

LARGEST = 30
flows = st.tuples(st.sampled_from("abcde"), st.sampled_from(list(Priority)))


def make_entry(flow: tuple[str, Priority], work: int) -> RequestEntry:
    return RequestEntry(search(range(10, 9 + work), client=flow[0], priority=flow[1]))


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
    ahead = estimate.ahead(*new_flow)
    last = make_entry(new_flow, 1)
    queue.push(last)
    before = 0
    while (one := queue.take()) is not last:
        before += one.work
    # A job cannot be begun by halves: each flow may be off by one.
    assert abs(ahead - before) <= LARGEST * (len({flow for flow, _ in waiting}) + 1)


def test_one_who_sends_much_is_not_ahead_of_others() -> None:
    estimate = QueueEstimate()
    for _ in range(1000):
        one = make_entry(("many", Priority.NORMAL), 10)
        estimate.submitted(one.id, one.request, 10.0)
    assert estimate.ahead("one", Priority.NORMAL) == 10.0
    assert estimate.ahead("many", Priority.NORMAL) == 10_000.0


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
    assert estimate.ahead("another", Priority.NORMAL) == 10_000.0
    assert estimate.ahead("client 1", Priority.NORMAL) <= estimate.total
    for one in jobs:
        estimate.joined(one.id)
    assert (estimate.num_waiting, estimate.total, estimate.ahead("another", Priority.HIGH)) == (
        0,
        0.0,
        0,
    )
    assert estimate.num_rows_running == estimate.num_rows_inside == 1000
