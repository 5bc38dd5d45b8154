"""Notices a model that makes no progress while it has work.

Readiness and liveness differ. A model that reports nothing for longer than its work can take is
*stalled*: the health service says NOT_SERVING, so that calls go to other servers, until the model
reports again. A model that stays stalled is *hung*: its engine is abandoned, and the server ends
with status 1, so that its supervisor starts it afresh.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from service.engine.interface import EngineProgress, ServableEngine

_log = logging.getLogger(__name__)

_PATIENCE = 4.0  # times the expected time
_LOOKS = 4  # within `stall_seconds`
_LONGEST_INTERVAL = 1.0
# A look that comes so many intervals after the last one is no evidence: the server itself did not
# run, and neither may have the model (a suspended machine, a stopped process group).
_LATE = 2.0


class Watchdog:
    """Watches one model. Plain arithmetic on the times that `look` is told.

    Args:
        stall_seconds: silence that counts as a stall, if it is `_PATIENCE` times what is expected.
        hang_seconds: a stall of this length counts as a hang; 0 for never.

    Attributes:
        interval: seconds from one look to the next.
        silent_seconds: how long the model has had work and was seen to report nothing.
    """

    def __init__(self, stall_seconds: float, hang_seconds: float) -> None:
        self.interval = min(_LONGEST_INTERVAL, stall_seconds / _LOOKS)
        self.silent_seconds = 0.0
        self._stall_seconds = stall_seconds
        self._hang_seconds = hang_seconds
        self._limit = stall_seconds
        self._looked_at = 0.0
        self._last: EngineProgress | None = None

    def look(self, pulse: EngineProgress | None, now: float) -> None:
        """Compare with the last look.

        Args:
            pulse: of the engine; None while it has no work.
            now: seconds of a monotonic clock.
        """
        elapsed, self._looked_at = now - self._looked_at, now
        last, self._last = self._last, pulse
        if pulse is None or last is None or pulse.num_reports != last.num_reports:
            self.silent_seconds = 0.0
        elif elapsed <= _LATE * self.interval:
            self.silent_seconds += elapsed
        expected = 0.0 if pulse is None else pulse.expected_seconds
        self._limit = max(self._stall_seconds, _PATIENCE * expected)

    @property
    def is_stalled(self) -> bool:
        """Whether the model has been silent for too long."""
        return self.silent_seconds >= self._limit

    @property
    def is_hung(self) -> bool:
        """Whether it has been stalled for too long."""
        return self._hang_seconds > 0.0 and self.silent_seconds >= self._limit + self._hang_seconds


class Watched(Protocol):
    """A model with a name and an engine: `service.api.registry.ServedModel`."""

    @property
    def name(self) -> str:
        """For messages and metrics."""
        ...

    @property
    def engine(self) -> ServableEngine:
        """Runs it."""
        ...


class Watch:
    """Watches all models of a server. Belongs to the event loop.

    Args:
        models: those that serve.
        stall_seconds, hang_seconds: as for `Watchdog`.
        on_change: told the name of a model that has stalled (True) or goes on (False).

    Attributes:
        stalled: names of the models that are stalled.
    """

    def __init__(
        self,
        models: Iterable[Watched],
        stall_seconds: float,
        hang_seconds: float,
        on_change: Callable[[str, bool], None],
    ) -> None:
        self.stalled: set[str] = set()
        self._watchdogs = [(model, Watchdog(stall_seconds, hang_seconds)) for model in models]
        self._on_change = on_change

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        clock = asyncio.get_running_loop().time
        interval = min(watchdog.interval for _, watchdog in self._watchdogs)
        while True:
            self.look(clock())
            await asyncio.sleep(interval)

    def look(self, now: float) -> None:
        """Look at each model once; abandon those that hang."""
        for model, watchdog in self._watchdogs:
            if model.engine.has_failed:  # and so it stays
                continue
            watchdog.look(model.engine.pulse(), now)
            about = {"model": model.name, "silent_seconds": round(watchdog.silent_seconds, 3)}
            if watchdog.is_stalled and model.name not in self.stalled:
                self.stalled.add(model.name)
                _log.error("a model has work and makes no progress", extra=about)
                self._on_change(model.name, True)
            elif not watchdog.is_stalled and model.name in self.stalled:
                self.stalled.remove(model.name)
                _log.warning("a model that was stalled goes on", extra={"model": model.name})
                self._on_change(model.name, False)
            if watchdog.is_hung:
                _log.error("a model hangs: it is abandoned", extra=about)
                model.engine.abandon()
