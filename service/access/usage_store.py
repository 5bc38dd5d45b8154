"""The database of usage, which keeps the counts of quotas over a restart.

It is SQLite with a write-ahead log, written in a thread, in batches. A crash loses the counts since
the last batch, about `SAVE_SECONDS`. Each commit is on the disk before the next one begins.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple
from pathlib import Path
from typing import TypeVar

from service.access.usage import Record, UsageLedger, start_of_month
from service.common.database import check_version, open_database, transaction
from service.errors import StartupError
from service.observability.metrics import ServerMetrics

SAVE_SECONDS = 1.0
"""Time between two commits, in seconds."""
# Most records of one commit: copying them takes the event loop a millisecond or two.
_BATCH = 1000
_FAILURE_LOG_SECONDS = 60.0
_VERSION = 1
_COLUMNS = "name, minute, requests, day, characters_in_day, month, characters_in_month"
_UPSERT = f"INSERT OR REPLACE INTO usage ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)"
_CREATE = f"CREATE TABLE IF NOT EXISTS usage ({_COLUMNS}, PRIMARY KEY (name)) WITHOUT ROWID"

T = TypeVar("T")

_log = logging.getLogger("dragoman.keys")

_Row = tuple[str, int, int, int, int, int, int]


class UsageStore:
    """Saves the records of a ledger.

    Args:
        path: path of the database, which is created if it does not exist.
    """

    def __init__(self, path: Path, metrics: ServerMetrics) -> None:
        self._path = path
        self._metrics = metrics
        # One thread, because a connection belongs to the thread that opened it.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="usage")
        self._connection: sqlite3.Connection | None = None
        self._failure_logged_at = -_FAILURE_LOG_SECONDS

    async def load(self) -> list[tuple[str, Record]]:
        """Load the records of an earlier run.

        Raises:
            StartupError: the file is no database, can't be written, or is in use by another server.
        """
        try:
            return await self._run(self._open)
        except (sqlite3.Error, OSError, ValueError) as exc:
            raise StartupError(
                f"--usage: {self._path}: {exc}; two servers can't share one. To count from zero, "
                "move the file away"
            ) from exc

    async def save_changes(self, ledger: UsageLedger) -> None:
        """Save changed records, in one or more commits. Failed ones are saved the next time."""
        while names := ledger.take_changed(_BATCH):
            rows = [(name, *astuple(ledger.record(name))) for name in names]
            try:
                await self._run(self._write, rows)
            except BaseException as exc:
                ledger.put_back(names)
                if not isinstance(exc, sqlite3.Error):
                    raise
                self._failed(exc)
                return
            self._metrics.usage_last_save_successful.set(1)

    async def save_for_ever(self, ledger: UsageLedger) -> None:
        """Save changed records periodically, until cancelled."""
        while True:
            await asyncio.sleep(SAVE_SECONDS)
            await self.save_changes(ledger)

    async def close(self) -> None:
        """Close the database."""
        if self._connection is not None:
            await self._run(self._connection.close)
        self._thread.shutdown(wait=False)

    async def _run(self, work: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    def _open(self) -> list[tuple[str, Record]]:
        connection = open_database(self._path)
        try:
            _prepare(connection)
            rows = connection.execute(f"SELECT {_COLUMNS} FROM usage").fetchall()
            records = [_record(row) for row in rows]
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return records

    def _write(self, rows: Iterable[_Row]) -> None:
        assert self._connection is not None
        with transaction(self._connection) as connection:
            connection.executemany(_UPSERT, rows)

    def _failed(self, error: Exception) -> None:
        self._metrics.usage_last_save_successful.set(0)
        now = time.monotonic()
        if now - self._failure_logged_at >= _FAILURE_LOG_SECONDS:
            self._failure_logged_at = now
            _log.error(
                "usage of keys not saved: it is counted in memory, and saving is tried again",
                extra={"path": str(self._path), "error": str(error)},
            )


def _prepare(connection: sqlite3.Connection) -> None:
    """Create the table, and drop the records of months that are over. Raises ValueError."""
    check_version(connection, _VERSION)
    connection.execute(_CREATE)
    connection.execute("DELETE FROM usage WHERE month < ?", (start_of_month(time.time()),))


def _record(row: Sequence[object]) -> tuple[str, Record]:
    """Check a record of the database. Raises ValueError if another program has written it."""
    name, *numbers = row
    if not isinstance(name, str) or not all(type(each) is int and each >= 0 for each in numbers):
        raise ValueError(f"has a wrong record of {name!r:.100}")
    return name, Record(*numbers)  # type: ignore[arg-type]
