"""The life cycle of one model: open, serve, replace, sleep, wake, restart, stop.

A call *leases* the serving version for its whole duration. So a replaced version finishes the calls
that hold it, and a model without leases can be put to sleep. If the model's process ends by itself,
its calls end with UNAVAILABLE, and the model is opened again, as a sleeping one is woken.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from service.engine.interface import EngineProgress
from service.errors import (
    DragomanError,
    FailedPreconditionError,
    StartupError,
    UnavailableError,
)
from service.models.lifecycle.interface import LifecycleObserver, ModelState, ModelVersion
from service.models.lifecycle.opening import in_daemon_thread, open_version, warm_up
from service.models.lifecycle.recent_ends import MOST_ENDS, RecentEnds

V = TypeVar("V", bound=ModelVersion)

# Longest time to open a version. A model's process has a shorter limit; this one also covers the
# work before that, such as reading files from a disk that does not answer.
_OPEN_SECONDS = 2100.0
# Pauses before a sleeping model's bundle is opened again after a failure: `mv model old && mv new
# model` leaves the directory missing for a moment, or changes it while it is read.
_REOPEN_PAUSES_SECONDS = (0.1, 0.4)

_NO_PROGRESS = EngineProgress(0, may_hang=False)

_log = logging.getLogger("dragoman.lifecycle")


class _Opening(NamedTuple):
    """Words for a reason to open a model again: what it was before, and lines of the log."""

    before: str
    done: str
    failed: str


_WAKE = _Opening("was asleep", "awake", "a model could not be woken")
_RESTART = _Opening("had ended", "restarted", "a model could not be restarted")


class _Leased(Generic[V]):
    """A version with a running engine. A context manager that many calls hold at a time."""

    def __init__(self, version: V) -> None:
        self.version = version
        self.num_calls = 0
        self.is_free = asyncio.Event()
        self.is_free.set()

    def __enter__(self) -> V:
        self.num_calls += 1
        self.is_free.clear()
        return self.version

    def __exit__(self, *error: object) -> None:
        self.num_calls -= 1
        if not self.num_calls:
            self.is_free.set()


class ModelLifecycle(Generic[V]):
    """Owns the versions of one model, one of which serves. Belongs to the event loop.

    Args:
        first: the first version, with an engine that has not started.
        open_seconds: longest time to open a version; one that is opened later is closed at once.
        clock: returns the time in seconds, by which repeated ends are counted.

    Attributes:
        current: the serving version; while the model is asleep, the one that served last.
        num_leases: number of leases so far.
    """

    def __init__(
        self,
        first: V,
        observer: LifecycleObserver | None = None,
        open_seconds: float = _OPEN_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.current: V = first
        self.num_leases = 0
        self._observer = observer or LifecycleObserver()
        self._open_seconds = open_seconds
        self._serving: _Leased[V] | None = None
        self._replaced: V | None = None
        self._draining: asyncio.Task[None] | None = None  # of `_replaced`
        self._waking: asyncio.Task[str] | None = None  # or restarting
        self._is_restarting = False
        self._recent_ends = RecentEnds(clock)
        self._watches: set[asyncio.Task[None]] = set()
        # Held while a version is opened or closed: by replace, sleep, wake and restart.
        self._changing = asyncio.Lock()
        self._ended = asyncio.Event()
        self._was_stopped = False

    @property
    def state(self) -> ModelState:
        """The state of the model. May be read from any thread."""
        if self._serving is not None:
            return ModelState.SERVING
        return ModelState.ASLEEP if self._waking is None else ModelState.LOADING

    @property
    def is_idle(self) -> bool:
        """Whether the model serves and no call holds it."""
        return self._serving is not None and not self._serving.num_calls

    # --- start and stop --------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the first version, which serves from now on."""
        await self.current.engine.start()
        self._take_over(self.current)
        self._observer.on_start(self.current.name, lambda: self.state)

    async def stop(self) -> None:
        """Stop every version at once; unfinished requests fail with UnavailableError.

        The time is bounded: an engine that hangs is abandoned, and counts as failed.
        """
        self._was_stopped = True
        for task in (self._waking, self._draining, *self._watches):
            if task is not None:
                task.cancel()
        versions = [self.current, *([] if self._replaced is None else [self._replaced])]
        await asyncio.gather(*(version.engine.stop() for version in versions))

    @property
    def has_failed(self) -> bool:
        """Whether the serving version ended for good, or did not end when it was stopped."""
        if self._ended.is_set():
            return True
        is_stopped = self._was_stopped and self._serving is not None
        return is_stopped and self.current.engine.has_failed

    async def wait_until_ended(self) -> None:
        """Wait until the engine of the serving version has ended for good."""
        await self._ended.wait()

    # --- what the watchdog asks ------------------------------------------------------------------

    def pulse(self) -> EngineProgress | None:
        """The progress of the serving version; None while it has no work.

        While the model is restarted, there is none: a long restart counts as a stall.
        """
        if self._serving is None:
            return _NO_PROGRESS if self._is_restarting else None
        return self._serving.version.engine.pulse()

    def abandon(self) -> None:
        """Abandon the serving version, which hangs."""
        if self._serving is not None:
            self._serving.version.engine.abandon()

    # --- serve -----------------------------------------------------------------------------------

    async def lease(self) -> AbstractContextManager[V]:
        """Lease the serving version for one call. Wakes a sleeping model first.

        Returns:
            A context manager that holds the version; it must be entered at once. An asynchronous
            one would cost each call a generator that the event loop keeps track of.

        Raises:
            UnavailableError: the model was asleep, or its process had ended, and it can't be
                opened; the next call tries again.
        """
        while (leased := self._serving) is None:
            await self._wake()
        self.num_leases += 1
        return leased

    def _take_over(self, version: V) -> None:
        """Serve calls from now on with a version that has been started."""
        leased = self._serving = _Leased(version)
        self.current = version
        version.observer.on_current()
        watch = asyncio.create_task(self._watch(leased), name=f"watch {version.name}")
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)

    async def _watch(self, leased: _Leased[V]) -> None:
        """Restart the model when a serving engine ends; the end of a replaced one is expected."""
        await leased.version.engine.wait_until_ended()
        if leased is not self._serving:
            return
        if leased.version.has_own_process and not self._recent_ends.add():
            self._serving, self._is_restarting = None, True
            leased.version.observer.on_retired()
            self._begin_opening(self._restart(leased.version), "restart")
        else:
            self._ended.set()
            if leased.version.has_own_process:  # its end is logged, and the process is forgotten
                await leased.version.engine.stop()

    # --- replace ---------------------------------------------------------------------------------

    async def replace(
        self, bundle: Path | None, drain_seconds: float, *, allow_fewer_languages: bool = False
    ) -> V:
        """Open another version while the present one serves, try it, and let it take over.

        Calls in progress finish with the old version, within `drain_seconds`. If anything fails,
        the old version continues to serve.

        Args:
            bundle: directory of the new version; None for the directory of the present one.
            drain_seconds: time after which calls of the old version end with UNAVAILABLE.

        Raises:
            FailedPreconditionError: the new version can't serve; says why.
        """
        name = self.current.name
        try:
            async with self._changing:
                await self.wait_until_drained()  # so that there are at most two versions
                new = await self._open_and_prove(bundle, allow_fewer_languages)
                old = self._serving
                if old is not None:
                    old.version.observer.on_retired()
                self._take_over(new)
                if old is not None:
                    self._replaced = old.version
                    drain = self._drain(old, drain_seconds)
                    self._draining = asyncio.create_task(drain, name=f"drain {name}")
        except DragomanError as exc:
            self._observer.on_reload(name, succeeded=False)
            raise FailedPreconditionError(f"model {name} was not replaced: {exc}") from exc
        except Exception:
            self._observer.on_reload(name, succeeded=False)
            raise
        self._observer.on_reload(name, succeeded=True)
        return new

    async def is_changed(self) -> bool:
        """Whether a reload would serve another bundle; if not, the observer learns of it."""
        current = self.current
        is_changed = await in_daemon_thread(current.is_changed)
        if not is_changed:
            self._observer.on_unchanged(current.name)
        return is_changed

    async def _open_and_prove(
        self,
        bundle: Path | None,
        allow_fewer_languages: bool,
        pauses_seconds: Iterable[float] = (),
    ) -> V:
        """Open, start and warm up a version; after a failure, try again after each pause."""
        present = self.current
        path = bundle or present.bundle
        if present.reopen is None or path is None:
            raise StartupError(
                "it runs on a CPU in the server's own process (on a single core, or with "
                "--in-process): restart the server to change it"
            )
        # A call waits for a model that wakes; a reload can leave the processor to others.
        reopen = functools.partial(present.reopen, path, self._waking is None)
        try:
            async with asyncio.timeout(self._open_seconds):
                for pause in pauses_seconds:
                    with contextlib.suppress(StartupError):
                        new = await open_version(reopen)
                        break
                    await asyncio.sleep(pause)
                else:
                    new = await open_version(reopen)
        except TimeoutError as exc:
            raise StartupError(f"it was not open after {self._open_seconds:.0f} s") from exc
        try:
            if not allow_fewer_languages and (lost := new.lacks(present)):
                raise StartupError(
                    f"{path} does not translate {', '.join(lost)}, which version "
                    f"{present.version} does (`dragoman reload --allow-fewer-languages` allows it)"
                )
            await new.engine.start()
            await warm_up(new)
        except BaseException:
            await asyncio.shield(new.engine.stop())
            raise
        return new

    async def _drain(self, old: _Leased[V], seconds: float) -> None:
        """Stop a version when its calls have ended or the time has passed."""
        try:
            async with asyncio.timeout(seconds):
                await old.is_free.wait()
        except TimeoutError:
            _log.warning(
                "calls of a replaced version were still in progress and are cut off",
                extra={"model": old.version.name, "calls": old.num_calls},
            )
        await old.version.engine.stop()
        self._replaced = None

    async def wait_until_drained(self) -> None:
        """Wait until the last replaced version has ended."""
        if self._draining is not None:
            await asyncio.wait({self._draining})

    # --- sleep, wake and restart -----------------------------------------------------------------

    async def sleep(self) -> bool:
        """End the process of a model that no call holds; the next call wakes it.

        Returns:
            Whether the model sleeps now: not if calls hold it or it is being replaced.
        """
        can_wake = self.current.reopen is not None and self.current.bundle is not None
        if not can_wake or not self.is_idle or self._changing.locked():
            return False
        async with self._changing:  # at once: it is not locked
            version = self.current
            self._serving = None
            version.observer.on_retired()
            await version.engine.stop()
        _log.info("asleep", extra={"model": version.name})
        return True

    async def _wake(self) -> None:
        """Wake the model and wait until it serves; other calls wait for the same wake."""
        if self._was_stopped or self._ended.is_set():
            raise UnavailableError("the server is shutting down")
        waking = self._waking or self._begin_opening(self._open_again(_WAKE), "wake")
        try:
            error = await asyncio.shield(waking)  # a cancelled call leaves the others waiting
        except asyncio.CancelledError:
            if waking.cancelled():
                raise UnavailableError("the server is shutting down") from None
            raise
        if error:
            raise UnavailableError(error)

    def _begin_opening(self, opening: Coroutine[Any, Any, str], name: str) -> asyncio.Task[str]:
        task = asyncio.create_task(opening, name=f"{name} {self.current.name}")
        task.add_done_callback(self._opened_again)
        self._waking = task
        return task

    def _opened_again(self, opening: asyncio.Task[str]) -> None:
        if self._waking is opening:
            self._waking = None
        if not opening.cancelled() and (defect := opening.exception()):
            _log.error("a model could not be opened again", exc_info=defect)

    async def _restart(self, ended: V) -> str:
        """Open the model after its engine has ended; returns why that failed for good, or ""."""
        is_open, error = False, ""
        try:
            await ended.engine.stop()  # so that the process's memory is free
            for _ in range(MOST_ENDS):  # slow failures are never as many within a minute
                error = await self._open_again(_RESTART)
                if not error or self._recent_ends.add():
                    break
            is_open = not error
            return error
        except asyncio.CancelledError:  # the server stops
            is_open = True
            raise
        finally:
            self._is_restarting = False
            if not is_open:
                self._ended.set()

    async def _open_again(self, kind: _Opening) -> str:
        """Open the model's bundle; returns why that failed, or ""."""
        name = self.current.name
        observe = self._observer.on_wake if kind is _WAKE else self._observer.on_restart
        async with self._changing:
            if self._serving is not None:  # a reload has replaced it in the meantime
                return ""
            try:
                version = await self._open_and_prove(None, False, _REOPEN_PAUSES_SECONDS)
                self._take_over(version)
            except DragomanError as exc:
                _log.error(kind.failed, extra={"model": name, "error": str(exc)})
                observe(name, succeeded=False)
                # Without the reason, which may name a path: a client gets this.
                return f"model {name} {kind.before} and could not be opened; see the server's log"
        observe(name, succeeded=True)
        _log.info(kind.done, extra={"model": name, "version": self.current.version})
        return ""
