"""Opens SQLite databases of one server: private files, with a write-ahead log."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

_LOCK_SECONDS = 2.0


def open_database(path: Path | None) -> sqlite3.Connection:
    """A database, which is made if it does not exist, within a transaction that has its lock.

    Args:
        path: of the file; None for one in memory.

    Raises:
        sqlite3.Error: it is no database, can't be written, or another server has it.
        OSError: the file can't be made.
    """
    if path is not None:
        # 0600 from the beginning: SQLite gives its other files the same mode.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    connection = sqlite3.connect(path or ":memory:", timeout=_LOCK_SECONDS, isolation_level=None)
    try:
        # Exclusive: two servers would overwrite what the other has written.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN EXCLUSIVE")  # takes the lock, and finds out if it can write
    except BaseException:
        connection.close()
        raise
    return connection


def check_version(connection: sqlite3.Connection, version: int) -> None:
    """Set the version of the tables' form in a new database.

    Raises:
        ValueError: it has another one.
    """
    [(found,)] = connection.execute("PRAGMA user_version").fetchall()
    if found not in (0, version):
        raise ValueError(f"has version {found}, not {version}")
    connection.execute(f"PRAGMA user_version = {version}")
