"""The valid keys: those of the file, which is read again when it changes."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path

from service.access import keys
from service.access.key_file import KeyFileError, read_lines
from service.access.principal import Principal
from service.errors import StartupError
from service.observability.metrics import ServerMetrics

CHECK_SECONDS = 1.0
"""Time between two checks of the file. A revoked key is refused after this and the reading time."""

_Signature = tuple[int, int, int, int] | None  # of a version of the file; None without a file

_log = logging.getLogger("dragoman.keys")


class KeyStore:
    """An `Authenticator` for the keys of a file.

    Args:
        on_change: called with the names of the keys after each reading.
    """

    def __init__(
        self, path: Path, metrics: ServerMetrics, on_change: Callable[[frozenset[str]], None]
    ) -> None:
        self._path = path
        self._metrics = metrics
        self._on_change = on_change
        self._lines: dict[str, str] = {}  # by id
        self._signature: _Signature = None
        self._error = ""  # error of the last reading, if it failed

    async def authenticate(self, credential: str) -> Principal | None:
        """The principal that the key belongs to, or None if the key is unknown."""
        return keys.find(self._lines, credential)

    async def load(self) -> None:
        """Read the file for the first time.

        Raises:
            StartupError: the file can't be read or has an error.
        """
        try:
            await self._read()
        except KeyFileError as exc:
            raise StartupError(f"--keys: {exc}; `dragoman keys add` writes such a file") from exc

    async def watch(self) -> None:
        """Read the file again when it changes, until cancelled; after an error the keys stay."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            await self.refresh()

    async def refresh(self) -> None:
        """Read the file again if it has changed or could not be read."""
        if not self._error and await asyncio.to_thread(_signature, self._path) == self._signature:
            return
        try:
            await self._read()
        except Exception as exc:  # any error: the task must go on, or revoked keys would stay valid
            self._metrics.keys_last_reload_successful.set(0)
            if self._error != (error := f"{exc}" or type(exc).__name__):  # once, not at each try
                _log.error("keys not reloaded: the ones before stay valid", extra={"error": error})
            self._error = error
        else:
            self._error = ""
            _log.info("keys reloaded", extra={"keys": len(self._lines)})

    async def _read(self) -> None:
        # Taken before reading, so that a change during it is noticed afterwards.
        self._signature = await asyncio.to_thread(_signature, self._path)
        self._lines, names = await asyncio.to_thread(read_lines, self._path)
        self._on_change(names)
        self._metrics.keys.set(len(self._lines))
        self._metrics.keys_last_reload_successful.set(1)


def _signature(path: Path) -> _Signature:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
