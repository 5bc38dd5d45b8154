"""How much work the engine lets in: a fixed number of places, and who holds them.

A sequence inside the engine, waiting or running, takes one place. A call of thousands of sentences
would fill any queue, so it is let in with one place and submits its sentences one after another,
with as many more places as are to spare: under load large calls get slower, but they do not fail
half-way, and they do not keep small ones out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from service.generation import Generation
from service.requests import GenerationRequest


class Places:
    """Counts the sequences inside the engine.

    Args:
        capacity: most sequences inside at any time.
        reserve: how many of these only go to newly arriving calls.
        on_held_back: told how many calls have a sequence for which there is no place yet.

    Attributes:
        num_taken: how many are taken.
        empty: set while none is.
    """

    def __init__(
        self, capacity: int, reserve: int, on_held_back: Callable[[int], None] = lambda _: None
    ) -> None:
        self.capacity = capacity
        self.num_taken = 0
        self.empty = asyncio.Event()
        self.empty.set()
        self._reserve = reserve
        self._num_held_back = 0
        self._on_held_back = on_held_back

    def take(self, count: int) -> bool:
        """Take `count` places or none; whether there were enough."""
        if self.num_taken + count > self.capacity:
            return False
        self.num_taken += count
        if count:
            self.empty.clear()
        return True

    def take_spare(self) -> bool:
        """Take one place if the reserve for new calls stays whole; whether it did."""
        return self.num_taken < self.capacity - self._reserve and self.take(1)

    def release(self) -> None:
        """Give one place back."""
        assert self.num_taken > 0, "a place was released twice"
        self.num_taken -= 1
        if self.num_taken == 0:
            self.empty.set()

    def hold_back(self, change: int) -> None:
        """So many calls more (or fewer) have a sequence for which there is no place yet."""
        self._num_held_back += change
        self._on_held_back(self._num_held_back)


class Admission:
    """A call that was let in: from now on it is slowed down at worst, not refused.

    It holds one place until it is closed, and one for each further sequence in flight.

    Args:
        places: where it holds one place already.
        max_in_flight: most sequences of this call inside the engine at a time.
        enqueue: puts a request into the queue; the second argument is called when it ended.
    """

    def __init__(
        self,
        places: Places,
        max_in_flight: int,
        enqueue: Callable[[GenerationRequest, Callable[[Generation], None]], Generation],
    ) -> None:
        self._places = places
        self._max_in_flight = max_in_flight
        self._enqueue = enqueue
        self._in_flight: dict[Generation, None] = {}
        self._closed = False
        self._is_held_back = False
        self._room: asyncio.Future[None] | None = None

    def try_submit(self, request: GenerationRequest) -> Generation | None:
        """Submit if there is a place at this moment.

        Raises:
            InvalidArgumentError: the model cannot take such a request.
            UnavailableError: the engine was stopped.
        """
        assert not self._closed, "submitted to a closed admission"
        extra = bool(self._in_flight)
        if extra and (len(self._in_flight) >= self._max_in_flight or not self._places.take_spare()):
            self._hold_back(True)
            return None
        self._hold_back(False)
        try:
            generation = self._enqueue(request, self._ended)
        except Exception:
            if extra:
                self._places.release()
            raise
        self._in_flight[generation] = None
        return generation

    async def submit(self, request: GenerationRequest) -> Generation:
        """Submit as soon as there is a place. One task at a time may wait here.

        Raises:
            InvalidArgumentError: the model cannot take such a request.
            UnavailableError: the engine was stopped.
        """
        while (generation := self.try_submit(request)) is None:
            # Refused means that one of ours is in flight: its end makes room.
            self._room = asyncio.get_running_loop().create_future()
            await self._room
        return generation

    def close(self) -> None:
        """Cancel what is still in flight and give the places back; done twice, nothing."""
        if self._closed:
            return
        self._closed = True
        self._hold_back(False)
        if not self._in_flight:
            self._places.release()
        for generation in list(self._in_flight):
            generation.cancel()

    def _hold_back(self, holds: bool) -> None:
        if holds != self._is_held_back:
            self._is_held_back = holds
            self._places.hold_back(1 if holds else -1)

    def _ended(self, generation: Generation) -> None:
        del self._in_flight[generation]
        if self._in_flight or self._closed:
            self._places.release()
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
