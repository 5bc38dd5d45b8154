"""Works on the parts of a long request: some at a time, in order, each made when needed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable
from typing import Any, TypeVar

# So that the model has work while the last sentences of a window are finished.
_AT_ONCE = 2

Window = TypeVar("Window")
Done = TypeVar("Done")


async def in_windows(
    windows: AsyncIterator[Window], work: Callable[[Window], Coroutine[Any, Any, Done]]
) -> AsyncGenerator[Done, None]:
    """The results of work on each window, in order. Close it to cancel unfinished work."""
    first = await anext(windows, None)
    second = await anext(windows, None)
    if first is None:
        return
    if second is None:  # as for most requests: without a task
        yield await work(first)
        return
    begun = deque((asyncio.create_task(work(first)), asyncio.create_task(work(second))))
    try:
        async for window in windows:
            if len(begun) == _AT_ONCE:
                yield await begun.popleft()
            begun.append(asyncio.create_task(work(window)))
        while begun:
            yield await begun.popleft()
    finally:
        await cancelled(begun)


async def cancelled(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and wait for their end."""
    ending = list(tasks)
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)
