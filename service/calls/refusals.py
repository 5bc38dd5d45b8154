"""Holds refusals back from a client that repeats refused calls at once.

A refusal costs the server about as much as a small answer. A thousand calls that are repeated at
once would take the cores from the admitted calls, and delay the calls of other clients. So a client
gets its first refusals at once, enough for a burst, and further ones at a steady rate. A call whose
refusal is held back has left all quotas, and its request is released.
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
PER_SECOND = 25.0
MAX_SECONDS = 10.0
"""The longest time that a refusal is held back. A client that repeats up to 250 calls at once is
held to the rate."""
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
        """Count a refusal, and return the seconds for which it is to be held back."""
        now = self._clock()
        due = max(self._due.pop(client, -math.inf), now - AT_ONCE / PER_SECOND) + 1 / PER_SECOND
        self._due[client] = min(due, now + MAX_SECONDS)
        if len(self._due) > _MAX_CLIENTS:
            del self._due[next(iter(self._due))]
        if due > now + MAX_SECONDS:
            return MAX_SECONDS * random.uniform(_LEAST_PART, 1.0)
        return max(0.0, due - now)

    async def hold(self, client: str, seconds_left: float | None) -> None:
        """Wait until a refusal may be sent.

        Args:
            seconds_left: seconds until the client's deadline; None without one.
        """
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
        """Send the refusals that are held back, and hold none back from now on."""
        self._ended.set()
