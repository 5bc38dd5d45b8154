"""Garbage collection in a process that serves."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

# A collection takes up to 5 microseconds an object when memory is not in the caches: 80 ms for the
# middle generation under load, with 5,000 and 10 here.
_NEW_OBJECTS = 2000
_MIDDLE_AGED = 3  # collections of new objects
# A full collection looks at all objects of the requests in progress: 100 ms, with many long texts.
# It waits until millions have outlived the other collections, or for a pause.
_OLD = 1000
_OLD_IN_PAUSE = 10
_PAUSE_SECONDS = 1.0


def look_less() -> None:
    """Exclude the present objects, which live as long as the process, and collect less often.

    Nearly all objects of a request are freed with it, without the collector.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, _MIDDLE_AGED, _OLD)


async def collect_in_pauses(
    is_idle: Callable[[], bool], pause_seconds: float = _PAUSE_SECONDS
) -> None:
    """Collect all objects when no call is in progress and there may be garbage. Never returns.

    A disabled collector (`gc.disable`) stays so.
    """
    while True:
        await asyncio.sleep(pause_seconds)
        if gc.isenabled() and gc.get_count()[2] >= _OLD_IN_PAUSE and is_idle():
            gc.collect()
