"""A bounded number of slots that clients take in turns."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator

from service.common.turns import Turns


class FairSlots:
    """Slots for work on one event loop.

    Waiting clients take turns, however many slots each asks for. One client holds at most all slots
    but one, so that another client need not wait for the end of its work.
    """

    def __init__(self, count: int) -> None:
        self.num_waiting = 0
        self._num_free = count
        self._max_held = max(1, count - 1)
        self._held: Counter[str] = Counter()
        self._waiting = Turns()

    @contextlib.asynccontextmanager
    async def slot(self, client: str) -> AsyncIterator[None]:
        """Wait for a slot, and hold it until the end of the `async with` block."""
        await self.take(client)
        try:
            yield
        finally:
            self.give_back(client)

    async def take(self, client: str) -> None:
        """Wait for a slot. Call `give_back` afterwards."""
        if self._is_open_to(client):
            self._hold(client)
            return
        turn = self._waiting.add(client)
        self.num_waiting += 1
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # a slot was assigned at the same moment
                self.give_back(client)
            self._waiting.discard(client, turn)
            raise
        finally:
            self.num_waiting -= 1

    def _is_open_to(self, client: str) -> bool:
        return self._num_free > 0 and self._held[client] < self._max_held

    def _hold(self, client: str) -> None:
        self._num_free -= 1
        self._held[client] += 1

    def give_back(self, client: str) -> None:
        """Give back a slot of a client, which may go to a waiting one."""
        self._num_free += 1
        self._held[client] -= 1
        if not self._held[client]:
            del self._held[client]
        if (waiting := self._waiting.wake(self._is_open_to)) is not None:
            self._hold(waiting)
