"""The host's record of the state of each row on the device.

The device carries its own state from step to step: each row continues with its best token until it
ends. The host sends only differences: rows that join, leave, or continue with another token. It
learns the tokens that a step has chosen late, when further steps may have been launched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from service.domain.plan import EncodeItem, Int32, Int64, RowCopy, StepPlan
from service.runtime.cuda.caches import STATES

_UNKNOWN = -1  # differs from every wanted state

SetRows = Callable[[Int64, Int64], None]
"""`DeviceCaches.set_rows`, with the staging of the step."""


class DeviceRowStates:
    """The known part of the device's row states, and the source lengths.

    Args:
        num_rows: number of rows of the device.
        max_positions: number of positions of a row's cache.
        eos_id: id that ends a row.
        kept: returns the number of source positions that the decoder sees, by the source's length.

    Attributes:
        source_lengths: int32 [num_rows], number of source positions in each row that the decoder
            sees.
    """

    def __init__(
        self,
        num_rows: int,
        max_positions: int,
        eos_id: int,
        kept: Callable[[int], int] = lambda length: length,
    ) -> None:
        self._kept = kept
        self._max_positions = max_positions
        self._eos_id = eos_id
        self.source_lengths: Int32 = np.ones(num_rows, np.int32)
        self._known = np.full((len(STATES), num_rows), _UNKNOWN, np.int64)
        self._before: Int64 | None = None  # states before the last step; None if not tracked
        self._max_reached = np.zeros(num_rows, np.int64)  # last position possible by now
        self._is_tracked = np.zeros(num_rows, np.bool_)  # whether `_max_reached` is known
        self._num_steps = 0
        self._num_stepped = 0  # number of rows of the last step

    def forget(self) -> None:
        """Forget all states after a failure: the device's progress is unknown."""
        self._known[:] = _UNKNOWN
        self._is_tracked[:] = False
        self._num_stepped = 0
        self._num_steps += 1  # completions of earlier steps are ignored

    def copied(self, copies: Sequence[RowCopy]) -> None:
        """Record that sources were copied from row to row."""
        crossing = [copy for copy in copies if copy.cross]
        sources = [copy.source for copy in crossing]
        self.source_lengths[[copy.target for copy in crossing]] = self.source_lengths[sources]

    def stored(self, items: Sequence[EncodeItem]) -> None:
        """Record that sources were stored in rows."""
        for item in items:
            self.source_lengths[list(item.rows)] = self._kept(len(item.source_ids))

    def is_up_to_date(self, plan: StepPlan) -> bool:
        """Whether `plan` needs no update: all rows of the last step continue and have room.

        This is a shortcut: comparing row by row takes longer than launching a step.
        """
        return (
            plan.chained is not None
            and plan.num_rows == self._num_stepped > 0
            and not (plan.copies or plan.encodes)
            and bool(plan.chained.all())
            and self._max_reached[: self._num_stepped].max() < self._max_positions
        )

    def update(self, batch_size: int, plan: StepPlan | None, set_rows: SetRows) -> None:
        """Send the states that differ among the first `batch_size` rows.

        Args:
            batch_size: number of rows that step; those beyond the plan's rows are free.
            plan: the next plan; None if all rows are free.
            set_rows: sends rows and their states.
        """
        wanted = np.zeros((len(STATES), batch_size), np.int64)  # a free row: token 0 at position 0
        wanted[3] = self.source_lengths[:batch_size]
        chained = np.zeros(batch_size, np.bool_)
        if plan is not None:
            num_rows = plan.num_rows
            wanted[0, :num_rows] = plan.token_ids
            wanted[1, :num_rows] = plan.positions
            wanted[2, :num_rows] = 1
            if plan.chained is not None:
                chained[:num_rows] = plan.chained
                wanted[:3, chained] = 0
        # A row that has reached its length, perhaps unknown to the host, has no position left and
        # stays at its last. After a failure, rows become free: their requests have been answered.
        ended = chained & self._is_tracked[:batch_size]
        continues = ended & (self._max_reached[:batch_size] < self._max_positions)
        ended &= ~continues
        wanted[1, ended] = self._max_positions - 1
        differs = (wanted != self._known[:, :batch_size]).any(axis=0) & ~continues
        rows = np.flatnonzero(differs)
        if len(rows):
            set_rows(rows, wanted[:, rows])
            self._known[:, rows] = wanted[:, rows]
            self._max_reached[rows] = wanted[1, rows]
            self._is_tracked[rows] = True

    def stepped(self, plan: StepPlan) -> int:
        """Record the launch of the step of `plan`; returns its number, for `completed`."""
        self._num_stepped = num_rows = plan.num_rows
        self._num_steps += 1
        known = self._known[:, :num_rows]
        # The tokens of chained rows are not tracked: usually their completions come too late.
        tracks = plan.chained is None or not plan.chained.any()
        self._before = known.copy() if tracks else None
        may_run = known[2] != 0
        self._max_reached[:num_rows] += may_run
        known[1, may_run] = _UNKNOWN
        return self._num_steps

    def completed(self, number: int, chosen: Int64) -> None:
        """Record the tokens that step `number` has chosen for its rows.

        Does nothing if another step has been launched since.
        """
        if number != self._num_steps or self._before is None:
            return
        known, before = self._known[:, : len(chosen)], self._before
        known[0] = chosen
        known[2, chosen == self._eos_id] = 0
        known[1] = before[1] + known[2]
        self._max_reached[: len(chosen)] = known[1]
