"""A thread that runs tasks in order."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable


class SerialExecutor:
    """Runs tasks in order on a thread of its own."""

    def __init__(self, name: str) -> None:
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        # A daemon thread, so that the process can end while a model hangs.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, task: Callable[[], None]) -> None:
        """Run `task`, which must not raise, after the tasks submitted before."""
        self._tasks.put(task)

    def stop(self) -> None:
        """End after the tasks submitted so far."""
        self._tasks.put(None)

    def join(self) -> None:
        """Wait for the end of the thread after `stop`."""
        self._thread.join()

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()
            del task  # frees its arrays while the queue is empty
