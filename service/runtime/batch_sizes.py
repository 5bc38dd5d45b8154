"""Batch-size buckets: the batch sizes that CUDA graphs are captured for.

A CUDA graph has one batch size, so a running batch is padded to the next bucket. Less than half of
the stepping rows are padding; with 33 or more rows, at most a third.
"""

from __future__ import annotations

import bisect

BATCH_SIZES = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512)
MAX_ROWS = BATCH_SIZES[-1]


class BatchSizeBuckets:
    """The batch sizes for up to `max_rows` rows.

    Attributes:
        sizes: batch sizes in ascending order; the last holds every row.
    """

    def __init__(self, max_rows: int) -> None:
        assert max_rows > 0, "a runner has rows"
        below = [size for size in BATCH_SIZES if size < max_rows]
        above = next((size for size in BATCH_SIZES if size >= max_rows), max_rows)
        self.sizes = (*below, above)

    @property
    def largest(self) -> int:
        """The largest batch size, for which memory is needed."""
        return self.sizes[-1]

    def size(self, num_rows: int) -> int:
        """The batch size at which `num_rows` rows step."""
        return self.sizes[bisect.bisect_left(self.sizes, num_rows)]


def largest_batch_size(max_rows: int) -> int:
    """The largest batch size of at most `max_rows`; 0 if there is none."""
    return max((size for size in BATCH_SIZES if size <= max_rows), default=0)
