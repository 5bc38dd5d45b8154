"""The batch sizes that a GPU steps at.

A CUDA graph has one batch size. A running batch is padded to the next of these with rows that
nobody uses: fewer than half of those that step, and from 33 rows on at most a third.
"""

from __future__ import annotations

import bisect

RUNGS = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512)
MAX_ROWS = RUNGS[-1]


class BatchSizeBuckets:
    """The rungs for up to `max_rows` rows; the last of them has a place for every row.

    Attributes:
        rungs: batch sizes, ascending.
    """

    def __init__(self, max_rows: int) -> None:
        assert max_rows > 0, "a runner has rows"
        below = [rung for rung in RUNGS if rung < max_rows]
        # Past the largest, as past any other, one more that holds them all.
        above = next((rung for rung in RUNGS if rung >= max_rows), max_rows)
        self.rungs = (*below, above)

    @property
    def top(self) -> int:
        """Rows that memory is needed for."""
        return self.rungs[-1]

    def rung(self, num_rows: int) -> int:
        """The batch size at which `num_rows` rows step."""
        return self.rungs[bisect.bisect_left(self.rungs, num_rows)]

    def padding(self, num_rows: int) -> int:
        """Rows that step along for nobody."""
        return self.rung(num_rows) - num_rows if num_rows else 0


def rungs_that_fit(max_rows: int) -> int:
    """The largest rung of at most `max_rows`; 0 if there is none."""
    return max((rung for rung in RUNGS if rung <= max_rows), default=0)
