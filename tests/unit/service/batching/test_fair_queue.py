"""The order of waiting requests: each is served, and none at the cost of others."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.batching.fair_queue import FairQueue
from service.batching.records import RequestEntry
from service.domain.requests import Priority, SearchOptions
from tests.searches import EOS, moody_runner, run_all, search
from tests.unit.service.batching.entries import clients, make_entry, operations, works


@given(operations)
def test_everybody_comes_out_once_and_in_the_order_of_his_flow(
    operations: list[tuple[str, int]],
) -> None:
    queue = FairQueue()
    waiting: list[RequestEntry] = []
    taken: list[RequestEntry] = []

    def take() -> None:
        expected = queue.peek()
        assert expected is not None
        assert queue.peek() is expected
        one = queue.take()
        assert one is expected
        waiting.remove(one)
        taken.append(one)
        # The first of those of its client and priority.
        flow = (one.request.client, one.request.priority)
        numbers = [id(j) for j in pushed if (j.request.client, j.request.priority) == flow]
        later = [j for j in waiting if (j.request.client, j.request.priority) == flow]
        assert all(numbers.index(id(one)) < numbers.index(id(j)) for j in later)

    pushed: list[RequestEntry] = []
    for name, *arguments in operations:
        if name == "push":
            one = make_entry(*arguments)  # type: ignore[arg-type]
            queue.push(one)
            pushed.append(one)
            waiting.append(one)
        elif waiting and name == "take":
            take()
        elif waiting:
            one = waiting.pop(arguments[0] % len(waiting))
            assert queue.discard(one)
            assert not queue.discard(one)
        assert len(queue) == len(waiting)
        assert set(queue) == set(waiting)
    while waiting:
        take()
    assert queue.peek() is None
    assert len(set(taken)) == len(taken)


@given(
    st.dictionaries(clients, st.lists(st.integers(1, 30), min_size=1, max_size=40), min_size=2),
)
def test_those_who_always_wait_get_the_same_work(works: dict[str, list[int]]) -> None:
    queue = FairQueue()
    for client, sizes in works.items():
        for size in sizes:
            queue.push(make_entry(client, size))
    largest = max(size for sizes in works.values() for size in sizes)
    done: Counter[str] = Counter()
    left = {client: len(sizes) for client, sizes in works.items()}
    while min(left.values()):  # until a client has no request left
        one = queue.take()
        done[one.request.client] += one.work
        left[one.request.client] -= 1
        assert (
            max(done[client] for client in works) - min(done[client] for client in works)
            <= 2 * largest
        )


def test_tokens_that_are_asked_for_count_as_work() -> None:
    """A word that must be translated by 20 tokens is as much as 20 words."""
    queue = FairQueue()
    wordy = SearchOptions(min_new_tokens=20)
    led = SearchOptions(prefix_ids=(5,) * 20)
    for _ in range(40):
        queue.push(make_entry("plain", 20))
        queue.push(RequestEntry(search([10], wordy, client="wordy")))
        queue.push(RequestEntry(search([10], led, client="led")))
        queue.push(RequestEntry(search([10], wordy, max_new_tokens=2, client="short")))
    taken = Counter(queue.take().request.client for _ in range(39))
    assert abs(taken["plain"] - taken["wordy"]) <= 1
    assert abs(taken["plain"] - taken["led"]) <= 1
    assert taken["short"] >= 7 * taken["plain"]


@pytest.mark.parametrize("priority", list(Priority))
def test_what_a_job_took_beyond_its_work_counts_in_the_end(priority: Priority) -> None:
    """A word that takes 30 steps counts as 30 words, whatever its estimate was."""
    queue = FairQueue()
    for _ in range(40):
        queue.push(make_entry("plain", 30, priority))
        queue.push(make_entry("endless", 1, priority))
    taken: Counter[str] = Counter()
    for _ in range(40):
        one = queue.take()
        one.num_steps = 30
        queue.settle(one)
        taken[one.request.client] += 1
    assert abs(taken["plain"] - taken["endless"]) <= 2


def test_what_ended_while_nobody_waited_was_at_nobody_s_cost() -> None:
    queue = FairQueue()
    for _ in range(100):
        queue.push(make_entry("alone"))
        one = queue.take()
        one.num_steps = 30
        queue.settle(one)
    for _ in range(20):
        queue.push(make_entry("alone", 30))
        queue.push(make_entry("new", 30))
    first = Counter(queue.take().request.client for _ in range(20))
    assert first["alone"] == pytest.approx(10, abs=1)


def test_a_scheduler_settles_what_its_rows_took() -> None:
    """A text that must not end gets no more steps than one with a long source."""
    scheduler, runner = moody_runner(max_rows=1)
    endless = SearchOptions(suppressed_ids=(EOS,))
    long = SearchOptions(min_new_tokens=20)
    jobs = [
        search([10], *kind, client=client)
        for _ in range(10)
        for client, kind in (("endless", (endless, 20)), ("long", (long, 20)))
    ]
    scheduler.add(jobs)
    client_of = {job.id: job.request.client for job in jobs}
    ended = [client_of[number] for number in run_all(scheduler, runner)]  # in order
    for count in range(1, 20):
        assert abs(2 * ended[:count].count("endless") - count) <= 2


def test_a_beam_counts_as_its_rows() -> None:
    queue = FairQueue()
    for _ in range(100):
        queue.push(make_entry("beams", beam_size=4))
        queue.push(make_entry("greedy"))
    first = Counter(queue.take().request.client for _ in range(50))
    assert first["greedy"] == pytest.approx(40, abs=2)


def test_priorities_are_shares() -> None:
    queue = FairQueue()
    for _ in range(2000):
        for priority in Priority:
            queue.push(make_entry("same client", priority=priority))
    first = Counter(queue.take().request.priority for _ in range(73 * 20))
    assert first[Priority.LOW] == pytest.approx(20, abs=2)
    assert first[Priority.NORMAL] == pytest.approx(160, abs=3)
    assert first[Priority.HIGH] == pytest.approx(1280, abs=5)


def test_who_was_idle_has_saved_nothing_up() -> None:
    queue = FairQueue()
    queue.push(make_entry("late"))
    assert queue.take().request.client == "late"
    for _ in range(1000):
        queue.push(make_entry("busy"))
    for _ in range(500):
        queue.take()
    for _ in range(100):
        queue.push(make_entry("late"))
    first = Counter(queue.take().request.client for _ in range(100))
    assert first["late"] == pytest.approx(50, abs=2)


def test_coming_one_at_a_time_is_no_advantage() -> None:
    """A client with a queue that is sometimes empty is not served before the others' turns."""
    queue = FairQueue()
    for _ in range(300):
        for client in "abc":
            queue.push(make_entry(client))
    queue.push(make_entry("single"))
    served: Counter[str] = Counter()
    for _ in range(400):
        client = queue.take().request.client
        served[client] += 1
        queue.peek()
        if client == "single":
            queue.push(make_entry("single"))
    assert served["single"] == pytest.approx(100, abs=2)


def test_giving_up_costs_nothing() -> None:
    queue = FairQueue()
    given_up = [make_entry("impatient", work=30) for _ in range(1000)]
    for one in given_up:
        queue.push(one)
    for _ in range(50):
        queue.push(make_entry("other", work=30))
    for one in given_up:
        queue.discard(one)
    for _ in range(50):
        queue.push(make_entry("impatient", work=30))
    first = Counter(queue.take().request.client for _ in range(20))
    assert first["impatient"] == pytest.approx(10, abs=1)


client_ids = st.sampled_from(["", "one", "two", "three"])


@given(st.dictionaries(clients, works, min_size=2), st.data())
def test_a_client_s_share_is_the_same_however_many_ids_it_names(
    works: dict[str, list[int]], data: st.DataObject
) -> None:
    """The order of clients is the same as without ids, if a client's requests have equal size."""
    plain, divided = FairQueue(), FairQueue()
    ids = client_ids | st.uuids().map(str)
    for client, sizes in works.items():
        for _ in sizes:
            plain.push(make_entry(client, sizes[0]))
            divided.push(make_entry(client, sizes[0], client_id=data.draw(ids)))
    while len(plain):
        one, other = plain.take(), divided.take()
        assert one.request.client == other.request.client
        for queue, entry in ((plain, one), (divided, other)):
            entry.num_steps = 40
            queue.settle(entry)
    assert divided.peek() is None


@given(st.dictionaries(client_ids, works, min_size=2), st.integers(0, 40))
def test_ids_of_a_client_that_always_wait_get_the_same_work(
    works: dict[str, list[int]], num_steps: int
) -> None:
    queue = FairQueue()
    for client_id, sizes in works.items():
        for size in sizes:
            queue.push(make_entry("tenant", size, client_id=client_id))
    for _ in range(1000):
        queue.push(make_entry("other"))
    largest = max(num_steps, *(size for sizes in works.values() for size in sizes))
    done: Counter[str] = Counter()
    left = {client_id: len(sizes) for client_id, sizes in works.items()}
    while min(left.values()):  # until one has nothing left to wait for
        one = queue.take()
        if one.request.client == "other":
            continue
        one.num_steps = num_steps
        queue.settle(one)
        done[one.request.client_id] += max(one.work, num_steps)
        left[one.request.client_id] -= 1
        assert max(done[i] for i in works) - min(done[i] for i in works) <= 3 * largest


@pytest.mark.parametrize("name", [lambda n: ("tenant", n), lambda n: (n, "")])
def test_invented_ids_leave_nothing_behind(name: Callable[[str], tuple[str, str]]) -> None:
    """The memory of a queue for new clients or ids is bounded, although some always wait."""
    queue = FairQueue()
    tracemalloc.start()
    try:
        for number in range(10_000):
            client, client_id = name(str(number))
            queue.push(make_entry(client, client_id=client_id))
            if number > 2:
                queue.settle(queue.take())
        num_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(queue) == 3
    assert num_bytes < 1_500_000
