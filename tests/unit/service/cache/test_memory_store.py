"""Results in memory: bounded, the least recently used one goes first."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from service.cache.memory_store import MemoryStore

KEYS = [bytes([number]) * 32 for number in range(6)]


def test_the_least_recently_used_value_makes_room() -> None:
    store = MemoryStore(3 * 356)
    for key in KEYS[:3]:
        store.put(key, bytes(100))
    assert store.get(KEYS[0]) is not None
    store.put(KEYS[3], bytes(100))
    assert [key in store for key in KEYS[:4]] == [True, False, True, True]


def test_a_value_that_is_too_large_is_not_kept_and_makes_no_room() -> None:
    store = MemoryStore(1000)
    store.put(KEYS[0], bytes(100))
    store.put(KEYS[1], bytes(800))
    assert KEYS[0] in store
    assert KEYS[1] not in store


@given(st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 500), st.booleans())))
def test_the_bytes_are_counted_and_bounded(steps: list[tuple[bytes, int, bool]]) -> None:
    store, latest = MemoryStore(1500), dict[bytes, bytes]()
    for key, size, removes in steps:
        if removes:
            store.remove(key)
        else:
            latest[key] = bytes(size)
            store.put(key, latest[key])
        kept = [each for each in KEYS if each in store]
        assert store.num_bytes == sum(len(latest[each]) + 256 for each in kept) <= 1500
        assert len(store) == len(kept)
        assert all(store.get(each) == latest[each] for each in kept)


def test_python_takes_no_more_than_is_counted() -> None:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        store = MemoryStore(2**20)
        for number in range(5000):
            store.put(number.to_bytes(32, "big"), bytes([number % 256]) * 300)
        assert tracemalloc.get_traced_memory()[0] - before < 1.1 * 2**20
    finally:
        tracemalloc.stop()
    assert store.num_bytes > 0.99 * 2**20
