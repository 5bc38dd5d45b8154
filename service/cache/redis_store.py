"""A store in Valkey or Redis, which servers share. Calls go on while it is down."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from redis.asyncio import Redis, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

# The longest that the server waits for a connection, which it makes in the background.
_CONNECT_SECONDS = 0.5
# Between two attempts to reach a store that is down.
_PAUSE_SECONDS = 1.0
# Values that are never read again disappear. A store should also have a limit of its own.
_KEPT_SECONDS = 7 * 86_400
# Keys, and values, in one command.
_MAX_TOGETHER = 256
# Values that wait to be written; the oldest are dropped.
_MAX_UNWRITTEN = 1024
_PREFIX = b"dragoman:"
_PROBE = _PREFIX + b"probe"

_log = logging.getLogger("dragoman.cache")


class _TlsConnection(SSLConnection):
    """A connection that reads certificates in a thread: that takes up to 50 ms."""

    async def connect(self) -> None:
        await asyncio.to_thread(self.ssl_context.get)
        await super().connect()  # type: ignore[no-untyped-call]


class RedisStore:
    """A store in a server that speaks Redis' protocol.

    One task reads and one writes, each for all calls together: while a command is on its way, keys
    and values gather for the next one. A command that fails closes the store to calls, until an
    attempt in the background succeeds.

    Args:
        url: redis://, rediss:// (TLS) or unix://, with name and password if it needs them.
        count: called with "hit", "miss" or "error", and a number of keys or values.
        answer_seconds: longest time that a call waits for an answer.

    Raises:
        ValueError: the URL is invalid; the message may hold parts of it.
    """

    def __init__(self, url: str, count: Callable[[str, int], None], answer_seconds: float) -> None:
        self._client: Redis = Redis.from_url(
            url,
            protocol=2,  # which all servers and proxies speak
            socket_timeout=answer_seconds,
            socket_connect_timeout=_CONNECT_SECONDS,
            retry=Retry(NoBackoff(), 0),
        )
        pool = self._client.connection_pool
        if issubclass(pool.connection_class, SSLConnection):
            pool.connection_class = _TlsConnection
        parts = urlsplit(url)
        # Without a password.
        self._place = f"{parts.hostname}:{parts.port or 6379}" if parts.hostname else parts.path
        self._count = count
        self._answer_seconds = answer_seconds
        self._is_up = False
        self._has_failed = asyncio.Event()
        self._wanted: deque[tuple[Sequence[bytes], asyncio.Future[Sequence[bytes | None]]]] = (
            deque()
        )
        self._unwritten: deque[tuple[bytes, bytes]] = deque(maxlen=_MAX_UNWRITTEN)
        self._can_read, self._can_write = asyncio.Event(), asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start to connect, in the background."""
        self._has_failed.set()
        for work in (self._read(), self._write(), self._recover()):
            self._tasks.append(asyncio.create_task(work, name="shared cache"))

    async def stop(self) -> None:
        """Stop the tasks, and close the connections. What is not written yet is dropped."""
        self._is_up = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        await self._disconnect()

    async def get(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        """The value of each key; None for one that is missing, or while the store is down."""
        if not self._is_up:
            return [None] * len(keys)
        future = asyncio.get_running_loop().create_future()
        self._wanted.append((keys, future))
        self._can_read.set()
        try:
            async with asyncio.timeout(self._answer_seconds):
                values: Sequence[bytes | None] = await future
        except TimeoutError:
            self._count("error", len(keys))
            return [None] * len(keys)
        return values

    def put(self, key: bytes, value: bytes) -> None:
        """Write a value later, unless the store is down."""
        if self._is_up:
            self._unwritten.append((key, value))
            self._can_write.set()

    async def _read(self) -> None:
        while True:
            await self._can_read.wait()
            self._can_read.clear()
            while self._wanted:
                await self._read_some()

    async def _read_some(self) -> None:
        together, names = [], list[bytes]()
        while self._wanted and len(names) < _MAX_TOGETHER:
            keys, future = self._wanted.popleft()
            if not future.done():  # it may have waited too long
                together.append((keys, future))
                names += (_PREFIX + key for key in keys)
        values = None
        if names and self._is_up:
            values = await self._attempt(self._client.mget(names), len(names))
        if not isinstance(values, list) or len(values) != len(names):
            values = [None] * len(names)
        else:
            missing = values.count(None)
            self._count("miss", missing)
            self._count("hit", len(values) - missing)
        found = iter(value if isinstance(value, bytes) else None for value in values)
        for keys, future in together:
            answer = [next(found) for _ in keys]
            if not future.done():
                future.set_result(answer)

    async def _write(self) -> None:
        while True:
            await self._can_write.wait()
            self._can_write.clear()
            while self._unwritten:
                count = min(len(self._unwritten), _MAX_TOGETHER)
                pipeline = self._client.pipeline(transaction=False)
                for _ in range(count):
                    key, value = self._unwritten.popleft()
                    pipeline.set(_PREFIX + key, value, ex=_KEPT_SECONDS)
                await self._attempt(pipeline.execute(), count)

    async def _attempt(self, command: Awaitable[Any], count: int) -> Any:
        """The answer to a command; None if it failed, which closes the store to calls."""
        try:
            async with asyncio.timeout(self._answer_seconds + _CONNECT_SECONDS):
                return await command
        except Exception as exc:  # whatever the store does, calls go on
            self._count("error", count)
            if self._is_up:
                self._log_failure(exc)
            self._is_up = False
            self._unwritten.clear()
            self._has_failed.set()
            return None

    async def _recover(self) -> None:
        """Connect; after a failure, try again and again."""
        is_first = True
        while True:
            await self._has_failed.wait()
            await self._disconnect()  # those of a store that was restarted are dead
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    await self._client.set(_PROBE, b"", ex=_KEPT_SECONDS)
                    await self._client.get(_PROBE)
            except Exception as exc:
                if is_first:
                    self._log_failure(exc)
                is_first = False
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            is_first = False
            self._has_failed.clear()
            self._is_up = True
            _log.info("the shared cache is in use", extra={"store": self._place})
            await asyncio.sleep(_PAUSE_SECONDS)  # at most one failure is logged in this time

    async def _disconnect(self) -> None:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_CONNECT_SECONDS):
                await self._client.connection_pool.disconnect(inuse_connections=True)

    def _log_failure(self, error: Exception) -> None:
        _log.warning(
            "the shared cache can't be used; calls go on without it",
            extra={"store": self._place, "error": f"{type(error).__name__}: {error}"},
        )
