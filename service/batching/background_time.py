"""The time that background requests take, beside the others' (`service.batching.row_shares`).

Time is measured roughly, without a clock, in rows that step. What the others take earns the
background its part; it may run while it has earned more than it took. Its encodes take one for each
token. The others' encodes earn nothing: they mostly run beside steps, on another core. What is
earned and not used is kept up to one step of all its rows.
"""

from __future__ import annotations


class BackgroundTime:
    """Decides when background requests run.

    Args:
        most_saved: number of rows for whose step it saves at most.

    Attributes:
        part: their part of the time, from 0 to 1, while others run too.
    """

    def __init__(self, most_saved: int) -> None:
        self.part = 0.0
        self._most_saved = most_saved
        self._credit = 0.0

    def begin(self, part: float, *, others_run: bool) -> None:
        """Set the part; with 0, nothing runs in the background, and nothing is earned."""
        self.part = part if others_run else float(part > 0.0)
        if not 0.0 < self.part < 1.0:
            self._credit = 0.0

    @property
    def may_run(self) -> bool:
        """Whether background requests may run now."""
        return self.part >= 1.0 or self._credit > 0.0

    def spend(self, cost: float) -> None:
        """Record time that background requests take."""
        if self.part < 1.0:
            self._credit -= cost

    def earn(self, cost: float) -> None:
        """Record time that others take."""
        if self.part < 1.0:
            earned = self._credit + self.part / (1.0 - self.part) * cost
            self._credit = min(earned, self._most_saved)
