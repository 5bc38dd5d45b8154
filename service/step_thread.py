"""The thread that the model runs in."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
from typing import Any

from service.plan import ModelRunner, StepOutput, StepPlan

logger = logging.getLogger(__name__)


class StepThread:
    """Executes plans one after another, off the event loop, and closes the runner at the end.

    A hand-off costs a queue and one wake-up of the loop, which is half of what
    `loop.run_in_executor` costs; with steps of well under a millisecond it shows.
    """

    def __init__(self, runner: ModelRunner) -> None:
        self._runner = runner
        self._loop = asyncio.get_running_loop()
        self._plans: queue.SimpleQueue[tuple[StepPlan, asyncio.Future[StepOutput]] | None] = (
            queue.SimpleQueue()
        )
        self._closed: asyncio.Future[None] = self._loop.create_future()
        # Daemon: a model that hangs must not keep the process from ending.
        self._thread = threading.Thread(target=self._work, name="model", daemon=True)
        self._thread.start()

    def execute(self, plan: StepPlan) -> asyncio.Future[StepOutput]:
        """Start on `plan` at once; the future brings its output or the runner's exception."""
        future: asyncio.Future[StepOutput] = self._loop.create_future()
        self._plans.put((plan, future))
        return future

    async def close(self) -> None:
        """Wait for the plan under way, close the runner and end the thread."""
        self._plans.put(None)
        await self._closed
        self._thread.join()

    def _work(self) -> None:
        while (item := self._plans.get()) is not None:
            plan, future = item
            try:
                self._resolve(future, self._runner.execute(plan))
            except BaseException as exc:  # whatever it is, somebody waits for it on the loop
                self._resolve(future, exc)
        try:
            self._runner.close()
        except Exception:
            logger.exception("closing the model runner failed")
        self._resolve(self._closed, None)

    def _resolve(self, future: asyncio.Future[Any], outcome: object) -> None:
        # The loop is closed only if somebody tore it down without stopping the engine.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(_settle, future, outcome)


def _settle(future: asyncio.Future[Any], outcome: object) -> None:
    if future.done():  # cancelled, with the loop's other tasks
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    elif isinstance(outcome, BaseException):
        future.set_exception(RuntimeError(f"the model runner raised {outcome!r}"))
    else:
        future.set_result(outcome)
