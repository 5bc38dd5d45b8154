"""Opens models in threads that the server does not wait for when it ends, and tries them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

from service.errors import DragomanError, StartupError
from service.models.lifecycle.interface import ModelVersion

# The warm-up is a few short sentences; a model that takes longer than this hangs.
_WARM_UP_SECONDS = 60.0

T = TypeVar("T")
V = TypeVar("V", bound=ModelVersion)


async def in_daemon_thread(work: Callable[[], T]) -> T:
    """Call `work` in a daemon thread; if cancelled, do not wait for the thread."""
    return await asyncio.wrap_future(_started(work))


async def open_version(reopen: Callable[[], V]) -> V:
    """Open a version of a model in a daemon thread; if cancelled, the version is closed again."""
    opened = _started(reopen)
    try:
        return await asyncio.shield(asyncio.wrap_future(opened))
    except asyncio.CancelledError:
        loop = asyncio.get_running_loop()
        opened.add_done_callback(lambda done: _close(done, loop))
        raise


async def warm_up(version: ModelVersion) -> None:
    """Let a started version translate something. Raises StartupError if it can't."""
    try:
        async with asyncio.timeout(_WARM_UP_SECONDS):
            await version.warm_up()
    except TimeoutError as exc:
        raise StartupError(f"its warm-up took over {_WARM_UP_SECONDS:.0f} s") from exc
    except DragomanError as exc:
        raise StartupError(f"its warm-up failed: {exc}") from exc


def _started(work: Callable[[], T]) -> concurrent.futures.Future[T]:
    done: concurrent.futures.Future[T] = concurrent.futures.Future()
    done.set_running_or_notify_cancel()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as exc:
            done.set_exception(exc)

    # The end of the event loop would wait for a thread of a pool.
    threading.Thread(target=run, name="load", daemon=True).start()
    return done


def _close(opened: concurrent.futures.Future[V], loop: asyncio.AbstractEventLoop) -> None:
    if opened.exception() is not None:
        return
    stop = opened.result().engine.stop
    # If the loop is closed, the process ends, and the model's process ends with it.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(lambda: asyncio.ensure_future(stop()))
