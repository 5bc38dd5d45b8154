"""The batch sizes of CUDA graphs."""

from __future__ import annotations

import pytest

from service.runtime.batch_sizes import BATCH_SIZES, MAX_ROWS, BatchSizeBuckets, largest_batch_size


@pytest.mark.parametrize("max_rows", [1, 2, 3, 17, 64, 65, 256, 300, 512, 513, 4096])
def test_every_batch_has_the_smallest_size_that_holds_it(max_rows: int) -> None:
    buckets = BatchSizeBuckets(max_rows)
    assert list(buckets.sizes) == sorted(set(buckets.sizes))
    assert buckets.largest >= max_rows
    for num_rows in range(1, max_rows + 1):
        batch_size = buckets.size(num_rows)
        assert batch_size >= num_rows
        assert not any(num_rows <= lower < batch_size for lower in buckets.sizes)


def test_batch_sizes_are_the_documented_ones() -> None:
    assert BatchSizeBuckets(512).sizes == BATCH_SIZES
    assert BATCH_SIZES == (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512)
    assert BatchSizeBuckets(100).sizes[-3:] == (64, 96, 128)
    assert BatchSizeBuckets(600).sizes[-2:] == (512, 600)


def test_padding_is_as_small_as_it_says() -> None:
    buckets = BatchSizeBuckets(MAX_ROWS)
    for num_rows in range(1, MAX_ROWS + 1):
        share = 1 - num_rows / buckets.size(num_rows)
        assert share <= (1 / 3 if num_rows > 32 else 1 / 2)


def test_largest_batch_size() -> None:
    assert [largest_batch_size(n) for n in (0, 1, 3, 100, 512, 10_000)] == [0, 1, 2, 96, 512, 512]
