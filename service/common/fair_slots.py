"""A bounded number of slots that clients take in turns."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator


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
        # By client, the next one first.
        self._waiting: dict[str, OrderedDict[asyncio.Future[None], None]] = {}

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
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, OrderedDict())[turn] = None
        self.num_waiting += 1
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # a slot was assigned at the same moment
                self.give_back(client)
            self._remove(client, turn)
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
        if turn := self._next_turn():
            turn.set_result(None)

    def _next_turn(self) -> asyncio.Future[None] | None:
        """Hold a slot for the client whose turn it is; None if nobody waits who may have one."""
        while (client := next(filter(self._is_open_to, self._waiting), None)) is not None:
            turns = self._waiting.pop(client)
            while turns:
                turn, _ = turns.popitem(last=False)
                if turn.cancelled():  # just now: its task does not know yet
                    continue
                if turns:  # to the end of the line
                    self._waiting[client] = turns
                self._hold(client)
                return turn
        return None

    def _remove(self, client: str, turn: asyncio.Future[None]) -> None:
        turns = self._waiting.get(client)
        if turns is not None:
            turns.pop(turn, None)
            if not turns:
                del self._waiting[client]
