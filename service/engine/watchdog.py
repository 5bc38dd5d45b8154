"""Watchdog: detects a model that makes no progress while it has work.

A model that reports nothing for longer than its work can take is *stalled*: the health service
answers NOT_SERVING, so that calls go to other servers, until the model reports again. A model that
stays stalled is *hung*, and its engine is abandoned.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from service.engine.interface import EngineProgress

_log = logging.getLogger(__name__)

_TOLERANCE = 4.0  # multiple of the expected time
_CHECKS = 4  # number within `stall_seconds`
_MAX_INTERVAL = 1.0
# A check more than this many intervals after the last one proves nothing: the server did not run in
# between, and perhaps neither did the model (a suspended machine, a stopped process group).
_LATE = 2.0


class Watched(Protocol):
    """An engine, or a model with an engine that may be replaced."""

    @property
    def has_failed(self) -> bool:
        """Same as `ServableEngine.has_failed`."""
        ...

    def pulse(self) -> EngineProgress | None:
        """Same as `ServableEngine.pulse`."""
        ...

    def abandon(self) -> None:
        """Same as `ServableEngine.abandon`."""
        ...


class StallDetector:
    """Decides whether one model is stalled or hung, from its progress and the time.

    Args:
        stall_seconds: time without a report after which the model is stalled, unless `_TOLERANCE`
            times the expected time is longer.
        hang_seconds: duration of a stall after which the model is hung; 0 for never.

    Attributes:
        interval: time from one check to the next, in seconds.
        silent_seconds: time for which the model has had work and reported nothing.
    """

    def __init__(self, stall_seconds: float, hang_seconds: float) -> None:
        self.interval = min(_MAX_INTERVAL, stall_seconds / _CHECKS)
        self.silent_seconds = 0.0
        self._stall_seconds = stall_seconds
        self._hang_seconds = hang_seconds
        self._limit = stall_seconds
        self._checked_at = 0.0
        self._last: EngineProgress | None = None

    def check(self, progress: EngineProgress | None, now: float) -> None:
        """Compare the progress with that of the last check.

        Args:
            progress: progress of the engine; None while it has no work.
            now: time of a monotonic clock, in seconds.
        """
        elapsed, self._checked_at = now - self._checked_at, now
        last, self._last = self._last, progress
        if progress is None or last is None or progress.num_reports != last.num_reports:
            self.silent_seconds = 0.0
        elif elapsed <= _LATE * self.interval:
            self.silent_seconds += elapsed
        expected = 0.0 if progress is None else progress.expected_seconds
        self._limit = max(self._stall_seconds, _TOLERANCE * expected)

    @property
    def is_stalled(self) -> bool:
        """Whether the model has been silent for too long."""
        return self.silent_seconds >= self._limit

    @property
    def is_hung(self) -> bool:
        """Whether the model has been stalled for too long."""
        if self._last is None or not self._last.may_hang:
            return False
        return self._hang_seconds > 0.0 and self.silent_seconds >= self._limit + self._hang_seconds


class Watchdog:
    """Watches all models of a server. Belongs to the event loop.

    Args:
        models: engines or models, by name.
        stall_seconds, hang_seconds: limits of each `StallDetector`.
        on_change: called with the name of a model and whether it has stalled (True) or recovered
            (False).

    Attributes:
        stalled: names of the models that are stalled.
    """

    def __init__(
        self,
        models: Mapping[str, Watched],
        stall_seconds: float,
        hang_seconds: float,
        on_change: Callable[[str, bool], None],
    ) -> None:
        self.stalled: set[str] = set()
        self._watched = [
            (name, model, StallDetector(stall_seconds, hang_seconds))
            for name, model in models.items()
        ]
        self._on_change = on_change

    async def run(self) -> None:
        """Check all models periodically, until cancelled."""
        clock = asyncio.get_running_loop().time
        interval = min(detector.interval for *_, detector in self._watched)
        while True:
            self.check(clock())
            await asyncio.sleep(interval)

    def check(self, now: float) -> None:
        """Check each model once; abandon those that hang."""
        for name, model, detector in self._watched:
            if model.has_failed:
                continue
            detector.check(model.pulse(), now)
            extra = {"model": name, "silent_seconds": round(detector.silent_seconds, 3)}
            if detector.is_stalled and name not in self.stalled:
                self.stalled.add(name)
                _log.error("a model has work and makes no progress", extra=extra)
                self._on_change(name, True)
            elif not detector.is_stalled and name in self.stalled:
                self.stalled.remove(name)
                _log.warning("a stalled model makes progress again", extra={"model": name})
                self._on_change(name, False)
            if detector.is_hung:
                _log.error("a model hangs: it is abandoned", extra=extra)
                model.abandon()
