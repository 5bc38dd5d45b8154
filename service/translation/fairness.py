"""Fair use of the event loop and of a thread: a large call does not hold up other calls."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

# Roughly the delay that other calls see. A yield costs some ten microseconds.
_YIELD_SECONDS = 0.002

T = TypeVar("T")


class CooperativeYield:
    """Yields to the event loop whenever a coroutine has computed for some milliseconds.

    Args:
        seconds: the time between yields.
    """

    def __init__(self, seconds: float = _YIELD_SECONDS) -> None:
        self._seconds = seconds
        self._since = time.perf_counter()

    async def checkpoint(self) -> None:
        """Yield if it is due. To be awaited often."""
        if time.perf_counter() - self._since >= self._seconds:
            await asyncio.sleep(0)
            self._since = time.perf_counter()


class FairExecutor:
    """A thread that takes work from its clients round-robin; a client's work runs in order.

    So a client with one piece of work waits for one piece of every other client, however many they
    have.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._lock = threading.Lock()
        # By client, the next one first.
        self._waiting: dict[str, deque[Callable[[], None]]] = {}

    async def run(self, work: Callable[[], T], client: str) -> T:
        """Run `work` in the thread; cancelled before it begins, it does not run."""
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
        # The thread chooses the client when it gets there.
        self._executor.submit(self._execute_next)
        return await asyncio.wrap_future(future)

    def _execute_next(self) -> None:
        with self._lock:
            client = next(iter(self._waiting))
            works = self._waiting.pop(client)
            execute = works.popleft()
            if works:  # to the end of the line
                self._waiting[client] = works
        execute()
