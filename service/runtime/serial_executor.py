"""A thread that carries out one thing after another."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable


class SerialExecutor:
    """Carries out what it is given, in order.

    Args:
        name: of its thread.
    """

    def __init__(self, name: str) -> None:
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        # Daemon: a model that hangs must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def submit(self, task: Callable[[], None]) -> None:
        """Carry out `task`, which must not raise, after those before it."""
        self._tasks.put(task)

    def stop(self) -> None:
        """End after what was submitted."""
        self._tasks.put(None)

    def join(self) -> None:
        """Wait for the end; after `stop`."""
        self._thread.join()

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()
            del task  # it may hold arrays, and the next may be long in coming
