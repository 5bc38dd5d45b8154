"""Decides whether a model whose engine has ended is opened again."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

MOST_ENDS = 3
"""Ends within a minute, or attempts to open a model in a row, after which it stays closed."""
_SECONDS = 60.0


class RecentEnds:
    """The ends of a model that nobody asked for: its engine's, and failed attempts to open it.

    Args:
        clock: returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._times: deque[float] = deque(maxlen=MOST_ENDS)

    def add(self) -> bool:
        """Record an end; returns whether it is the third within a minute."""
        self._times.append(self._clock())
        return len(self._times) == MOST_ENDS and self._times[-1] - self._times[0] < _SECONDS
