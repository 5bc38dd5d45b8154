"""The tables of the database of memories, and the changes to them."""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Callable, Sequence

from service.errors import InvalidArgumentError, NotFoundError
from service.memory import similar
from service.memory.pairs import (
    MAX_OWNER_CHARACTERS,
    MAX_PAIRS,
    StoredMemory,
    TextPair,
    languages_key,
)
from service.memory.similar import feature_names
from service.memory.wording import Wording

VERSION = 1
"""Version of the tables, and of the wordings, shapes and features in them."""
WRITE_SECONDS = 0.05
"""Time after which a transaction takes no further pair; one with many words takes some 40 ms."""
PAIR = "source, target, source_language, target_language"
"""The columns of a `TextPair`."""
TABLES = (
    "CREATE TABLE IF NOT EXISTS memories (id INTEGER PRIMARY KEY AUTOINCREMENT, "
    "owner TEXT NOT NULL, name TEXT NOT NULL, created REAL NOT NULL, "
    "num_pairs INTEGER NOT NULL DEFAULT 0, num_characters INTEGER NOT NULL DEFAULT 0, "
    "UNIQUE (owner, name))",
    # `wording` and `shape` are hashes of the source, with its memory and languages. Queries by one
    # of them write "+memory", so that SQLite does not take the index of memories instead.
    "CREATE TABLE IF NOT EXISTS pairs (id INTEGER PRIMARY KEY, memory INTEGER NOT NULL, "
    "source_language TEXT NOT NULL, target_language TEXT NOT NULL, wording INTEGER NOT NULL, "
    "shape INTEGER NOT NULL, source TEXT NOT NULL, target TEXT NOT NULL)",
    # Deleted memories that may still have pairs.
    "CREATE TABLE IF NOT EXISTS deleted (memory INTEGER PRIMARY KEY)",
    "CREATE INDEX IF NOT EXISTS wordings ON pairs (wording)",
    "CREATE INDEX IF NOT EXISTS shapes ON pairs (shape)",
    "CREATE INDEX IF NOT EXISTS members ON pairs (memory, id)",
    similar.TABLE,
)


def find_memory(connection: sqlite3.Connection, owner: str, name: str, field: str) -> StoredMemory:
    """A memory by its name. Raises NotFoundError, which names the field of the name."""
    row = connection.execute(
        "SELECT id, name, num_pairs FROM memories WHERE owner = ? AND name = ?", (owner, name)
    ).fetchone()
    if row is None:
        raise NotFoundError(f"{field}: no such memory")
    return StoredMemory(*row)


def add_some(
    connection: sqlite3.Connection,
    owner: str,
    name: str,
    pairs: Sequence[TextPair],
    clock: Callable[[], float] = time.monotonic,
) -> tuple[int, int]:
    """Add the first of some valid pairs, or replace their translations, for `WRITE_SECONDS`.

    Returns:
        The number of pairs that were taken, at least one, and of new ones among them.

    Raises:
        NotFoundError: the owner has no such memory.
        InvalidArgumentError: a limit is exceeded; names it.
    """
    ends = clock() + WRITE_SECONDS
    memory = find_memory(connection, owner, name, "memory")
    num_taken = num_new = num_characters = 0
    for pair in pairs:
        is_new, difference = _put(connection, memory.id, pair)
        num_taken += 1
        num_new += is_new
        num_characters += difference
        if clock() >= ends:
            break
    connection.execute(
        "UPDATE memories SET num_pairs = num_pairs + ?, num_characters = num_characters + ? "
        "WHERE id = ?",
        (num_new, num_characters, memory.id),
    )
    if memory.num_pairs + num_new > MAX_PAIRS:
        raise InvalidArgumentError("memory", f"would have more than {MAX_PAIRS:,} pairs, the limit")
    [(total,)] = connection.execute(
        "SELECT sum(num_characters) FROM memories WHERE owner = ?", (owner,)
    )
    if total > MAX_OWNER_CHARACTERS:
        raise InvalidArgumentError(
            "memory",
            f"all memories would have {total:,} characters, the limit is {MAX_OWNER_CHARACTERS:,}",
        )
    return num_taken, num_new


def _put(connection: sqlite3.Connection, memory: int, pair: TextPair) -> tuple[bool, int]:
    """Add a pair, or replace the translation.

    Returns whether it is new, and how many characters were added.
    """
    languages = languages_key(pair.source_language, pair.target_language)
    wording, target = Wording.of(pair.source, pair.source_language), pair.target.strip()
    key = hash_of(memory, languages, wording.text)
    same = connection.execute(
        "SELECT id, target FROM pairs WHERE wording = ? AND +memory = ? AND source = ?",
        (key, memory, wording.text),
    ).fetchone()
    if same is not None:
        connection.execute(
            "UPDATE pairs SET target = ?, source_language = ?, target_language = ? WHERE id = ?",
            (target, pair.source_language, pair.target_language, same[0]),
        )
        return False, len(target) - len(same[1])
    values = (
        *(memory, pair.source_language, pair.target_language, key),
        *(hash_of(memory, languages, wording.shape), wording.text, target),
    )
    added = connection.execute(
        "INSERT INTO pairs (memory, source_language, target_language, wording, shape, source, "
        "target) VALUES (?, ?, ?, ?, ?, ?, ?)",
        values,
    )
    assert added.lastrowid is not None, "a row was inserted"
    similar.add(connection, added.lastrowid, feature_names(memory, languages, wording))
    return True, len(wording.text) + len(target)


def delete_memory(connection: sqlite3.Connection, memory: int) -> None:
    """Delete a memory; `remove_some` removes its pairs."""
    connection.execute("DELETE FROM memories WHERE id = ?", (memory,))
    connection.execute("INSERT INTO deleted VALUES (?)", (memory,))


def remove_some(
    connection: sqlite3.Connection, most: int, clock: Callable[[], float] = time.monotonic
) -> bool:
    """Remove pairs of memories that are deleted, for `WRITE_SECONDS`, and `most` at the most.

    Returns whether there may be others.
    """
    ends = clock() + WRITE_SECONDS
    row = connection.execute("SELECT memory FROM deleted LIMIT 1").fetchone()
    if row is None:
        return False
    rows = connection.execute(
        f"SELECT id, {PAIR} FROM pairs WHERE memory = ? ORDER BY id LIMIT ?", (row[0], most)
    ).fetchall()
    for pair_id, *values in rows:
        pair = TextPair(*values)
        languages = languages_key(pair.source_language, pair.target_language)
        wording = Wording.of(pair.source, pair.source_language)
        similar.remove(connection, pair_id, feature_names(row[0], languages, wording))
        connection.execute("DELETE FROM pairs WHERE id = ?", (pair_id,))
        if clock() >= ends:
            break
    if not rows:
        connection.execute("DELETE FROM deleted WHERE memory = ?", row)
    return True


def hash_of(memory: int, languages: str, text: str) -> int:
    """A number of 64 bits for a text of a memory."""
    data = f"{memory} {languages} {text}".encode()
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), signed=True)
