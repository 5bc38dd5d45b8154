"""The search for the capacity of a server with a known one, in virtual time and by the command."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.load.arrivals import arrival_times
from bench.load.capacity import CapacityTest
from bench.load.generator import Generator
from bench.load.plan import LoadPlan
from bench.load.results import Results
from bench.load.sample import ReplySample, RequestSample
from bench.load.session import RunProgress, Session
from bench.load.statistics import Run
from bench.load.units import Slo
from tests.factories import SENTENCES
from tests.integration.servers import dragoman
from tests.load.fake_server import FakeServer, fake_server
from tests.load.virtual_time import run_virtual

NUM_WORKERS = 4


class Workers:
    """A server in virtual time: each worker answers one request after another."""

    def __init__(self, service: float) -> None:
        self._service = service
        self._workers = asyncio.Semaphore(NUM_WORKERS)

    async def __call__(self, texts: Sequence[str]) -> ReplySample:
        async with self._workers:
            await asyncio.sleep(self._service)
        return ReplySample(target_tokens=len(texts))


class VirtualSession(Session):
    """Runs plans against `Workers` that together answer `rate` requests a second."""

    rate = 0.0

    def run(
        self,
        plan: LoadPlan,
        output: Path | None = None,
        observer: Callable[[RunProgress], bool] = lambda progress: False,
    ) -> Results:
        samples: list[RequestSample] = []

        async def main() -> None:
            server = Workers(NUM_WORKERS / self.rate)
            generator = Generator(server, lambda number: ["text"], samples.append, start=0.0)
            if plan.rate is None:
                users, numbers = plan.concurrency or 0, itertools.count()
                await generator.closed_loop(users, plan.total_seconds, numbers)
            else:
                times = arrival_times("poisson", plan.rate, plan.total_seconds, seed=plan.seed)
                await generator.open_loop(enumerate(times.tolist()))

        run_virtual(main())
        return Results(Run(plan, samples, [], plan.total_seconds), self.slo)


@pytest.mark.parametrize("rate", [3.0, 230.0])
@pytest.mark.parametrize("seed", [0, 100])
def test_a_known_capacity_is_found_in_few_trials(rate: float, seed: int) -> None:
    """With a promise of twenty times the service time, it is nearly all that the workers can do."""
    session = VirtualSession(["x"], Slo(90, 20 * NUM_WORKERS / rate))
    session.__dict__["rate"] = rate  # of a frozen dataclass
    plan = LoadPlan("", concurrency=32, duration=10.0, warmup=1.0, seed=seed)
    capacity = CapacityTest(session, plan).run()
    assert capacity.ended_early == ""
    assert capacity.rate is not None
    assert capacity.rate == pytest.approx(rate, rel=0.1)
    assert len(capacity.trials) <= 3
    assert len({trial.rate for trial in capacity.trials}) == len(capacity.trials)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_between_two_trials_ends_a_search(number: signal.Signals) -> None:
    """Even if it was started to ignore the signal, as in the background of a script."""
    session = VirtualSession(["x"], Slo(90, 0.4))
    session.__dict__["rate"] = 200.0
    test = CapacityTest(session, LoadPlan("", rate=20.0, duration=10.0, warmup=1.0))
    before = signal.signal(number, signal.SIG_IGN)
    try:
        capacity = test.run(on_trial=lambda trial: signal.raise_signal(number))
    finally:
        signal.signal(number, before)
    assert capacity.ended_early == "interrupted"
    assert capacity.rate == 20.0
    assert len(capacity.trials) == 1


async def test_ctrl_c_says_the_best_rate_that_held(tmp_path: Path) -> None:
    source = tmp_path / "source.txt"
    source.write_text("\n".join(SENTENCES), encoding="utf-8")
    is_interrupted = threading.Event()

    def answer(server: FakeServer, number: int, context: Any) -> None:
        """At once; later calls not before the signal, so that no search ends by itself."""
        if number > 50:  # of the second trial or the third; it gives up after three
            is_interrupted.wait()

    with fake_server(answer) as server:
        process = await dragoman(
            *("load", "--server", server.address, "--source", source, "--metrics", "none"),
            *("--find-capacity", "--slo", "p50=50ms", "--rate", "20"),
            *("--duration", "1s", "--warmup", "0s", "--output", tmp_path / "out"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stderr is not None
        while b": promise " not in (line := await process.stderr.readline()):
            assert line, "the search ended without a trial"
        process.send_signal(signal.SIGINT)
        is_interrupted.set()
        output, _ = await process.communicate()
    assert process.returncode == 130
    found = json.loads((tmp_path / "out" / "capacity.json").read_text())
    assert found["ended_early"] == "interrupted"
    # A busy machine may keep the first trial from saying anything.
    rate = found["capacity"]
    assert (rate == 20) == (b"promise kept" in line)
    said = f"at least {rate:g} requests/s" if rate else "No rate was found"
    assert said in output.decode()
