"""Quota: a bounded number of rows inside an engine, and the rows that each client holds.

Each row of a sequence inside the engine, waiting or running, takes one unit of the quota (a beam of
four takes four). A call of thousands of sentences would fill any queue, so it is admitted with the
rows of one sentence, and submits further sentences while rows are free: under load, large calls
slow down, but they neither fail half-way nor keep small ones out.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from service.domain.requests import GenerationRequest
from service.engine.generation import Generation

# A client may hold this many times the free units. So a single client gets seven eighths, n clients
# get 7/(7n + 1) each, and a new client always finds room (dynamic thresholds: Choudhury and Hahne,
# 1998).
_TIMES_FREE = 7


class Quota:
    """Counts the taken units of a bounded resource, by client.

    Args:
        capacity: number of units.
        reserve: number of units kept for new calls.
        on_held_back: called with the number of admitted calls that wait for free units.
        spare_limit: returns a limit lower than `capacity - reserve` under load, else infinity.

    Attributes:
        num_taken: number of units taken.
        num_spare: number of those taken for sequences after the first of their call.
        empty: event that is set while no unit is taken.
    """

    def __init__(
        self,
        capacity: int,
        reserve: int = 0,
        on_held_back: Callable[[int], None] = lambda _: None,
        spare_limit: Callable[[], float] = lambda: float("inf"),
    ) -> None:
        self.capacity = capacity
        self.num_taken = 0
        self.num_spare = 0
        self.empty = asyncio.Event()
        self.empty.set()
        self._reserve = reserve
        self._spare_limit = spare_limit
        self._held: Counter[str] = Counter()
        # For clients that name ids: units by client and id, and the number of ids that hold any.
        self._held_by_id: Counter[tuple[str, str]] = Counter()
        self._num_ids: Counter[str] = Counter()
        self._num_held_back = 0
        self._on_held_back = on_held_back

    @property
    def num_clients(self) -> int:
        """Number of clients that hold units."""
        return len(self._held)

    def held_by(self, client: str) -> int:
        """Number of units that a client holds."""
        return self._held[client]

    def held_by_id(self, client: str, client_id: str) -> int:
        """Number of units that a client holds for one of its ids."""
        return self._held_by_id[client, client_id]

    def num_ids(self, client: str) -> int:
        """Number of a client's ids that hold units."""
        return self._num_ids[client]

    def is_open_to(self, count: int, client: str = "") -> bool:
        """Whether a client can take `count` more."""
        free = self.capacity - self.num_taken
        return count <= min(free, _TIMES_FREE * free - self._held[client])

    def take(self, count: int, client: str = "", client_id: str = "") -> bool:
        """Take `count` units, or none if they are not free; returns whether they were taken."""
        if not self.is_open_to(count, client):
            return False
        self._take(count, client, client_id)
        return True

    def take_spare(self, count: int = 1, client: str = "", client_id: str = "") -> bool:
        """Take `count` units if the reserve stays untouched; returns whether they were taken."""
        limit = min(self.capacity - self._reserve, self._spare_limit())
        if self.num_taken + count > limit:
            return False
        self.num_spare += count
        self._take(count, client, client_id)
        return True

    def release(
        self, count: int = 1, client: str = "", client_id: str = "", *, spare: bool = False
    ) -> None:
        """Give back `count` units; `spare` if `take_spare` took them."""
        assert self.num_taken >= count, "more was released than taken"
        self.num_taken -= count
        if spare:
            self.num_spare -= count
        self._hold(-count, client, client_id)
        if self.num_taken == 0:
            self.empty.set()

    def hold_back(self, change: int) -> None:
        """Change the number of calls that wait for free units."""
        self._num_held_back += change
        self._on_held_back(self._num_held_back)

    def _take(self, count: int, client: str, client_id: str) -> None:
        self.num_taken += count
        if count:
            self._hold(count, client, client_id)
            self.empty.clear()

    def _hold(self, change: int, client: str, client_id: str) -> None:
        _add(self._held, client, change)
        if client_id:
            key = client, client_id
            had = key in self._held_by_id
            _add(self._held_by_id, key, change)
            _add(self._num_ids, client, (key in self._held_by_id) - had)


_Holder = TypeVar("_Holder")


def _add(counter: Counter[_Holder], key: _Holder, change: int) -> None:
    """Change a count; at 0 it is removed."""
    if count := counter.get(key, 0) + change:
        counter[key] = count
    else:
        counter.pop(key, None)


# Puts a request into the queue, and calls the second argument when the generation has ended.
Enqueue = Callable[[GenerationRequest, Callable[[Generation], None]], Generation]


class AdmittedCall:
    """An admitted call with one or more sequences: it may have to wait, but is not refused.

    It holds the quota of one sequence until it is closed, and that of each further sequence in
    flight.

    Args:
        quota: the quota, from which the first sequence has been taken.
        max_in_flight: most sequences of this call inside the engine at a time.
        enqueue: puts a request into the queue.
        num_rows: number of rows that each sequence takes.
        client: name of the client that the rows are counted for.
        client_id: id that the client has named; "" without one.
    """

    def __init__(
        self,
        quota: Quota,
        max_in_flight: int,
        enqueue: Enqueue,
        *,
        num_rows: int = 1,
        client: str = "",
        client_id: str = "",
    ) -> None:
        self._quota = quota
        self._max_in_flight = max_in_flight
        self._enqueue = enqueue
        self._num_rows = num_rows
        self._account = client, client_id
        self._in_flight: dict[Generation, None] = {}
        self._closed = False
        self._is_held_back = False
        self._rooms: list[asyncio.Future[None]] = []  # one for each task that waits in `submit`

    def try_submit(self, request: GenerationRequest) -> Generation | None:
        """Submit a request if there is room now; None if there is not.

        Raises:
            InvalidArgumentError: the model cannot take such a request.
            UnavailableError: the engine was stopped.
        """
        assert not self._closed, "submitted to a closed call"
        extra = bool(self._in_flight)
        if extra and not self._take_spare():
            self._hold_back(True)
            return None
        self._hold_back(False)
        try:
            generation = self._enqueue(request, self._ended)
        except Exception:
            if extra:
                self._release(spare=True)
            raise
        self._in_flight[generation] = None
        return generation

    async def submit(self, request: GenerationRequest) -> Generation:
        """Submit a request as soon as there is room. Several tasks may wait at the same time.

        Raises:
            InvalidArgumentError: the model cannot take such a request.
            UnavailableError: the engine was stopped.
        """
        while (generation := self.try_submit(request)) is None:
            await self.room()
        return generation

    async def room(self) -> None:
        """Wait, after `try_submit` has returned None, until it may succeed."""
        # Without room, a sequence of this call is in flight: its end wakes this task.
        room = asyncio.get_running_loop().create_future()
        self._rooms.append(room)
        await room

    def close(self) -> None:
        """Cancel the sequences in flight and give the quota back; may be called repeatedly."""
        self.finish()
        for generation in list(self._in_flight):
            generation.cancel()

    def finish(self) -> None:
        """Submit nothing more; the quota is given back when the sequences in flight have ended."""
        if self._closed:
            return
        self._closed = True
        self._hold_back(False)
        if not self._in_flight:
            self._release(spare=False)

    def _hold_back(self, holds: bool) -> None:
        if holds != self._is_held_back:
            self._is_held_back = holds
            self._quota.hold_back(1 if holds else -1)

    def _take_spare(self) -> bool:
        return len(self._in_flight) < self._max_in_flight and self._quota.take_spare(
            self._num_rows, *self._account
        )

    def _release(self, *, spare: bool) -> None:
        self._quota.release(self._num_rows, *self._account, spare=spare)

    def _ended(self, generation: Generation) -> None:
        del self._in_flight[generation]
        if self._in_flight:
            self._release(spare=True)
        elif self._closed:
            self._release(spare=False)
        rooms, self._rooms = self._rooms, []
        for room in rooms:
            if not room.done():  # done if its task was cancelled
                room.set_result(None)
