"""Glossaries of clients: in SQLite, in memory or in a file, bounded, each visible to its owner.

A glossary has a dictionary for each pair of languages. Dictionaries that were read for a
translation are cached.
"""

from __future__ import annotations

import sqlite3
import time
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from model.bundle.languages import primary_subtag
from service.common.database import open_tables, transaction
from service.common.fairness import FairExecutor
from service.errors import InvalidArgumentError, NotFoundError, StartupError
from service.glossaries.entries import MAX_ENTRIES, read_entries, write_entries
from service.glossaries.glossary import Glossary
from service.glossaries.stored_glossary import (
    GlossaryText,
    KeptGlossaries,
    Pair,
    StoredDictionary,
    StoredGlossary,
    StoreLimits,
)

MAX_GLOSSARIES = 1_000
"""Most glossaries of one owner."""
MAX_NAME = 200
_VERSION = 1
_LEAST_BYTES = 1024  # counted for each dictionary, to bound the number of small ones
_TABLES = (
    "CREATE TABLE IF NOT EXISTS glossaries "
    "(id TEXT PRIMARY KEY, owner TEXT NOT NULL, name TEXT NOT NULL, created REAL NOT NULL)",
    "CREATE INDEX IF NOT EXISTS owners ON glossaries (owner)",
    "CREATE TABLE IF NOT EXISTS dictionaries "
    "(glossary TEXT NOT NULL, source TEXT NOT NULL, target TEXT NOT NULL, count INTEGER NOT NULL, "
    "bytes INTEGER NOT NULL, entries TEXT NOT NULL, PRIMARY KEY (glossary, source, target))",
)

T = TypeVar("T")


class GlossaryStore:
    """Creates, lists, changes and removes glossaries, in a thread.

    All methods with an owner raise NotFoundError if the owner has no such glossary.

    Args:
        path: path of the database, which is created if it does not exist; None for memory.
        limits: limits of the store.
    """

    def __init__(self, path: Path | None = None, limits: StoreLimits | None = None) -> None:
        self._path = path
        self._limits = limits or StoreLimits()
        self._kept = KeptGlossaries(self._limits.max_kept_entries)
        # One thread, because a connection belongs to the thread that opened it.
        self._thread = FairExecutor("glossaries")
        self._opened: sqlite3.Connection | None = None

    async def start(self) -> None:
        """Open the database. Without this call, the first use opens it.

        Raises:
            StartupError: the file is no database, can't be written, or is in use by another server.
        """
        try:
            await self._thread.run(self._open, "")
        except (sqlite3.Error, OSError, ValueError) as exc:
            raise StartupError(
                f"--glossary-store: {self._path}: {exc}; two servers can't share one"
            ) from exc

    async def stop(self) -> None:
        """Close the database."""
        await self._thread.run(self._close, "")

    async def create(
        self, owner: str, name: str, dictionaries: Sequence[GlossaryText]
    ) -> StoredGlossary:
        """Create a glossary.

        Raises:
            InvalidArgumentError: an entry is invalid, two dictionaries have the same languages, or
                a limit is exceeded; names it.
        """

        def work(connection: sqlite3.Connection) -> StoredGlossary:
            glossary_id = str(uuid.uuid4())
            [(count,)] = connection.execute(
                "SELECT count(*) FROM glossaries WHERE owner = ?", (owner,)
            )
            if count >= MAX_GLOSSARIES:
                raise InvalidArgumentError("name", f"there are {count:,} glossaries, the limit")
            values = (glossary_id, owner, _checked_name(name), time.time())
            connection.execute("INSERT INTO glossaries VALUES (?, ?, ?, ?)", values)
            pairs = [(each.source, each.target) for each in dictionaries]
            if not pairs or len(set(pairs)) < len(pairs):
                raise InvalidArgumentError("dictionaries", "none, or two of the same languages")
            for dictionary in dictionaries:
                self._put(owner, glossary_id, dictionary, dictionary.read())
            return self._one(owner, glossary_id)

        return await self._run(owner, work)

    async def glossaries(self, owner: str) -> list[StoredGlossary]:
        """All glossaries of an owner, the oldest first."""
        query = "SELECT id FROM glossaries WHERE owner = ? ORDER BY created"
        return await self._run(
            owner, lambda db: [self._one(owner, each) for (each,) in db.execute(query, (owner,))]
        )

    async def get(self, owner: str, glossary_id: str) -> StoredGlossary:
        """A glossary by its id."""
        return await self._run(owner, lambda _: self._one(owner, glossary_id))

    async def entries(self, owner: str, glossary_id: str, source: str, target: str) -> str:
        """The entries of a dictionary, as TSV."""
        return await self._run(owner, lambda _: self._text(owner, glossary_id, (source, target)))

    async def rename(self, owner: str, glossary_id: str, name: str) -> StoredGlossary:
        """Give a glossary another name."""

        def work(connection: sqlite3.Connection) -> StoredGlossary:
            values = (_checked_name(name), glossary_id, owner)
            connection.execute("UPDATE glossaries SET name = ? WHERE id = ? AND owner = ?", values)
            return self._one(owner, glossary_id)

        return await self._run(owner, work)

    async def put(
        self, owner: str, glossary_id: str, dictionary: GlossaryText, *, merges: bool
    ) -> StoredGlossary:
        """Add a dictionary, or replace that of the same languages.

        Args:
            owner: name of the glossary's owner.
            glossary_id: id of the glossary.
            dictionary: new dictionary.
            merges: whether entries that are not in the new one stay.

        Raises:
            InvalidArgumentError: an entry is invalid, or a limit is exceeded; names it.
        """

        def work(connection: sqlite3.Connection) -> StoredGlossary:
            pair, entries = (dictionary.source, dictionary.target), dictionary.read()
            found = self._one(owner, glossary_id)
            if merges and pair in {(each.source, each.target) for each in found.dictionaries}:
                before = read_entries(self._text(owner, glossary_id, pair), "tsv", "entries")
                entries = {**before, **entries}
                if len(entries) > MAX_ENTRIES:
                    raise InvalidArgumentError(
                        dictionary.field, f"more than {MAX_ENTRIES:,} entries, the limit"
                    )
            self._put(owner, glossary_id, dictionary, entries)
            return self._one(owner, glossary_id)

        return await self._run(owner, work)

    async def delete_dictionary(
        self, owner: str, glossary_id: str, source: str, target: str
    ) -> None:
        """Remove the dictionary of some languages."""

        def work(connection: sqlite3.Connection) -> None:
            self._text(owner, glossary_id, (source, target))  # raises if it does not exist
            connection.execute(
                "DELETE FROM dictionaries WHERE glossary = ? AND source = ? AND target = ?",
                (glossary_id, source, target),
            )
            self._kept.forget(glossary_id)

        await self._run(owner, work)

    async def delete(self, owner: str, glossary_id: str) -> None:
        """Remove a glossary."""

        def work(connection: sqlite3.Connection) -> None:
            self._one(owner, glossary_id)  # raises if it does not exist
            connection.execute("DELETE FROM dictionaries WHERE glossary = ?", (glossary_id,))
            connection.execute("DELETE FROM glossaries WHERE id = ?", (glossary_id,))
            self._kept.forget(glossary_id)

        await self._run(owner, work)

    async def find(self, owner: str, glossary_id: str, source: str, target: str) -> Glossary:
        """The dictionary for a translation between two languages.

        A region or script that the glossary does not name does not matter.

        Args:
            owner: name of the glossary's owner.
            glossary_id: id of the glossary.
            source: language of the texts.
            target: language of the translations.

        Raises:
            InvalidArgumentError: the glossary is for other languages.
        """

        def work(_: sqlite3.Connection) -> Glossary:
            found = self._one(owner, glossary_id)
            pairs = [(each.source, each.target) for each in found.dictionaries]
            # More exact languages first.
            for pair in sorted(pairs, key=lambda pair: -len("".join(pair))):
                if _fits(pair[0], source) and _fits(pair[1], target):
                    read = partial(self._read, owner, glossary_id, pair)
                    return self._kept.get((glossary_id, pair), read)
            given = ", ".join("-".join(pair) for pair in pairs[:20]) or "no languages"
            raise InvalidArgumentError("glossary.name", f"it is for {given}, not {source}-{target}")

        return await self._run(owner, work)

    async def _run(self, owner: str, work: Callable[[sqlite3.Connection], T]) -> T:
        def within() -> T:
            with transaction(self._connection) as connection:
                return work(connection)

        return await self._thread.run(within, owner)

    @property
    def _connection(self) -> sqlite3.Connection:
        if self._opened is None:
            self._open()
        assert self._opened is not None
        return self._opened

    def _open(self) -> None:
        self._opened = open_tables(self._path, _VERSION, _TABLES)

    def _close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _one(self, owner: str, glossary_id: str) -> StoredGlossary:
        rows = self._connection.execute(
            "SELECT name, created FROM glossaries WHERE id = ? AND owner = ?", (glossary_id, owner)
        ).fetchall()
        if not rows:
            raise _no_glossary()
        dictionaries = self._connection.execute(
            "SELECT source, target, count FROM dictionaries WHERE glossary = ? "
            "ORDER BY source, target",
            (glossary_id,),
        )
        made = tuple(StoredDictionary(*row) for row in dictionaries)
        [(name, created)] = rows
        return StoredGlossary(glossary_id, name, created, made)

    def _text(self, owner: str, glossary_id: str, pair: Pair) -> str:
        self._one(owner, glossary_id)
        rows = self._connection.execute(
            "SELECT entries FROM dictionaries WHERE glossary = ? AND source = ? AND target = ?",
            (glossary_id, *pair),
        ).fetchall()
        if not rows:
            raise NotFoundError(f"the glossary has no dictionary for {'-'.join(pair)}")
        return str(rows[0][0])

    def _read(self, owner: str, glossary_id: str, pair: Pair) -> Glossary:
        entries = read_entries(self._text(owner, glossary_id, pair), "tsv", "entries")
        glossary = Glossary.of(entries.items(), max_entries=MAX_ENTRIES)
        glossary.prepare()
        return glossary

    def _put(
        self, owner: str, glossary_id: str, dictionary: GlossaryText, entries: dict[str, str]
    ) -> None:
        text = write_entries(entries)
        size = max(len(text.encode()), _LEAST_BYTES)
        values = (glossary_id, dictionary.source, dictionary.target, len(entries), size, text)
        self._connection.execute("REPLACE INTO dictionaries VALUES (?, ?, ?, ?, ?, ?)", values)
        self._kept.forget(glossary_id)
        limits = self._limits
        query = "SELECT coalesce(sum(bytes), 0) FROM dictionaries"
        [(total,)] = self._connection.execute(query)
        [(own,)] = self._connection.execute(
            f"{query} JOIN glossaries ON glossary = id WHERE owner = ?", (owner,)
        )
        for found, most in ((own, limits.max_owner_bytes), (total, limits.max_bytes)):
            if found > most:
                raise InvalidArgumentError(
                    dictionary.field,
                    f"all glossaries would have {found:,} bytes, the limit is {most:,}",
                )


def is_glossary_id(name: str) -> bool:
    """Whether a name has the form of this store's ids."""
    try:
        return str(uuid.UUID(name)) == name
    except ValueError:
        return False


def _no_glossary() -> NotFoundError:
    return NotFoundError("glossary.name: no such glossary")


def _fits(code: str, given: str) -> bool:
    return code in (given.lower(), primary_subtag(given))


def _checked_name(name: str) -> str:
    if not name.strip() or len(name) > MAX_NAME:
        raise InvalidArgumentError("name", f"must have 1 to {MAX_NAME} characters")
    return name
