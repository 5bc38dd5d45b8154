"""Limits for bodies that arrive and answers that leave, over all connections.

The quotas of calls count only requests that have arrived. So clients that send or read slowly keep
no call out, over HTTP or gRPC.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

from service.common.fairness import in_thread
from service.engine.quota import Quota
from service.errors import RequestCancelledError, ResourceExhaustedError

# The limits of unfinished bodies and of answers, in the largest bodies; the latter at least:
_MAX_LARGEST_BODIES = 4
_MIN_LEAVING_BYTES = 128 * 2**20
LARGE_BYTES = 32 * 1024
"""Larger messages are written in a thread: in Python, a megabyte takes most of a second."""
# Bytes of JSON, at about the most, for each byte of a message: numbers take most.
_JSON_FACTOR = 3


@dataclass(frozen=True)
class HttpLimits:
    """Limits of the HTTP front that are not settings.

    Attributes:
        head_bytes: bytes of a request's first line and headers.
        max_headers: headers of a request; as many trailers.
        chunk_bytes: least average bytes of the chunks of a body, after its first 4,096 as sent.
        head_seconds: seconds from a connection's start, or a request's first byte, to the end of
            the headers.
        body_seconds: seconds from the headers to the end of the body.
        write_seconds: seconds without reading while the connection's buffers are full.
        write_bytes_per_second: least rate of reading an answer in bytes a second, after
            `write_seconds`.
        idle_seconds: seconds between two requests on a connection.
    """

    head_bytes: int = 32 * 1024
    max_headers: int = 64
    chunk_bytes: int = 16
    head_seconds: float = 10.0
    body_seconds: float = 30.0
    write_seconds: float = 30.0
    write_bytes_per_second: int = 128 * 1024
    idle_seconds: float = 75.0


class Transfers:
    """The bodies that arrive and the answers that leave.

    Attributes:
        arriving: quota of the bytes of unfinished bodies, by address: the sender chooses
            the names of clients.
        leaving: quota of the bytes of large answers, by address.
    """

    def __init__(self, limits: HttpLimits, max_body_bytes: int) -> None:
        self.limits = limits
        self.max_body_bytes = max_body_bytes
        self.arriving = Quota(_MAX_LARGEST_BODIES * max_body_bytes)
        self.leaving = Quota(max(_MIN_LEAVING_BYTES, self.arriving.capacity))

    @contextlib.asynccontextmanager
    async def written(
        self, write: Callable[[], bytes], size: int, host: str
    ) -> AsyncIterator[bytes]:
        """The body of an answer, which counts in the quota until the block ends.

        Raises:
            ResourceExhaustedError: too many bytes are on their way to clients.
        """
        if size <= LARGE_BYTES:
            yield write()
            return
        with self._leaving(_JSON_FACTOR * size, host):
            body = await in_thread(write, host)
            del write  # holds the message
            yield body

    @contextlib.asynccontextmanager
    async def least_rate(self, num_bytes: int) -> AsyncIterator[None]:
        """Bound the time of a block that sends `num_bytes`. Raises RequestCancelledError."""
        limits = self.limits
        seconds = limits.write_seconds + num_bytes / limits.write_bytes_per_second
        try:
            async with asyncio.timeout(seconds) as timeout:
                yield
        except TimeoutError as exc:
            if timeout.expired():
                raise RequestCancelledError("the client reads its answer too slowly") from exc
            raise

    @contextlib.contextmanager
    def _leaving(self, num_bytes: int, host: str) -> Iterator[None]:
        quota = self.leaving
        count = min(num_bytes, quota.capacity // 2)  # so that each answer can be sent
        if not quota.take(count, host):
            raise ResourceExhaustedError(
                f"answers of {quota.num_taken:,} bytes are on their way, of at most "
                f"{quota.capacity:,}; this client has not read enough of its own",
                reason="answers",
            )
        try:
            yield
        finally:
            quota.release(count, host)
