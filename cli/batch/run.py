"""Runs the parts of a job with servers, or with models in this process."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cli.batch.inputs import JobError
from cli.batch.job import Job, Result
from cli.batch.plan import JobPart
from cli.batch.pool import Pool

# So that the last texts of a part are translated beside those of the next ones.
_PARTS_AT_ONCE = 3

# Nobody waits for a single text.
_MAX_QUEUE_SECONDS = 3600.0

OnDone = Callable[[int], None]


@dataclass(frozen=True)
class JobServers:
    """Servers for a job: those at some addresses, or one in this process.

    Attributes:
        addresses: HOST:PORT; none for one in this process.
        bundles: its models; none for those that came with this installation.
        threads: CPU threads of its models; 0 for the server's own choice.
        client: arguments of the clients.
    """

    addresses: tuple[str, ...]
    bundles: tuple[Path, ...] = ()
    threads: int = 0
    client: Mapping[str, Any] = field(default_factory=dict)

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[dict[str, Any]]:
        """Clients by address."""
        from dragoman.client import AsyncClient

        async with contextlib.AsyncExitStack() as stack:
            addresses = self.addresses or (await stack.enter_async_context(self._own()),)
            yield {
                address: await stack.enter_async_context(AsyncClient(address, **self.client))
                for address in addresses
            }

    async def models(self) -> list[str]:
        """Names and versions of the models, with checksums or precisions, for a job to compare.

        Raises:
            TranslationError: no server answers.
            BundleError: a bundle is damaged.
        """
        if not self.addresses:
            from model.bundle.bundle import Bundle
            from service.settings import shipped_models

            bundles = [Bundle.load(path) for path in self.bundles or shipped_models()]
            return sorted(
                f"{bundle.name} {bundle.version} {bundle.manifest_sha256}" for bundle in bundles
            )
        from dragoman.client import AsyncClient, TranslationError

        found: set[str] = set()
        away: TranslationError | None = None
        for address in self.addresses:
            async with AsyncClient(address, **self.client) as client:
                try:
                    models = await client.list_models()
                    found |= {f"{each.name} {each.version} {each.precision}" for each in models}
                except TranslationError as exc:
                    away = exc
        if away is not None and not found:
            raise away
        return sorted(found)

    @contextlib.asynccontextmanager
    async def _own(self) -> AsyncIterator[str]:
        from service.models.loading import load_models
        from service.observability.metrics import ServerMetrics
        from service.server import Server
        from service.settings import Settings

        settings = Settings(
            model=self.bundles,
            threads=self.threads,
            port=0,
            metrics_port=0,
            max_queue_seconds=_MAX_QUEUE_SECONDS,
        )
        metrics = ServerMetrics(settings.max_client_metrics)
        async with Server(settings, lambda: load_models(settings, metrics), metrics) as server:
            owner = asyncio.current_task()
            watch = asyncio.create_task(server.wait_until_failed())
            watch.add_done_callback(lambda ended: ended.cancelled() or (owner and owner.cancel()))
            try:
                yield f"127.0.0.1:{server.port}"
            except asyncio.CancelledError:
                if watch.done():
                    raise JobError("a model stopped working; the same command resumes") from None
                raise
            finally:
                watch.cancel()
                server.cut_drain_short()


async def run_parts(job: Job, parts: Sequence[JobPart], pool: Pool, on_done: OnDone) -> None:
    """Translate parts, and keep each when it is done.

    Args:
        job: the job.
        parts: parts of it.
        pool: servers that translate.
        on_done: called with the number of rows of each finished part.

    Raises:
        JobError: a file is damaged or lacks a column.
        TranslationError: a server refuses the job as a whole.
        ServersAwayError: no server answers.
    """
    at_once = asyncio.Semaphore(_PARTS_AT_ONCE)

    async def run(part: JobPart) -> None:
        async with at_once:
            rows = await asyncio.to_thread(job.read, part)
            columns = list(rows.texts)
            results: dict[str, list[Result]] = {}
            found = await asyncio.gather(
                *(pool.translate([t for t in rows.texts[name] if t]) for name in columns)
            )
            for name, translated in zip(columns, found, strict=True):
                each = iter(translated)
                results[name] = [next(each) if text else Result(text) for text in rows.texts[name]]
            await asyncio.to_thread(job.write, part, rows, results)
            on_done(part.extent.rows)

    tasks = [asyncio.create_task(run(part)) for part in parts]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(frozen=True)
class Work:
    """Settings for the translation of a job's parts.

    Attributes:
        job: the job.
        servers: servers that translate.
        arguments: arguments of the client's `translate`.
        give_up_seconds: time without any answer after which the job ends.
    """

    job: Job
    servers: JobServers
    arguments: Mapping[str, Any]
    give_up_seconds: float

    @contextlib.asynccontextmanager
    async def pool(self) -> AsyncIterator[Pool]:
        """The servers, opened."""
        async with (
            self.servers.opened() as clients,
            Pool(clients, self.arguments, self.give_up_seconds) as pool,
        ):
            yield pool

    def translate(self, parts: Sequence[JobPart], on_done: OnDone) -> None:
        """Translate parts in this process.

        Raises:
            SystemExit: SIGTERM came.
            StartupError: no model can be opened.
            JobError: a model stopped working; also raises what `run_parts` raises.
        """

        async def run() -> None:
            # A signal's exception within gRPC's code would end the process without a word.
            task = asyncio.current_task()
            assert task is not None
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
            async with self.pool() as pool:
                await run_parts(self.job, parts, pool, on_done)

        try:
            asyncio.run(run())
        except asyncio.CancelledError:
            raise SystemExit(128 + signal.SIGTERM) from None
