"""One round: a fresh server under load, a fault, and the checks after it."""

from __future__ import annotations

import asyncio
import contextlib
import random
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from service.observability import loop_monitor
from tests.robustness.faults.account import RETRIED, CallAccount
from tests.robustness.faults.gauges import Held, growth_finds, held_by
from tests.robustness.faults.load import FaultLoad, Place, account_for, unary
from tests.robustness.faults.supervised import SupervisedServer

CLIENTS = ("unary", "unary", "unary", "stream", "stream", "retrying", "http")
WARM_CALLS, LAST_CALLS = 60, 30
_READY_SECONDS = 90.0
_QUIET_SECONDS = 15.0


@dataclass
class FaultRound:
    """The tools of a scenario.

    Attributes:
        server: server under load.
        load: load on the server.
        place: addresses of the server.
        rng: random generator for times.
        folder: folder for files.
        live: folder from which the server reads its bundle.
        log_pipe: pipe that `prepare` has made for the server's log.
    """

    server: SupervisedServer
    load: FaultLoad
    place: Place
    rng: random.Random
    folder: Path
    live: Path
    log_pipe: tuple[int, int] | None = None

    @property
    def account(self) -> CallAccount:
        """The account of the load's calls."""
        return self.load.account

    async def some_time(self, least: float = 0.1, most: float = 1.0) -> None:
        """Let the load continue for a random time, in seconds."""
        await asyncio.sleep(self.rng.uniform(least, most))

    def must(self, holds: bool, what: str) -> None:
        """Record a failure unless a condition holds."""
        if not holds:
            self.account.finds.append(f"it must hold that {what}")


@dataclass(frozen=True)
class FaultSetting:
    """Requirements of a scenario for the server and the load.

    Attributes:
        options: options of `dragoman serve`, besides ports and model.
        place: returns the place of a server, given its addresses.
        open_files: limit of the server's open files.
        log_pipe: read and write end of a pipe for the server's standard error.
        clients: number of clients of each kind in the load.
    """

    options: Sequence[str] = ()
    place: Callable[[Place], Place] = lambda place: place
    open_files: int | None = None
    log_pipe: tuple[int, int] | None = None
    clients: Sequence[str] = CLIENTS


Strike = Callable[[FaultRound], Awaitable[None]]
Preparation = Callable[[Path], contextlib.AbstractContextManager[FaultSetting]]


@dataclass(frozen=True)
class Scenario:
    """A fault.

    Attributes:
        name: name of its rounds.
        what: description in a line.
        strike: causes the fault, and returns when the server should work again.
        prepare: makes its files in a folder, and returns the requirements for the server.
        refusals: codes with which calls may be refused.
        lost: whether calls may be refused at all.
        may_restart: whether the server may end and be started again.
    """

    name: str
    what: str
    strike: Strike
    prepare: Preparation
    refusals: frozenset[str] = RETRIED
    lost: bool = True
    may_restart: bool = False


@dataclass
class RoundResult:
    """The result of a round.

    Attributes:
        scenario, seed: scenario and random seed, which repeat the round.
        right, cancelled: number of correctly answered and of cancelled calls.
        refused: number of calls by code.
        finds: failures; empty for a good round.
        recovery_seconds: time from the fault's end to a correct answer.
        more_memory: growth of the server's memory over the round, in bytes.
    """

    scenario: str
    seed: int
    right: int = 0
    cancelled: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    finds: list[str] = field(default_factory=list)
    recovery_seconds: float = 0.0
    more_memory: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


async def play(
    scenario: Scenario, seed: int, bundle: Path, expected: Mapping[str, str]
) -> RoundResult:
    """Play a round of a scenario; all failures are in its result."""
    account = CallAccount(expected, scenario.refusals)
    result = RoundResult(scenario.name, seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        live = folder / "live"
        live.symlink_to(bundle)
        with scenario.prepare(folder) as prepared:
            server = SupervisedServer(
                ["--model", str(live), *prepared.options],
                folder / "log",
                open_files=prepared.open_files,
                log_to=prepared.log_pipe and prepared.log_pipe[1],
            )
            place = prepared.place(Place(server.address, server.http_port))
            try:
                async with server.running():
                    await until_ready(place)
                    load = FaultLoad(place, account, seed, prepared.clients)
                    rng, pipe = random.Random(seed), prepared.log_pipe
                    played = FaultRound(server, load, place, rng, folder, live, pipe)
                    await _play(scenario, played, result)
            except Exception as exc:
                account.finds.append(f"{type(exc).__name__}: {exc}")
    conclude(scenario, account, result)
    return result


def conclude(scenario: Scenario, account: CallAccount, result: RoundResult) -> None:
    """Add the outcomes of the calls to the result, with a failure if one was lost wrongly."""
    if not scenario.lost and account.refused:
        account.finds.append(f"no call must be refused here: {dict(account.messages)}")
    result.right, result.cancelled = account.right, account.cancelled
    result.refused, result.finds = dict(account.refused), account.finds


async def _play(scenario: Scenario, played: FaultRound, result: RoundResult) -> None:
    server, account = played.server, played.account
    async with FaultLoad(played.place, account, result.seed, CLIENTS).running() as warm:
        await warm.calls(WARM_CALLS)
    before = await _held_in_quiet(server)
    async with played.load.running() as load:
        await scenario.strike(played)
        ended = time.monotonic()
        await until_ready(played.place)
        result.recovery_seconds = time.monotonic() - ended
        await load.calls(LAST_CALLS)
    async with played.place.channel() as channel:
        stub: Any = TranslationServiceStub(channel)
        for text in account.expected:
            await account_for(
                account, "canary", text, lambda one: unary(stub, one, played.place.metadata)
            )
    if server.ends and not scenario.may_restart:
        ends = ", ".join(f"{status} after {seconds:.1f} s" for status, seconds in server.ends)
        account.finds.append(f"the server ended with {ends}")
    account.finds += [
        f"the event loop was blocked for {line['seconds']} s:\n{line['stack']}"
        for line in server.lines()
        if line["message"] == loop_monitor.MESSAGE
    ]
    after = await _held_in_quiet(server, before)
    result.more_memory = after.memory - before.memory
    account.finds += growth_finds(before, after)


async def _held_in_quiet(server: SupervisedServer, before: Held | None = None) -> Held:
    """Resources of the idle server; with `before`, waits until they are within the bounds."""
    held = held_by(server.pid)
    ends = time.monotonic() + _QUIET_SECONDS
    while before is not None and growth_finds(before, held) and time.monotonic() < ends:
        await asyncio.sleep(0.5)
        held = held_by(server.pid)
    return held


async def until_ready(place: Place) -> None:
    """Wait until the server answers a call.

    Raises:
        TimeoutError: the server does not answer in time.
    """
    async with asyncio.timeout(_READY_SECONDS), place.channel() as channel:
        stub: Any = TranslationServiceStub(channel)
        while True:
            try:
                await unary(stub, "Good morning.", place.metadata)
                return
            except Exception:
                await asyncio.sleep(0.1)


@contextlib.contextmanager
def nothing(folder: Path) -> Any:
    """Prepare nothing."""
    yield FaultSetting()


async def recorded(bundle: Path, texts: Sequence[str]) -> dict[str, str]:
    """The translations of texts by a server without faults."""
    with tempfile.TemporaryDirectory() as name:
        server = SupervisedServer(["--model", str(bundle)], Path(name) / "log")
        async with server.running():
            place = Place(server.address)
            await until_ready(place)
            async with place.channel() as channel:
                stub: Any = TranslationServiceStub(channel)
                return {text: await unary(stub, text) for text in texts}
