"""Puts models to sleep after some time without calls."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from service.models.lifecycle.model_lifecycle import ModelLifecycle

_CHECKS = 8  # number within `idle_seconds`
_MAX_INTERVAL = 1.0


@dataclass
class _Seen:
    """The state of a model at the last check.

    Attributes:
        version: the version that served.
        num_leases: number of leases so far.
        idle_since: time of the first of the checks that found the same version and leases, and no
            call in progress.
    """

    version: object
    num_leases: int
    idle_since: float


class IdleMonitor:
    """Puts each model to sleep that was idle for `idle_seconds`. Belongs to the event loop.

    Only checks read the clock, so that calls need not.
    """

    def __init__(self, models: Iterable[ModelLifecycle[Any]], idle_seconds: float) -> None:
        self.interval = min(_MAX_INTERVAL, idle_seconds / _CHECKS)
        self._idle_seconds = idle_seconds
        self._models = list(models)
        self._seen: dict[str, _Seen] = {}

    async def run(self) -> None:
        """Check all models periodically, until cancelled."""
        clock = asyncio.get_running_loop().time
        while True:
            await self.check(clock())
            await asyncio.sleep(self.interval)

    async def check(self, now: float) -> None:
        """Check each model once."""
        for model in self._models:
            version, num_leases = model.current, model.num_leases
            seen = self._seen.get(version.name)
            is_changed = (
                seen is None or seen.version is not version or seen.num_leases != num_leases
            )
            if seen is None or is_changed or not model.is_idle:
                self._seen[version.name] = _Seen(version, num_leases, now)
            elif now - seen.idle_since >= self._idle_seconds:
                await model.sleep()
