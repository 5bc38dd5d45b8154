"""Scores in the fair queue, beside translations."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.batching.records import RequestEntry
from service.batching.row_queue import RowQueue
from service.batching.score_scheduler import ScoreScheduler
from service.domain.requests import Priority, ScoringRequest
from tests.searches import EOS, submitted
from tests.unit.service.batching.entries import (
    clients,
    make_entry,
    priorities,
    sizes,
)


def score(client: str, work: int = 1, priority: Priority = Priority.NORMAL) -> RequestEntry:
    source = (*range(10, 9 + work), EOS)
    request = ScoringRequest(source, target_ids=(EOS,), client=client, priority=priority)
    return RequestEntry(submitted(request, 1))


class BothQueues:
    """A queue of translations, and the scheduler of scores, which charges work in it."""

    def __init__(self) -> None:
        self.translations = RowQueue(max_rows=10_000)
        self.scores = ScoreScheduler(1, self.translations, EOS)  # one score at a time

    def __len__(self) -> int:
        return len(self.translations) + len(self.scores)

    def push(self, entry: RequestEntry) -> None:
        (self.translations if entry.num_rows else self.scores).push(entry)

    def discard(self, entry: RequestEntry) -> None:
        (self.translations if entry.num_rows else self.scores).discard(entry)

    def next_score(self) -> RequestEntry | None:
        return self.scores._waiting.peek()

    def take(self, *, scored: bool = False) -> RequestEntry:
        if not scored:
            return self.translations.take()
        [entry] = self.scores.schedule(0.0, beside_rows=False)
        return entry


def flow_of(one: RequestEntry) -> tuple[str, Priority]:
    return one.request.client, one.request.priority


kinds = st.booleans()


@given(
    st.lists(
        st.tuples(st.just("push"), kinds, clients, st.integers(1, 30), priorities)
        | st.tuples(st.just("take"), kinds)
        | st.tuples(st.just("discard"), st.integers(0, 100)),
        max_size=120,
    )
)
def test_each_kind_comes_out_in_order_whatever_becomes_of_the_other(
    operations: list[tuple[Any, ...]],
) -> None:
    queue = BothQueues()
    waiting: list[RequestEntry] = []

    def take(scored: bool) -> None:
        heads = queue.translations.peek(), queue.next_score()
        expected, other = heads[scored], heads[not scored]
        of_kind = [one for one in waiting if (one.num_rows == 0) == scored]
        if not of_kind:
            assert expected is None
            return
        one = queue.take(scored=scored)
        assert one is expected
        assert (queue.translations.peek(), queue.next_score())[not scored] is other
        first = next(job for job in of_kind if flow_of(job) == flow_of(one))
        assert one is first
        waiting.remove(one)

    for name, *arguments in operations:
        if name == "push":
            scored, *rest = arguments
            waiting.append(score(*rest) if scored else make_entry(*rest))
            queue.push(waiting[-1])
        elif name == "take":
            take(*arguments)
        elif waiting:
            one = waiting.pop(arguments[0] % len(waiting))
            queue.discard(one)
        assert len(queue) == len(waiting)
        assert {*queue.translations, *queue.scores} == set(waiting)
        assert queue.translations.num_rows == sum(one.num_rows for one in waiting)
    while waiting:
        take(waiting[0].num_rows == 0)
    assert queue.translations.peek() is queue.next_score() is None


@given(st.dictionaries(clients, st.tuples(sizes, sizes), min_size=2), st.lists(kinds, max_size=80))
def test_scores_are_shared_by_themselves_and_count_among_translations(
    works: dict[str, tuple[list[int], list[int]]], turns: list[bool]
) -> None:
    queue = BothQueues()
    for client, (translated, scored) in works.items():
        for number in range(len(turns) + 1):
            queue.push(make_entry(client, translated[number % len(translated)]))
            queue.push(score(client, scored[number % len(scored)]))
    in_all = dict.fromkeys(works, 0)
    in_scores = dict.fromkeys(works, 0)
    at_its_head = dict.fromkeys(works, 0)  # what it had got when its next translation came first
    for is_score in turns:
        one = queue.take(scored=is_score)
        client = one.request.client
        in_all[client] += one.work
        if is_score:
            assert in_scores[client] == min(in_scores.values())
            in_scores[client] += one.work
        else:
            assert at_its_head[client] == min(at_its_head.values())
            at_its_head[client] = in_all[client]


def test_a_score_waits_for_one_turn_of_other_scores_whatever_its_client_translates() -> None:
    queue = BothQueues()
    for _ in range(1000):
        queue.push(make_entry("translates", work=30))
        queue.push(score("scores"))
    for number in range(500):
        queue.take()
        if number % 10 == 0:
            queue.take(scored=True)
    queue.push(score("translates"))
    queue.push(score("one"))
    next_ones = {queue.take(scored=True).request.client for _ in range(4)}
    assert next_ones == {"translates", "scores", "one"}


def test_whose_scores_are_passed_saves_nothing_up() -> None:
    queue = BothQueues()
    queue.push(score("passed"))
    for _ in range(1000):
        queue.push(make_entry("busy"))
    for _ in range(500):
        queue.take()
    for _ in range(100):
        queue.push(make_entry("passed"))
    first = Counter(queue.take().request.client for _ in range(100))
    assert first["passed"] == pytest.approx(50, abs=2)


@pytest.mark.parametrize("waits_before", [True, False])
def test_where_translations_wait_scores_count(waits_before: bool) -> None:
    queue = BothQueues()
    both = [make_entry("both") for _ in range(100)]
    for _ in range(100):
        queue.push(make_entry("plain"))
        queue.push(score("both"))
    if waits_before:
        for one in both:
            queue.push(one)
    for _ in range(30):
        queue.take(scored=True)
    if not waits_before:
        for one in both:
            queue.push(one)
    first = Counter(queue.take().request.client for _ in range(50))
    assert first["plain"] - first["both"] == pytest.approx(30, abs=3)


def test_what_was_scored_while_no_translation_waited_was_at_nobody_s_cost() -> None:
    queue = BothQueues()
    for _ in range(50):
        queue.push(score("scored", work=30))
        queue.take(scored=True)
    for _ in range(50):
        queue.push(make_entry("scored", work=30))
        queue.push(make_entry("plain", work=30))
    first = Counter(queue.take().request.client for _ in range(20))
    assert first["scored"] == pytest.approx(10, abs=1)
