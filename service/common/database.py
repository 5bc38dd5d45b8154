"""Opens SQLite databases of one server: private files with a write-ahead log."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

_LOCK_SECONDS = 2.0
_SHARED_LOCK_SECONDS = 10.0  # others write for some ten milliseconds at a time, again and again
# Between two looks whether another server still writes. SQLite's own wait looks ten times a second,
# and misses the pauses of a server that writes again and again.
_LOOK_SECONDS = 0.001


def open_database(path: Path | None, *, is_shared: bool = False) -> sqlite3.Connection:
    """Open a database, or create it, in a transaction that holds its lock.

    Args:
        path: path of the file; None for a database in memory.
        is_shared: whether other connections may use it too.

    Raises:
        sqlite3.Error: the file is not a database, can't be written, or is in use by another server.
        OSError: the file can't be created.
    """
    if path is not None:
        # Mode 0600 from the beginning: SQLite gives its other files the same mode.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    timeout = _SHARED_LOCK_SECONDS if is_shared else _LOCK_SECONDS
    connection = sqlite3.connect(path or ":memory:", timeout=timeout, isolation_level=None)
    try:
        if not is_shared:  # two servers would overwrite each other's data
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN EXCLUSIVE")  # takes the lock, and fails if it can't write
        connection.execute("PRAGMA busy_timeout = 0")  # from now on, `transaction` waits
    except BaseException:
        connection.close()
        raise
    return connection


def open_tables(
    path: Path | None, version: int, tables: Iterable[str], *, is_shared: bool = False
) -> sqlite3.Connection:
    """Open a database of this version, and create the tables that it lacks.

    Args:
        path, is_shared: as of `open_database`.
        version: version of the tables.
        tables: statements that create tables and indices where there are none.

    Raises:
        sqlite3.Error, OSError: as `open_database`.
        ValueError: the database has another version.
    """
    connection = open_database(path, is_shared=is_shared)
    try:
        check_version(connection, version)
        for table in tables:
            connection.execute(table)
        connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Write to a database: all of it or, after an exception, nothing.

    Raises:
        sqlite3.OperationalError: SQLITE_BUSY, if others write for ten seconds without a pause.
    """
    _begin(connection)
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):  # raised if a full disk has ended the transaction
            connection.execute("ROLLBACK")
        raise


def _begin(connection: sqlite3.Connection) -> None:
    ends = time.monotonic() + _SHARED_LOCK_SECONDS
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError as exc:
            is_busy = exc.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not is_busy or time.monotonic() >= ends:
                raise
        time.sleep(_LOOK_SECONDS)


def check_version(connection: sqlite3.Connection, version: int) -> None:
    """Check the schema version of a database, and set it in a new one.

    Raises:
        ValueError: the database has another version.
    """
    [(found,)] = connection.execute("PRAGMA user_version").fetchall()
    if found not in (0, version):
        raise ValueError(f"has version {found}, not {version}")
    connection.execute(f"PRAGMA user_version = {version}")
