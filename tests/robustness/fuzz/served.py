"""Runs targets against a server: many inputs and a canary at once, then checks of the server."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Iterable
from typing import Any, ClassVar, Protocol, TypeVar

from tests.robustness.fuzz.server import Footprint, FuzzedServer
from tests.robustness.fuzz.target import Finding, Tally, describe, random_of, shown

T = TypeVar("T")

_BETWEEN_CANARIES_SECONDS = 1.0
# The documented deadline of calls that set none is 300 s; inputs set at most 20 s.
LIMIT_SECONDS = 60.0


class ServerTarget(Protocol[T]):
    """A way to call a server; see `tests.robustness.fuzz.target.ParserTarget`.

    Attributes:
        name, share, what: same as in `ParserTarget`.
        at_once: number of inputs in progress.
    """

    name: ClassVar[str]
    share: ClassVar[float]
    what: ClassVar[str]
    at_once: ClassVar[int]

    def generate(self, rng: random.Random) -> T:
        """Generate an input."""
        ...

    def connected(self, server: CanaryServer) -> contextlib.AbstractAsyncContextManager[None]:
        """A context with objects that inputs share, such as channels."""
        ...

    async def run(self, given: T, server: Any) -> str:
        """Send an input, and judge the answer, like `ParserTarget.run`."""
        ...


class CanaryServer(Protocol):
    """The interface of a server under test: `FuzzedServer`, or a fake of it."""

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        ...

    async def canary(self) -> str:
        """Translate; returns a description of what is wrong, or ""."""
        ...

    async def settled(self, base: Footprint) -> Footprint:
        """The footprint when it has returned to its base, or after some time."""
        ...


async def run_inputs(
    target: ServerTarget[Any],
    server: CanaryServer,
    seed: int,
    numbers: Iterable[int],
    tally: Tally,
    limit_seconds: float = LIMIT_SECONDS,
) -> None:
    """Run inputs against a server, and count what came of them.

    Args:
        target: target of the inputs.
        server: running server that has been warmed up.
        seed: random seed of the run.
        numbers: numbers of the inputs.
        tally: counts results.
        limit_seconds: time limit of each input.
    """
    waiting = iter(numbers)
    async with _canaries(server, tally), target.connected(server):
        await asyncio.gather(
            *(
                _work(target, server, seed, waiting, tally, limit_seconds)
                for _ in range(target.at_once)
            )
        )


async def check_afterwards(server: CanaryServer, base: Footprint, tally: Tally) -> Footprint:
    """Count problems of the server when it is idle; returns its footprint."""
    if not server.is_alive:
        tally.found("the server's process ended", "", -1)
        return base
    if problem := await server.canary():
        tally.found(problem.partition(":")[0], problem, -1)
    found = await server.settled(base)
    for problem in found.problems(base):
        tally.found(problem, f"{found} after {base}", -1)
    return found


async def _work(
    target: ServerTarget[Any],
    server: CanaryServer,
    seed: int,
    waiting: Any,
    tally: Tally,
    limit_seconds: float,
) -> None:
    for number in waiting:
        if not server.is_alive:
            tally.found("the server's process ended", f"before or in input {number}", number)
            return
        given = target.generate(random_of(target.name, seed, number))
        started = time.monotonic()
        try:
            async with asyncio.timeout(limit_seconds):
                outcome = await target.run(given, server)
        except TimeoutError:
            outcome = "(no end)"
            tally.found(f"no end within {limit_seconds:g} s", shown(given), number)
        except Exception as exc:
            what, evidence = describe(exc)
            outcome = f"({what})"
            tally.found(what, f"{evidence}\n{shown(given)}", number)
        tally.outcomes[outcome] += 1
        tally.took(time.monotonic() - started, number)


@contextlib.asynccontextmanager
async def _canaries(server: CanaryServer, tally: Tally) -> AsyncIterator[None]:
    """Translate repeatedly within the context."""

    async def fly() -> None:
        while True:
            if problem := await server.canary():
                tally.found(problem.partition(":")[0], problem, -1)
            await asyncio.sleep(_BETWEEN_CANARIES_SECONDS)

    flying = asyncio.create_task(fly())
    try:
        yield
    finally:
        flying.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await flying


def count_errors_logged(server: FuzzedServer, tally: Tally) -> None:
    """Count defects in the server's log."""
    for what, count in server.log.errors.items():
        tally.found(what, server.log.examples[what], -1)
        tally.defects[what].count = count


def check_text(text: str, where: str) -> None:
    """Raise `Finding` if a text for a client shows internals of the server."""
    for sign in ("Traceback (most", 'File "/', "site-packages", " object at 0x"):
        if sign in text:
            raise Finding(f"{where} shows the inside of the server", text[:500])
