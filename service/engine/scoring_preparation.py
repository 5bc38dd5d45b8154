"""Loads a scoring graph at the first request that needs it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from service.batching.failures import loading_failed
from service.errors import (
    DragomanError,
    ResourceExhaustedError,
    UnavailableError,
)

logger = logging.getLogger(__name__)

# How long a failure is remembered: an attempt reads the whole bundle and usually fails again.
FAILURE_SECONDS = 60.0


class ScoringPreparation:
    """Loads one graph of a scorer while steps run. Belongs to the event loop.

    Args:
        prepare: loads a graph by name. A `DragomanError` that it raises has been logged; other
            errors are logged here.
        graph: name of the graph, "scoring" or "attention".
        clock: returns the time in seconds, by which failures are forgotten.

    Attributes:
        is_done: whether the scorer is ready.
    """

    def __init__(
        self,
        prepare: Callable[[str], Awaitable[None]],
        graph: str,
        clock: Callable[[], float],
    ) -> None:
        self._prepare: Callable[[str], Awaitable[None]] | None = prepare
        self._graph = graph
        self._clock = clock
        self.is_done = False
        self._task: asyncio.Task[DragomanError | None] | None = None
        self._failure: DragomanError | None = None
        self._failed_until = 0.0

    async def wait(self) -> None:
        """Wait until the graph is loaded. The first call starts loading, and others wait for it.

        Cancelling a call does not cancel loading.

        Raises:
            UnavailableError: loading failed, now or within the last minute, and the log says why;
                or the engine has ended.
            ResourceExhaustedError: memory ran out during loading, now or within the last minute.
        """
        if self.is_done:
            return
        failure, left = self._failure, self._failed_until - self._clock()
        if failure is None or left <= 0.0:
            if self._task is None:
                self._task = asyncio.create_task(self._load())
            failure, left = await asyncio.shield(self._task), FAILURE_SECONDS
        if isinstance(failure, ResourceExhaustedError):
            raise ResourceExhaustedError(str(failure), left)
        if failure is not None:
            raise UnavailableError(str(failure))

    def forget(self) -> None:
        """Release the scorer, which shares the runner's sessions, when the engine has ended."""
        self._prepare = None

    async def _load(self) -> DragomanError | None:
        self._failure = None
        try:
            assert self._prepare is not None, "the engine has ended"
            await self._prepare(self._graph)
        except DragomanError as exc:
            self._fail(exc)
        except Exception as exc:
            self._fail(loading_failed(self._graph, exc, logger))
        else:
            self.is_done = True
        finally:
            self._task = None
        return self._failure

    def _fail(self, failure: DragomanError) -> None:
        self._failure = failure
        self._failed_until = self._clock() + FAILURE_SECONDS
