"""The event loop gets turns while one call computes on it."""

from __future__ import annotations

import asyncio
import time

# All other calls wait for about so long; a turn costs some ten microseconds.
_TURN_SECONDS = 0.002


class CooperativeYield:
    """Gives the event loop a turn whenever its owner has computed for some milliseconds.

    Args:
        seconds: after how long.
    """

    def __init__(self, seconds: float = _TURN_SECONDS) -> None:
        self._seconds = seconds
        self._since = time.perf_counter()

    async def offer(self) -> None:
        """Wait for the others if it is time; to be awaited now and then."""
        if time.perf_counter() - self._since >= self._seconds:
            await asyncio.sleep(0)
            self._since = time.perf_counter()
