"""A thread for work that is too long for the event loop, in which clients take turns."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class FairExecutor:
    """Does one thing after another, of each client by turns: in order among its own.

    So who has one thing to do waits for one of each other client, however many they have.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._lock = threading.Lock()
        # By client, who is next first.
        self._waiting: dict[str, deque[Callable[[], None]]] = {}

    async def run(self, work: Callable[[], T], client: str) -> T:
        """What `work` returns, or raises. If cancelled before it begins, it is not done."""
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
        # Whose work it will be is decided when the thread comes to it.
        self._executor.submit(self._execute_next)
        return await asyncio.wrap_future(future)

    def _execute_next(self) -> None:
        with self._lock:
            client = next(iter(self._waiting))
            works = self._waiting.pop(client)
            execute = works.popleft()
            if works:  # behind everybody else
                self._waiting[client] = works
        execute()
