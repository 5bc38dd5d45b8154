"""Translation memories in SQLite: each visible to its owner, bounded, and used while they grow.

One thread writes; others read, each with a connection of its own, what was committed last. Nothing
of a memory is kept outside of the database, so a correction counts at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from service.common.database import open_tables, transaction
from service.common.fairness import FairExecutor, checkpoint
from service.errors import (
    DragomanError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
    StartupError,
    UnavailableError,
)
from service.memory.pairs import MAX_MEMORIES, MemoryUse, StoredMemory, TextPair, checked_name
from service.memory.search import MemorySearch
from service.memory.similar import SimilarPairs
from service.memory.tables import (
    PAIR,
    TABLES,
    VERSION,
    add_some,
    delete_memory,
    find_memory,
    remove_some,
)

BATCH_PAIRS = 500
"""Pairs of a page, and most that are removed in a transaction."""
_PAUSE_SECONDS = 0.01  # between two transactions, for the other servers of the database
_CLEANING_RETRY_SECONDS = 30.0
_READERS = 2

_log = logging.getLogger("dragoman.memory")

T = TypeVar("T")


class TranslationMemories:
    """Creates, fills, searches and deletes memories, in threads.

    All methods raise FailedPreconditionError without a path, and those with a name NotFoundError if
    the owner has no such memory.

    Args:
        path: path of the database, which is created if it does not exist; "" for no memories.
        clock: returns the time in seconds, by which transactions are bounded.
    """

    def __init__(self, path: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._similar = SimilarPairs()
        self._writing = FairExecutor("memory writer")
        self._reading = FairExecutor("memory reader", _READERS)
        self._writer: sqlite3.Connection | None = None
        self._readers: list[sqlite3.Connection] = []
        self._of_thread = threading.local()
        self._cleaning: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Open the database, if there is one.

        Raises:
            StartupError: the file is no database, or can't be written.
        """
        if not self._path:
            return
        try:
            self._writer = await self._writing.run(self._open, "")
        except (sqlite3.Error, OSError, ValueError) as exc:
            raise StartupError(f"--memory-store: {self._path}: {exc}") from exc
        self._clean()  # what a server that was killed had not deleted yet

    async def stop(self) -> None:
        """Close the database."""
        if self._cleaning is not None:
            self._cleaning.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._cleaning
        await asyncio.gather(
            self._writing.run(self._close_writer, ""), self._reading.run(self._close_readers, "")
        )

    # --- memories --------------------------------------------------------------------------------

    async def create(self, owner: str, name: str) -> StoredMemory:
        """Create a memory.

        Raises:
            InvalidArgumentError: the name is invalid or taken, or the owner has too many memories.
        """
        checked_name(name)

        def work(connection: sqlite3.Connection) -> StoredMemory:
            [(count, taken)] = connection.execute(
                "SELECT count(*), coalesce(sum(name = ?), 0) FROM memories WHERE owner = ?",
                (name, owner),
            )
            if taken:
                raise InvalidArgumentError("name", f"there is a memory {name!r} already")
            if count >= MAX_MEMORIES:
                raise InvalidArgumentError("name", f"there are {count:,} memories, the limit")
            values = (owner, name, time.time())
            connection.execute(
                "INSERT INTO memories (owner, name, created) VALUES (?, ?, ?)", values
            )
            return find_memory(connection, owner, name, "name")

        return await self._write(owner, work)

    async def memories(self, owner: str) -> list[StoredMemory]:
        """All memories of an owner, by name."""
        query = "SELECT id, name, num_pairs FROM memories WHERE owner = ? ORDER BY name"
        return await self._read(
            owner, lambda db: [StoredMemory(*row) for row in db.execute(query, (owner,))]
        )

    async def find(self, owner: str, name: str, field: str = "memory") -> StoredMemory:
        """A memory by its name; `field` is the name's, for errors."""
        return await self._read(owner, lambda db: find_memory(db, owner, name, field))

    async def delete(self, owner: str, name: str) -> None:
        """Delete a memory. Its pairs are removed from the database in the background."""

        def work(connection: sqlite3.Connection) -> None:
            memory = find_memory(connection, owner, name, "name")
            delete_memory(connection, memory.id)

        await self._write(owner, work)
        self._clean()

    # --- pairs -----------------------------------------------------------------------------------

    async def add(self, owner: str, name: str, pairs: Sequence[TextPair]) -> int:
        """Add pairs, some in each transaction; a pair replaces the one with the same source.

        Returns:
            The number of pairs that were new.

        Raises:
            InvalidArgumentError: a pair is invalid, and none is added; or a limit is exceeded, and
                the pairs of earlier transactions have been added.
        """
        for pair in pairs:
            await checkpoint()
            pair.check()
        num_new = 0
        while pairs:
            add = functools.partial(
                add_some, owner=owner, name=name, pairs=pairs, clock=self._clock
            )
            num_taken, new = await self._write(owner, add)
            num_new += new
            pairs = pairs[num_taken:]
            if pairs:
                await asyncio.sleep(_PAUSE_SECONDS)
        return num_new

    async def pairs(self, owner: str, name: str) -> AsyncIterator[list[TextPair]]:
        """All pairs of a memory, some at a time."""
        memory = await self.find(owner, name, "name")
        query = f"SELECT id, {PAIR} FROM pairs WHERE memory = ? AND id > ? ORDER BY id LIMIT ?"
        last = 0
        while True:
            page = functools.partial(_rows, query, (memory.id, last, BATCH_PAIRS))
            rows = await self._read(owner, page)
            # After the page: pairs are removed once their memory is deleted.
            if (await self.find(owner, name, "name")).id != memory.id:
                raise NotFoundError("name: the memory was deleted meanwhile")
            if not rows:
                return
            last = rows[-1][0]
            yield [TextPair(*row[1:]) for row in rows]

    async def search(self, client: str, use: MemoryUse, search: Callable[[MemorySearch], T]) -> T:
        """Run a function with searches of a memory, in a thread that reads.

        Args:
            client: name of the client, whose searches take turns with those of others.
            use: use of the memory by the request.
            search: function that takes some milliseconds.
        """
        return await self._read(client, lambda db: search(MemorySearch(db, self._similar, use)))

    # --- threads ---------------------------------------------------------------------------------

    async def _write(self, owner: str, work: Callable[[sqlite3.Connection], T]) -> T:
        self._check()

        def within() -> T:
            assert self._writer is not None, "it is started"
            with transaction(self._writer) as connection:
                return work(connection)

        try:
            return await self._writing.run(within, owner)
        except sqlite3.OperationalError as exc:
            code = exc.sqlite_errorcode & 0xFF  # without the extension
            if code == sqlite3.SQLITE_BUSY:
                raise UnavailableError(
                    "another server is writing its translation memories"
                ) from exc
            if code == sqlite3.SQLITE_FULL:
                raise ResourceExhaustedError("the disk of translation memories is full") from exc
            raise

    async def _read(self, client: str, work: Callable[[sqlite3.Connection], T]) -> T:
        self._check()
        return await self._reading.run(lambda: work(self._reader()), client)

    def _check(self) -> None:
        if self._writer is None:
            raise FailedPreconditionError(
                "this server keeps no translation memories; its setting --memory-store names a file"
            )

    def _open(self) -> sqlite3.Connection:
        return open_tables(Path(self._path), VERSION, TABLES, is_shared=True)

    def _reader(self) -> sqlite3.Connection:
        """The connection of the running thread."""
        found: sqlite3.Connection | None = getattr(self._of_thread, "connection", None)
        if found is None:
            # Closed by another thread, when none reads any more.
            found = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None)
            found.execute("PRAGMA query_only = ON")
            self._of_thread.connection = found
            self._readers.append(found)
        return found

    def _close_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _close_readers(self) -> None:
        while self._readers:
            self._readers.pop().close()

    # --- deleted memories ------------------------------------------------------------------------

    def _clean(self) -> None:
        if self._cleaning is None or self._cleaning.done():
            self._cleaning = asyncio.create_task(self._remove_deleted(), name="memory cleaning")

    async def _remove_deleted(self) -> None:
        while True:
            try:
                remove = functools.partial(remove_some, most=BATCH_PAIRS, clock=self._clock)
                while await self._write("", remove):
                    await asyncio.sleep(_PAUSE_SECONDS)
                return
            except (sqlite3.Error, DragomanError) as exc:  # a full disk, for example
                _log.warning("pairs of a deleted memory are not removed yet", exc_info=exc)
                await asyncio.sleep(_CLEANING_RETRY_SECONDS)


def _rows(query: str, values: tuple[int, ...], connection: sqlite3.Connection) -> list[Any]:
    return connection.execute(query, values).fetchall()
