"""The batch sizes of CUDA graphs."""

from __future__ import annotations

import pytest

from service.runtime.cuda.batch_sizes import MAX_ROWS, RUNGS, BatchSizeBuckets, rungs_that_fit


@pytest.mark.parametrize("max_rows", [1, 2, 3, 17, 64, 65, 256, 300, 512, 513, 4096])
def test_every_batch_has_the_smallest_rung_that_holds_it(max_rows: int) -> None:
    ladder = BatchSizeBuckets(max_rows)
    assert list(ladder.rungs) == sorted(set(ladder.rungs))
    assert ladder.top >= max_rows
    for num_rows in range(1, max_rows + 1):
        rung = ladder.rung(num_rows)
        assert rung >= num_rows
        assert not any(num_rows <= lower < rung for lower in ladder.rungs)
        assert ladder.padding(num_rows) == rung - num_rows
    assert ladder.padding(0) == 0


def test_the_ladder_is_the_documented_one() -> None:
    assert BatchSizeBuckets(512).rungs == RUNGS
    assert RUNGS == (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512)
    assert BatchSizeBuckets(100).rungs[-3:] == (64, 96, 128)
    assert BatchSizeBuckets(600).rungs[-2:] == (512, 600)


def test_padding_is_as_small_as_it_says() -> None:
    ladder = BatchSizeBuckets(MAX_ROWS)
    for num_rows in range(1, MAX_ROWS + 1):
        share = ladder.padding(num_rows) / ladder.rung(num_rows)
        assert share <= (1 / 3 if num_rows > 32 else 1 / 2)


def test_rungs_that_fit() -> None:
    assert [rungs_that_fit(n) for n in (0, 1, 3, 100, 512, 10_000)] == [0, 1, 2, 96, 512, 512]
