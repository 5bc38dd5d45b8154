"""Requests that continue beside those of a test, and must get their answers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from tests.integration.servers import Running, running_bundle

NEIGHBOURS = ["A dog is running.", "Two men are playing the guitar in the street. The lake."]


@contextlib.asynccontextmanager
async def other_requests(server: Running) -> AsyncIterator[None]:
    """Four clients that translate during the `with` block; all their answers must be right.

    Each gets an answer before the block begins and one after it, so that they surround it.
    """
    expected = (await server.client.translate(NEIGHBOURS)).translations
    assert all(item.error is None and item.text for item in expected)
    ended = asyncio.Event()
    begun = asyncio.Semaphore(0)

    async def client() -> None:
        last = False
        while not last:
            last = ended.is_set()
            batch = await server.client.translate(NEIGHBOURS)
            assert batch.translations == expected
            begun.release()

    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(client())
        for _ in range(4):
            await begun.acquire()
        yield
        ended.set()


@contextlib.asynccontextmanager
async def running_busy(bundle: Path) -> AsyncIterator[Running]:
    """Run a server of the tiny random model, busy with other requests."""
    async with (
        running_bundle(bundle, max_message_bytes=1_000_000, in_process=True) as made,
        other_requests(made),
    ):
        yield made
