"""The process that makes the load, separate so that nothing else delays it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from bench.load.arrivals import arrival_times
from bench.load.errors import LoadError
from bench.load.generator import Generator, heartbeat
from bench.load.grpc_call import LoadCall
from bench.load.plan import LoadPlan
from bench.load.sample import RequestSample
from bench.load.source import TextOrder

REPORT_SECONDS = 0.25


@dataclass(frozen=True)
class Share:
    """The work of one of `count` processes: every count-th request, or its part of the users."""

    plan: LoadPlan
    texts: Sequence[str]
    index: int
    count: int

    @property
    def num_users(self) -> int:
        """Users of a closed loop in this process."""
        users = self.plan.concurrency or 0
        return users // self.count + (self.index < users % self.count)

    def schedule(self) -> list[tuple[int, float]]:
        """Numbers and times of an open loop's requests that this process sends."""
        plan = self.plan
        assert plan.rate is not None, "only an open loop has a schedule"
        times = arrival_times(
            plan.arrivals,
            plan.rate,
            plan.total_seconds,
            seed=plan.seed,
            burstiness=plan.burstiness,
        )
        return list(enumerate(times.tolist()))[self.index :: self.count]


@dataclass(frozen=True)
class Ready:
    """A message from a worker: it is connected, or the reason why it failed."""

    error: LoadError | None = None


@dataclass(frozen=True)
class WorkerProgress:
    """A message from a worker: the samples since the last message."""

    samples: list[RequestSample] = field(default_factory=list)
    lags: list[float] = field(default_factory=list)
    num_in_flight: int = 0


@dataclass(frozen=True)
class Done:
    """The last message of a worker."""

    cpu_seconds: float


def run(connection: Connection, share: Share) -> None:
    """The process's main function; a message gives the start (`time.monotonic`).

    Any other message, or the end of the connection, breaks the run off.
    """
    # Ctrl-C reaches the whole group of processes; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(BrokenPipeError):
        asyncio.run(_run(connection, share))


async def _run(connection: Connection, share: Share) -> None:
    async with LoadCall(share.plan) as call:
        try:
            await call.connect()
        except LoadError as exc:
            connection.send(Ready(exc))
            return
        connection.send(Ready())
        try:
            start = await asyncio.to_thread(connection.recv)
        except EOFError:  # another process could not start, and the parent gave up
            return
        cpu = time.process_time()
        gc.collect()
        gc.freeze()  # objects made so far live as long as the run: the collector may skip them
        await _load(connection, share, call, start)
        connection.send(Done(time.process_time() - cpu))


async def _load(connection: Connection, share: Share, call: LoadCall, start: float) -> None:
    """Make the load, report several times a second, stop on a message."""
    samples: list[RequestSample] = []
    lags: list[float] = []
    plan = share.plan
    order = TextOrder(len(share.texts), plan.texts_per_request, plan.seed)

    def texts_of(number: int) -> list[str]:
        return [share.texts[index] for index in order.of_request(number)]

    generator = Generator(call, texts_of, samples.append, start)

    def report() -> None:
        connection.send(WorkerProgress(samples.copy(), lags.copy(), generator.num_in_flight))
        samples.clear()
        lags.clear()

    async def report_often() -> None:
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            report()

    if plan.rate is not None:
        sending = generator.open_loop(share.schedule())
    else:
        numbers = itertools.count(share.index, share.count)
        sending = generator.closed_loop(share.num_users, plan.total_seconds, numbers)
    main = asyncio.create_task(sending)
    loop = asyncio.get_running_loop()

    def break_off() -> None:
        loop.remove_reader(connection.fileno())  # once is enough: the message is not read
        main.cancel()

    loop.add_reader(connection.fileno(), break_off)
    others = [asyncio.create_task(task) for task in (heartbeat(lags.append), report_often())]
    with contextlib.suppress(asyncio.CancelledError):
        await main
    loop.remove_reader(connection.fileno())
    for other in others:
        other.cancel()
    report()
