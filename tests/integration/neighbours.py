"""Requests beside those of a test: some continue and must get their answers, some are held."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from dragoman.client import TranslationBatch
from tests.fake_runner import FakeRunner
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


async def held_calls(
    server: Running, runner: FakeRunner, count: int
) -> list[asyncio.Task[TranslationBatch]]:
    """Start calls that the runner holds, and wait until they are in progress."""
    runner.hold()
    held = [asyncio.create_task(server.client.translate(["A dog."])) for _ in range(count)]
    while server.metric("dragoman_requests_in_flight", method="Translate") < count:
        await asyncio.sleep(0)
    return held
