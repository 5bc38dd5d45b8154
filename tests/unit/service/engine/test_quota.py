"""Shares of a bounded resource do not depend on how often a client asks."""

from __future__ import annotations

from collections import Counter, deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.quota import Quota


@given(
    capacity=st.integers(1, 200),
    attempts=st.lists(st.tuples(st.sampled_from("aabcd"), st.integers(1, 60)), max_size=200),
)
def test_there_is_room_for_a_newcomer_who_fits(
    capacity: int, attempts: list[tuple[str, int]]
) -> None:
    quota = Quota(capacity)
    held: Counter[str] = Counter()
    for client, count in attempts:
        if quota.take(count, client):
            held[client] += count
        assert quota.num_taken == sum(held.values()) <= capacity
        free = capacity - quota.num_taken
        assert quota.is_open_to(free, "newcomer") == (free > 0 or capacity == quota.num_taken)
        assert not quota.is_open_to(free + 1, "newcomer")


@pytest.mark.parametrize("num_clients", [1, 2, 3, 10])
def test_clients_that_want_all_get_the_same_and_leave_room(num_clients: int) -> None:
    """The first asks fifty times as often as the others, and has filled the quota before."""
    quota = Quota(1000)
    held: deque[str] = deque()

    def ask(client: str) -> None:
        if quota.take(1, client):
            held.append(client)

    for _ in range(2000):
        ask("0")
    assert quota.held_by("0") == 875  # seven eighths
    for _ in range(30_000):
        for _ in range(50):
            ask("0")
        for number in range(1, num_clients):
            ask(str(number))
        quota.release(1, held.popleft())
    shares = [quota.held_by(str(number)) for number in range(num_clients)]
    expected = 7 * 1000 / (7 * num_clients + 1)
    assert shares == pytest.approx([expected] * num_clients, rel=0.1, abs=3)
    assert 1000 - quota.num_taken >= 1000 // (7 * num_clients + 1) - 2


def test_a_client_within_its_share_is_preferred_to_one_beyond() -> None:
    quota = Quota(64)
    while quota.take(1, "many"):
        pass
    assert [quota.take(1, f"one {number}") for number in range(8)] == [True] * 8
    for number in range(8):  # what becomes free is for those within their shares
        quota.release(1, "many")
        assert not quota.take(1, "many")
        assert quota.take(1, f"late {number}")
