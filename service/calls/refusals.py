"""Holds refusals back from a client that repeats its calls at once, however often they are refused.

A refusal costs the server about as much as a small answer: a thousand calls that come again at once
take the cores from the calls that are admitted, and everyone else's calls wait behind them until
they are accepted. So a client gets some refusals at once, which is what a burst needs, and further
ones at a steady rate. A call whose refusal is held back has left all quotas, and its request is
released.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import time
from collections.abc import Callable

from service.engine.quota import Quota

# Refusals that a client gets at once, and how many follow in each second.
AT_ONCE = 100
PER_SECOND = 100.0
MAX_SECONDS = 10.0
"""The longest time that a refusal is held back: of up to 1,000 calls that come again at once, the
rate holds."""
# Of this, at random, where the rate would take longer: calls that came together, and would come
# together again, are spread.
_LEAST_PART = 0.5
# A client with a deadline gets its refusal in half of what is left, to try another server.
_SHARE_OF_DEADLINE = 0.5
# Clients whose refusals are counted; those that were refused longest ago are forgotten first.
_MAX_CLIENTS = 4096


class RefusalPace:
    """Decides how long each refusal is held back, and holds it.

    Args:
        max_held: refusals held back at a time; further ones are sent at once.
        clock: seconds that never go back.

    Attributes:
        held: quota of the refusals held back, by client.
    """

    def __init__(self, max_held: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.held = Quota(max_held)
        self._clock = clock
        # By client, the last refused one last: when its refusals so far are due at the rate.
        self._due: dict[str, float] = {}
        self._ended = asyncio.Event()

    def delay(self, client: str) -> float:
        """Count a refusal, and return for how many seconds it is to be held back."""
        now = self._clock()
        due = max(self._due.pop(client, -math.inf), now - AT_ONCE / PER_SECOND) + 1 / PER_SECOND
        self._due[client] = min(due, now + MAX_SECONDS)
        if len(self._due) > _MAX_CLIENTS:
            del self._due[next(iter(self._due))]
        if due > now + MAX_SECONDS:
            return MAX_SECONDS * random.uniform(_LEAST_PART, 1.0)
        return max(0.0, due - now)

    async def hold(self, client: str, seconds_left: float | None) -> None:
        """Hold a refusal back."""
        seconds = self.delay(client)
        if seconds_left is not None:
            seconds = min(seconds, _SHARE_OF_DEADLINE * seconds_left)
        if seconds <= 0.0 or not self.held.take(1, client):
            return
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._ended.wait()
        finally:
            self.held.release(1, client)

    def end(self) -> None:
        """Send what is held back, and hold nothing back any more: the server drains."""
        self._ended.set()
