"""Batches hold each source once, whole, and little else."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from service.runtime.source_batches import padded, similar_lengths

SOURCES = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=30), min_size=1, max_size=20)


def test_similar_lengths_share_a_batch() -> None:
    generator = np.random.default_rng(0)
    lengths = [1, 1, 2, 400, 390, 3, *generator.integers(1, 60, 50).tolist()]
    batches = list(similar_lengths(lengths))
    assert sorted(number for batch in batches for number in batch) == list(range(len(lengths)))
    for batch in batches:
        sizes = [lengths[number] for number in batch]
        assert len(sizes) * max(sizes) <= 1.5 * sum(sizes) + 64
        assert len(sizes) == 1 or len(sizes) * max(sizes) <= 512
    assert len(batches) <= 10


@given(sources=SOURCES, pad_id=st.integers(10, 12))
def test_padding_comes_after_each_source_and_its_length_says_where(
    sources: list[list[int]], pad_id: int
) -> None:
    source_ids, lengths = padded(sources, pad_id)
    assert source_ids.dtype == np.int64
    assert lengths.dtype == np.int32
    assert source_ids.shape == (len(sources), max(map(len, sources)))
    for row, length, source in zip(source_ids.tolist(), lengths.tolist(), sources, strict=True):
        assert row[:length] == source
        assert set(row[length:]) <= {pad_id}
