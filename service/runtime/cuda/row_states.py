"""What the host knows of what the rows on a device are fed at their next step.

The device follows its own steps: each row goes on with its best token until it ends. The host need
only say where it wants something else: rows that come, leave, or go on with another token. What a
step has chosen it learns late, when others may have been launched already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from service.runtime.cuda.caches import STATES
from service.runtime.plan import EncodeItem, Int32, Int64, RowCopy, StepPlan

_UNKNOWN = -1  # of a state: differs from whatever is wanted

SetRows = Callable[[Int64, Int64], None]
"""`DeviceCaches.set_rows`, with the staging of the step."""


class DeviceRowStates:
    """The states of rows, as far as they are known, and the lengths of their sources.

    Args:
        num_rows: that there are.
        max_positions: of a row's cache.
        eos_id: ends a row.

    Attributes:
        source_lengths: int32 [num_rows], of the sources in the rows.
    """

    def __init__(self, num_rows: int, max_positions: int, eos_id: int) -> None:
        self._max_positions = max_positions
        self._eos_id = eos_id
        self.source_lengths: Int32 = np.ones(num_rows, np.int32)
        self._known = np.full((len(STATES), num_rows), _UNKNOWN, np.int64)
        self._before: Int64 | None = None  # the last step, of its rows; None if it isn't followed
        self._most_positions = np.zeros(num_rows, np.int64)  # where a row can be by now
        self._is_followed = np.zeros(num_rows, np.bool_)  # whether it is where our steps led it
        self._num_steps = 0
        self._num_stepped = 0

    def forget(self) -> None:
        """Something failed: how far it came is unknown."""
        self._known[:] = _UNKNOWN
        self._is_followed[:] = False
        self._num_stepped = 0
        self._num_steps += 1  # of those before, nothing is to be learnt any more

    def copied(self, copies: Sequence[RowCopy]) -> None:
        """Sources went from row to row."""
        crossing = [copy for copy in copies if copy.cross]
        sources = [copy.source for copy in crossing]
        self.source_lengths[[copy.target for copy in crossing]] = self.source_lengths[sources]

    def stored(self, items: Sequence[EncodeItem]) -> None:
        """Sources came into rows."""
        for item in items:
            self.source_lengths[list(item.rows)] = len(item.source_ids)

    def goes_on(self, plan: StepPlan) -> bool:
        """Whether the device has all it needs: those that stepped go on, each with a place.

        To find that out row by row takes longer than to launch a step.
        """
        return (
            plan.chained is not None
            and plan.num_rows == self._num_stepped > 0
            and not (plan.copies or plan.encodes)
            and bool(plan.chained.all())
            and self._most_positions[: self._num_stepped].max() < self._max_positions
        )

    def feed(self, batch_size: int, plan: StepPlan | None, set_rows: SetRows) -> None:
        """Tell the device what it doesn't know of its first `batch_size` rows.

        Args:
            batch_size: rows that step; those beyond the plan's are nobody's.
            plan: what is wanted; None if nobody steps.
            set_rows: tells it.
        """
        wanted = np.zeros(
            (len(STATES), batch_size), np.int64
        )  # token 0 at position 0: nobody's row
        wanted[3] = self.source_lengths[:batch_size]
        chained = np.zeros(batch_size, np.bool_)
        if plan is not None:
            rows = plan.num_rows
            wanted[0, :rows] = plan.token_ids
            wanted[1, :rows] = plan.positions
            wanted[2, :rows] = 1
            if plan.chained is not None:
                chained[:rows] = plan.chained
                wanted[:3, chained] = 0
        # One that ended by its length, which the host may not know yet, has no place left: it
        # waits at its last. After a failure rows become nobody's: who had them has been told.
        ended = chained & self._is_followed[:batch_size]
        goes_on = ended & (self._most_positions[:batch_size] < self._max_positions)
        ended &= ~goes_on
        wanted[1, ended] = self._max_positions - 1
        differs = (wanted != self._known[:, :batch_size]).any(axis=0) & ~goes_on
        told = np.flatnonzero(differs)
        if len(told):
            set_rows(told, wanted[:, told])
            self._known[:, told] = wanted[:, told]
            self._most_positions[told] = wanted[1, told]
            self._is_followed[told] = True

    def stepped(self, plan: StepPlan) -> int:
        """The step of `plan` has been launched; its number, for `seen`."""
        self._num_stepped = num_rows = plan.num_rows
        self._num_steps += 1
        known = self._known[:, :num_rows]
        # What chained rows go on with is not looked at: it is seen too late, as a rule.
        follows = plan.chained is None or not plan.chained.any()
        self._before = known.copy() if follows else None
        may_run = known[2] != 0
        self._most_positions[:num_rows] += may_run
        known[1, may_run] = _UNKNOWN
        return self._num_steps

    def seen(self, number: int, chosen: Int64) -> None:
        """What step `number` chose for its rows has been seen.

        If others have been launched since, it is too late to say what the rows are fed next.
        """
        if number != self._num_steps or self._before is None:
            return
        known, before = self._known[:, : len(chosen)], self._before
        known[0] = chosen
        known[2, chosen == self._eos_id] = 0
        known[1] = before[1] + known[2]
        self._most_positions[: len(chosen)] = known[1]
