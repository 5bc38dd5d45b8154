"""The mirror of the queue, held against the queue."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from service.batching.fair_queue import FairQueue
from service.batching.jobs import Job
from service.decoding.requests import Priority
from service.engine.queue_estimate import QueueEstimate
from tests.searches import search_job

LARGEST = 30
flows = st.tuples(st.sampled_from("abcde"), st.sampled_from(list(Priority)))


def job(flow: tuple[str, Priority], work: int) -> Job:
    return search_job(range(10, 9 + work), client=flow[0], priority=flow[1])


@given(
    st.lists(st.tuples(flows, st.integers(1, LARGEST)), max_size=60),
    flows,
)
def test_what_is_ahead_is_what_comes_first(
    waiting: list[tuple[tuple[str, Priority], int]], newcomer: tuple[str, Priority]
) -> None:
    backlog, queue = QueueEstimate(), FairQueue()
    for flow, work in waiting:
        one = job(flow, work)
        backlog.added(one, one.work)
        queue.push(one)
    ahead = backlog.ahead(*newcomer)
    last = job(newcomer, 1)
    queue.push(last)
    before = 0
    while (one := queue.take()) is not last:
        before += one.work
    # A job cannot be begun by halves: each flow may be off by one.
    assert abs(ahead - before) <= LARGEST * (len({flow for flow, _ in waiting}) + 1)


def test_one_who_sends_much_is_not_ahead_of_others() -> None:
    backlog = QueueEstimate()
    for _ in range(1000):
        backlog.added(job(("many", Priority.NORMAL), 10), 10.0)
    assert backlog.ahead("one", Priority.NORMAL) == 10.0
    assert backlog.ahead("many", Priority.NORMAL) == 10_000.0


def test_who_gave_up_and_then_ended_has_left_once() -> None:
    backlog = QueueEstimate()
    waits, runs = (job(("one", Priority.NORMAL), 10) for _ in range(2))
    stays = job(("one", Priority.NORMAL), 10)
    for one in (waits, runs, stays):
        backlog.added(one, 10.0)
    backlog.joined(runs)
    for one in (waits, runs, waits, runs):
        backlog.ended(one)
        backlog.joined(one)  # as it may have, before it was told
    assert (backlog.num_rows_inside, backlog.num_rows_running) == (1, 0)
    assert (len(backlog), backlog.total) == (1, 10.0)


def test_very_many_clients_are_summed_up() -> None:
    backlog = QueueEstimate()
    jobs = [job((f"client {number}", Priority.NORMAL), 10) for number in range(1000)]
    for one in jobs:
        backlog.added(one, 10.0)
    assert backlog.ahead("another", Priority.NORMAL) == 10_000.0
    assert backlog.ahead("client 1", Priority.NORMAL) <= backlog.total
    for one in jobs:
        backlog.joined(one)
    assert (len(backlog), backlog.total, backlog.ahead("another", Priority.HIGH)) == (0, 0.0, 0)
    assert backlog.num_rows_running == backlog.num_rows_inside == 1000
