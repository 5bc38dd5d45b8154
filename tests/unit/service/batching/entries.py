"""Entries of a queue."""

from __future__ import annotations

from hypothesis import strategies as st

from service.batching.records import RequestEntry
from service.domain.requests import Priority, SearchOptions
from tests.searches import search


def make_entry(
    client: str,
    work: int = 1,
    priority: Priority = Priority.NORMAL,
    beam_size: int = 1,
    client_id: str = "",
) -> RequestEntry:
    source = range(10, 9 + work)  # and EOS
    options = SearchOptions(beam_size=beam_size)
    request = search(source, options, client=client, client_id=client_id, priority=priority)
    return RequestEntry(request)


clients = st.sampled_from("abcd")
priorities = st.sampled_from(list(Priority))
operations = st.lists(
    st.tuples(st.just("push"), clients, st.integers(1, 30), priorities)
    | st.tuples(st.sampled_from(["take", "discard"]), st.integers(0, 100)),
    max_size=80,
)
sizes = st.lists(st.integers(1, 30), min_size=1, max_size=5)
works = st.lists(st.integers(1, 30), min_size=1, max_size=30)
