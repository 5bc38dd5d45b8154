"""Transactions: all or nothing, whatever fails."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from service.common.database import transaction


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as opened:
        opened.execute("PRAGMA foreign_keys = ON")
        opened.execute("CREATE TABLE names (name TEXT PRIMARY KEY)")
        opened.execute(
            "CREATE TABLE uses (name REFERENCES names (name) DEFERRABLE INITIALLY DEFERRED)"
        )
        yield opened


def count(connection: sqlite3.Connection, table: str) -> int:
    [(found,)] = connection.execute(f"SELECT count(*) FROM {table}")
    return int(found)


def test_everything_is_written(connection: sqlite3.Connection) -> None:
    with transaction(connection) as inside:
        inside.execute("INSERT INTO names VALUES ('a'), ('b')")
    assert count(connection, "names") == 2
    assert not connection.in_transaction


def test_after_an_exception_nothing_is_written(connection: sqlite3.Connection) -> None:
    with pytest.raises(sqlite3.IntegrityError), transaction(connection):
        connection.executemany("INSERT INTO names VALUES (?)", [("a",), ("a",)])
    assert count(connection, "names") == 0
    assert not connection.in_transaction


def test_a_commit_that_fails_leaves_no_transaction_open(connection: sqlite3.Connection) -> None:
    """References are checked by COMMIT, which then leaves the transaction as it is."""
    with pytest.raises(sqlite3.IntegrityError), transaction(connection):
        connection.execute("INSERT INTO uses VALUES ('nobody')")
    assert count(connection, "uses") == 0
    with transaction(connection):
        connection.execute("INSERT INTO names VALUES ('a')")
    assert count(connection, "names") == 1
