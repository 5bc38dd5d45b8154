"""Access control as the settings say: the file of keys, and what is saved of their usage."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from service.access.key_store import KeyStore
from service.access.usage import UsageLedger
from service.access.usage_store import UsageStore
from service.api.authentication import AccessControl, Authenticator
from service.observability.metrics import ServerMetrics
from service.settings import Settings

_log = logging.getLogger("dragoman.keys")


class Access:
    """What admits calls, and the work in the background that it needs.

    Args:
        settings: name the file of keys.
        metrics: of the keys.

    Attributes:
        control: admits calls; nobody's until `start` has ended, unless no keys are wanted.
    """

    def __init__(self, settings: Settings, metrics: ServerMetrics) -> None:
        self._ledger = UsageLedger()
        self._tasks: list[asyncio.Task[None]] = []
        self._keys: KeyStore | None = None
        self._usage: UsageStore | None = None
        if path := settings.usage or (settings.keys and f"{settings.keys}.usage.db"):
            self._usage = UsageStore(Path(path), metrics)
        authenticators: list[Authenticator] = []
        if settings.keys:
            self._keys = KeyStore(Path(settings.keys), metrics, self._ledger.reserve)
            authenticators.append(self._keys)
        self.control = AccessControl(authenticators, self._ledger)

    async def start(self) -> None:
        """Read the files, and watch them.

        Raises:
            StartupError: one can't be read, or is wrong.
        """
        if self._keys is not None:
            await self._keys.load()
            self._run("keys", self._keys.watch())
        if self._usage is not None and not self.control.is_open:
            self._ledger.restore(await self._usage.load())
            self._run("usage", self._usage.save_for_ever(self._ledger))

    async def stop(self) -> None:
        """Stop the work in the background, and save what is not saved."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        if self._usage is not None:
            await self._usage.save_changes(self._ledger)
            await self._usage.close()

    def _run(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(_log_failure)
        self._tasks.append(task)


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        _log.critical("%s failed", task.get_name(), exc_info=error)
