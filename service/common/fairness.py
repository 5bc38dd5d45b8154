"""Fair use of the event loop and of a thread: a client's work does not delay other clients.

Work that grows with a text is done in pieces of some milliseconds. Short pieces run on the event
loop, and other calls get their turn between them (`checkpoint`, `on_loop`). Work that can't be cut
into short pieces runs in a thread (`in_thread`). Both take pieces from clients round-robin.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar
from weakref import WeakKeyDictionary

from service.common.fair_slots import FairSlots
from service.common.turns import Turns

# Computing time of one client in an iteration of the event loop before others get a turn: about the
# delay of their calls. Waiting for the next iteration costs about ten microseconds.
_ITERATION_SECONDS = 0.003
# New calls come first: gRPC delivers one at a time, and the next may be of a client without a call.
# But waiting work gets a turn at least this often.
_ARRIVALS_SECONDS = 0.02
# Calls this close to each other belong to a burst, of which gRPC holds more. It needs several
# iterations to deliver the next one.
_BURST_SECONDS = 0.0005

# Long enough for another thread to take Python's lock.
_PAUSE_SECONDS = 5e-5

MAX_PREPARING = 2
"""Most calls with long texts that are prepared at a time, before admission; one for each client."""

_client: contextvars.ContextVar[str] = contextvars.ContextVar("client", default="")

T = TypeVar("T")


class FairLoop:
    """Shares the computing time of an event loop among clients. Belongs to that loop."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._waiting = Turns()
        self._is_armed = False  # for the next iteration
        self._has_arrivals = False  # in this iteration
        self._last_arrival = -_BURST_SECONDS
        self._burst_ends = 0.0  # unless another call arrives before
        self._chosen: str | None = None  # the client that may compute
        self._ends = 0.0  # end of its time in this iteration
        self._begun = 0.0  # start of the last work that had to wait for arrivals

    def arrived(self) -> None:
        """Record that a call has arrived."""
        now = self._clock()
        if now - self._last_arrival < _BURST_SECONDS:
            self._burst_ends = now + _BURST_SECONDS
        self._last_arrival = now
        self._has_arrivals = True
        self._arm()

    def _must_accept(self, now: float) -> bool:
        """Whether calls are arriving, and waiting work has had its turn lately."""
        is_arriving = self._has_arrivals or now < self._burst_ends
        return is_arriving and now - self._begun < _ARRIVALS_SECONDS

    def is_over(self, client: str) -> bool:
        """Whether a client's work has to wait for the next iteration or for other clients."""
        now = self._clock()
        if self._waiting:
            return client != self._chosen or now >= self._ends
        if self._ends == 0.0:
            self._ends = now + _ITERATION_SECONDS
            self._arm()
        return now >= self._ends

    def must_wait(self) -> bool:
        """Whether work of milliseconds has to wait before it begins."""
        now = self._clock()
        if self._waiting or self._ends or self._must_accept(now):
            return True
        self._begun = now
        self._ends = now + _ITERATION_SECONDS
        self._arm()
        return False

    async def wait(self, client: str) -> None:
        """Wait until it is this client's turn."""
        due = self._waiting.add(client)
        self._arm()
        await _ends_in_turn(due)
        self._begun = self._clock()
        self._ends = self._begun + _ITERATION_SECONDS
        self._arm()

    def _arm(self) -> None:
        if not self._is_armed:
            self._is_armed = True
            asyncio.get_running_loop().call_soon(self._next_iteration)

    def _next_iteration(self) -> None:
        self._is_armed = False
        self._ends = 0.0
        if not self._must_accept(self._clock()):
            self._chosen = self._waiting.wake()
        self._has_arrivals = False
        if self._waiting:
            self._arm()


_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, FairLoop] = WeakKeyDictionary()
_preparing: WeakKeyDictionary[asyncio.AbstractEventLoop, FairSlots] = WeakKeyDictionary()


_last: tuple[asyncio.AbstractEventLoop | None, FairLoop] = (None, FairLoop())


def _fair_loop() -> FairLoop:
    global _last
    loop = asyncio.get_running_loop()
    last, fair = _last
    if last is loop:  # always true in a server; takes a third of the time
        return fair
    _last = loop, fair = loop, _loops.setdefault(loop, FairLoop())
    return fair


def arrived(client: str) -> None:
    """Record that a call of a client has arrived; the running task now works for this client."""
    _client.set(client)
    _fair_loop().arrived()


def works_for(client: str) -> None:
    """Set the client for which the running task works, and the tasks that it starts."""
    _client.set(client)


async def begin_preparing() -> Callable[[], None]:
    """Wait until the running task may prepare long texts.

    A call counts as being prepared until the model admits it. Without this limit, a thousand calls
    would be prepared at the same time, and take their memory, before the first of them fills the
    model's queue.

    Returns:
        A function to be called when the call has been admitted or has ended.
    """
    loop, client = asyncio.get_running_loop(), _client.get()
    slots = _preparing.setdefault(loop, FairSlots(MAX_PREPARING))
    await _ends_in_turn(slots.take(client))
    return functools.partial(slots.give_back, client)


async def checkpoint() -> None:
    """Let others continue if this iteration of the event loop has computed for some milliseconds.

    Await it before each piece of work that takes less than a millisecond.
    """
    fair, client = _fair_loop(), _client.get()
    if fair.is_over(client):
        await fair.wait(client)


async def turn() -> None:
    """Wait for the client's turn, before some milliseconds of work on the event loop."""
    fair = _fair_loop()
    if fair.must_wait():
        await fair.wait(_client.get())


async def on_loop(work: Callable[[], T]) -> T:
    """The result of some milliseconds of work on the event loop, once it is the client's turn."""
    await turn()
    return work()


async def in_thread(work: Callable[[], T], client: str | None = None) -> T:
    """Run longer work in the thread that all clients share; returns its result.

    There is one thread for all: several would hold Python's lock in turn, each for milliseconds,
    whenever the event loop needs it.

    Args:
        work: function without long calls that hold Python's lock.
        client: name of the client; None for the one that the running task works for.
    """
    result = await _ends_in_turn(_thread.run(work, _client.get() if client is None else client))
    await checkpoint()  # many results can arrive at the event loop at once
    return result


async def in_turn(work: Callable[[], T], *, is_short: bool) -> T:
    """Run work on the event loop if it takes some milliseconds at most, else in the thread."""
    return await (on_loop(work) if is_short else in_thread(work))


async def _ends_in_turn(waiting: Awaitable[T]) -> T:
    """Await something; if it is cancelled, wait for a checkpoint before the end.

    A client that disconnects cancels up to thousands of calls at once, and ending each takes time.
    """
    try:
        return await waiting
    except asyncio.CancelledError:
        await checkpoint()
        raise


class FairExecutor:
    """A thread that takes work from its clients round-robin; a client's work runs in order.

    So a client with one piece of work waits for one piece of every other client, however many
    pieces they have. With several threads, a client's work begins in order.
    """

    def __init__(self, name: str, num_threads: int = 1) -> None:
        self._executor = ThreadPoolExecutor(num_threads, thread_name_prefix=name)
        self._lock = threading.Lock()
        # By client, the next one first.
        self._waiting: dict[str, deque[Callable[[], None]]] = {}

    async def run(self, work: Callable[[], T], client: str) -> T:
        """Run `work` in the thread. If cancelled before it begins, it does not run."""
        future: Future[T] = Future()

        def execute() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = work()
            except BaseException as exc:
                future.set_exception(exc)
            else:
                future.set_result(result)

        with self._lock:
            self._waiting.setdefault(client, deque()).append(execute)
        # The thread chooses the client when it runs this.
        self._executor.submit(self._execute_next)
        return await asyncio.wrap_future(future)

    def _execute_next(self) -> None:
        # NumPy releases Python's lock and takes it again at once. A thread that waits for the lock
        # wakes up in vain each time, and never demands it: the event loop waited for up to 0.18 s.
        time.sleep(_PAUSE_SECONDS)
        with self._lock:
            client = next(iter(self._waiting))
            works = self._waiting.pop(client)
            execute = works.popleft()
            if works:  # to the end of the line
                self._waiting[client] = works
        execute()


_thread = FairExecutor("compute")
