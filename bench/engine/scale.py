"""Model processes and cores: `python -m bench.engine.scale`, or `make bench-scale`.

It measures this machine with 1, 2, 4 ... model processes, and simulates machines with more cores
from the costs that it measured here (`scale_simulation.py`). The load generator runs on the same
machine. Other programs should not.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from bench.benchmark import console, machine_name
from bench.engine.cpu_time import cost_of, counters
from bench.engine.scale_report import SUITE
from bench.engine.scale_simulation import Costs, Simulation, predict
from bench.load.plan import LoadPlan
from bench.load.results import about_machine
from bench.load.session import Session
from bench.load.source import read_texts
from bench.processes import descendants, mapped_bytes, proportional_bytes
from bench.recompute import REPORT_FILE, store
from bench.server_process import ROOT, Running, end_in_order_on_sigterm
from bench.suite.artifacts import SHIPPED_TEXTS, Artifacts
from bench.suite.points import OWN
from bench.suite.systems import System, running
from dragoman.client import Client
from model.bundle.bundle import Bundle
from model.bundle.processor import num_usable_cores
from service.domain.plan import EncodeItem, StepPlan
from service.runtime.cpu.lane_count import best_lanes
from service.runtime.cpu.runner import OnnxRunner

REPORTS = ROOT / "bench" / "reports" / SUITE
_SHIPPED_BUNDLE = ROOT / "model" / "pretrained" / "en-de"
_QUEUE_SECONDS = 60.0  # so that no call is refused
_USERS, _MANY_USERS, _MANY_CORES = (1, 8, 64), 256, 8
_REFERENCE_USERS = 64  # the load at which the costs of a sentence are measured
# Cores of the machines to simulate, and how much larger a model is besides the measured one.
_CORES, _LARGER = (4, 8, 16, 32), 8.0
_ROWS, _SOURCES = (1, 4, 8, 16, 32, 64), (1, 2, 4, 8)
_TIMED_STEPS, _TIMED_ENCODES, _PARALLEL_ROWS = 30, 8, 32


@dataclass(frozen=True)
class Serving:
    """A server with some model processes, and their ids."""

    server: Running
    pids: list[int]


def graph_costs(bundle: Bundle, texts: list[str]) -> dict[str, Any]:
    """The costs of the graphs in CPU time, which other programs hardly change."""
    tokenizer, config = bundle.tokenizer(), bundle.config
    sources = [(*tokenizer.encode(text), config.eos_id) for text in texts][: max(_ROWS)]
    sources = list(itertools.islice(itertools.cycle(sources), max(_ROWS)))
    one, two = (OnnxRunner(bundle, max_rows=max(_ROWS), intra_op_threads=n) for n in (1, 2))
    try:
        encode = {
            count: _typical(
                [
                    _timed(time.thread_time, one.encode, sources[k : k + count])
                    for k in range(_TIMED_ENCODES)
                ]
            )
            for count in _SOURCES
        }
        step = {rows: _typical(_steps(one, sources[:rows], time.thread_time)) for rows in _ROWS}
        # The fastest steps: two threads have no thread's time.
        alone, shared = (
            min(_steps(runner, sources[:_PARALLEL_ROWS], time.perf_counter))
            for runner in (one, two)
        )
    finally:
        one.close()
        two.close()
    parallel = min(1.0, max(0.0, 2.0 * (1.0 - shared / alone)))
    return {"step": step, "encode": encode, "parallel": parallel}


def _steps(
    runner: OnnxRunner, sources: list[tuple[int, ...]], clock: Callable[[], float]
) -> list[float]:
    """Durations of steps of these sources' rows, from their first token on."""
    rows = len(sources)
    token_ids = np.full(rows, 5, np.int64)
    encodes = [EncodeItem((row,), source) for row, source in enumerate(sources)]
    seconds = []
    for position in range(_TIMED_STEPS):
        plan = StepPlan(
            copies=(),
            encodes=() if position else encodes,
            token_ids=token_ids,
            positions=np.full(rows, position, np.int32),
        )
        seconds.append(_timed(clock, runner.execute, plan))
    return seconds[1:]


def _timed(clock: Callable[[], float], work: Callable[[Any], object], argument: Any) -> float:
    started = clock()
    work(argument)
    return clock() - started


def _typical(seconds: list[float]) -> float:
    return statistics.quantiles(seconds, n=4)[0]


@contextmanager
def serving(artifacts: Artifacts, processes: int, log: Path) -> Iterator[Serving]:
    """Run a server with some processes of the model."""
    system = System(OWN, {"max_queue_seconds": _QUEUE_SECONDS, "model_processes": processes})
    before = set(descendants())
    with running(system, artifacts, log) as server:
        pids = [pid for pid in descendants() if pid not in before and _is_model(pid)]
        assert len(pids) == processes, f"{len(pids)} model processes instead of {processes}"
        yield Serving(server, pids)


def _is_model(pid: int) -> bool:
    return b"\0service.worker\0" in Path(f"/proc/{pid}/cmdline").read_bytes()


def measure(server: Running, texts: list[str], plan: LoadPlan) -> dict[str, Any]:
    """Put a server under a load; returns figures for the report, None for unknown percentiles."""

    def page() -> dict[str, float]:
        with urllib.request.urlopen(server.metrics_url) as response:
            return counters(response.read().decode())

    before = page()
    summary = Session(texts).run(plan).summary()
    cost = cost_of(before, page(), summary.texts_per_second, math.nan, math.nan)
    latencies = {name: summary.latency.at(one) for name, one in (("p50", 50), ("p99", 99))}
    client = 1e3 * summary.generator_cpu / summary.texts_per_second
    return {**dataclasses.asdict(cost), **latencies, "client": client}


def memory(serving: Serving) -> dict[str, float]:
    """Memory of the model processes in MiB, with each shared page divided by its users."""
    mapped = [mapped_bytes(pid, ".weights") for pid in serving.pids]
    return {
        "processes": len(serving.pids),
        "total": sum(proportional_bytes(pid) for pid in serving.pids) / 2**20,
        "shared_weights": sum(proportional for _, proportional in mapped) / 2**20,
        "mapped_weights": sum(resident for resident, _ in mapped) / 2**20,
    }


def costs_of(
    bundle: Bundle, graphs: dict[str, Any], found: dict[str, Any], steps: list[int]
) -> Costs:
    """The costs for the simulation, from the graphs and a load of one model process."""
    per_row = np.interp(found["rows"], list(graphs["step"]), list(graphs["step"].values()))
    per_source = np.interp(
        found["sources"], list(graphs["encode"]), list(graphs["encode"].values())
    )
    in_graphs = statistics.mean(steps) * per_row / found["rows"] + per_source / found["sources"]
    return Costs(
        **graphs,
        python=max(0.0, found["model"] / 1e3 - float(in_graphs)),
        server=found["server"] / 1e3,
        client=found["client"] / 1e3,
        steps=steps,
        num_lanes=max(1, best_lanes(bundle.config, max(_ROWS), 2)),
    )


def simulated(costs: Costs, seconds: float) -> list[dict[str, Any]]:
    """Predictions for machines with more cores, for this model and a larger one."""
    found = []
    for factor, cores in itertools.product((1.0, _LARGER), _CORES):
        larger = costs if factor == 1.0 else costs.times(factor)
        for one in predict(larger, cores, _MANY_USERS, seconds * factor**0.5):
            line = {**dataclasses.asdict(one), "bottleneck": one.bottleneck}
            found.append({"factor": factor, **line})
    return found


def num_steps(server: Running, texts: list[str]) -> list[int]:
    """The number of steps of each text: its tokens, and the end of the sentence."""
    with Client(server.address, timeout=120) as client:
        answers = client.translate(texts).translations
    return [one.num_target_tokens + 1 for one in answers if one.error is None]


def main(
    bundle: Annotated[Path, typer.Option(help="The model.")] = _SHIPPED_BUNDLE,
    texts: Annotated[Path, typer.Option(help="Texts for it, one a line.")] = SHIPPED_TEXTS,
    seconds: Annotated[float, typer.Option(help="Duration of a load.")] = 6.0,
    rounds: Annotated[int, typer.Option(help="Alternating rounds of all loads.")] = 2,
    simulation: Annotated[float, typer.Option(help="Simulated seconds of each case.")] = 3.0,
    output: Annotated[
        Path | None, typer.Option(help="Default: a folder for this machine in bench/reports/scale.")
    ] = None,
) -> None:
    """Measure this machine, simulate larger ones, and write report.md and summary.json."""
    end_in_order_on_sigterm()
    cores, machine, lines = num_usable_cores(), about_machine(), read_texts(texts)
    model = Artifacts(bundle.name, "int8", bundle.resolve(), Path(), texts)
    loaded = Bundle.load(bundle)
    users = _USERS if cores < _MANY_CORES else (*_USERS, _MANY_USERS)
    counts = list(itertools.takewhile(lambda count: count <= cores, (2**n for n in range(7))))
    graphs = graph_costs(loaded, lines)
    measured: list[dict[str, Any]] = []
    with ExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers = [
            stack.enter_context(serving(model, count, logs / str(count))) for count in counts
        ]
        steps = num_steps(servers[0].server, lines)
        for number, load in itertools.product(range(rounds), users):
            for one in servers:
                plan = LoadPlan(
                    one.server.address,
                    concurrency=load,
                    duration=seconds,
                    warmup=1.0,
                    seed=number,
                    processes=max(1, cores // _MANY_CORES),
                )
                found = measure(one.server, lines, plan)
                measured.append({"processes": len(one.pids), "users": load, **found})
                console.print(
                    f"{len(one.pids)} processes, {load} users: {found['rate']:.0f} a second"
                )
        used = [memory(one) for one in servers]
    reference = [
        one for one in measured if one["processes"] == 1 and one["users"] == _REFERENCE_USERS
    ]
    middle = {
        name: statistics.median(one[name] for one in reference)
        for name in ("rows", "sources", "server", "model", "client")
    }
    costs = costs_of(loaded, graphs, middle, steps)
    here = [
        Simulation(costs, cores, count, load, has_clients=True).run(simulation)
        for load, count in itertools.product((load for load in users if load > 8), counts)
    ]
    summary = {
        "benchmark": SUITE,
        "machine": machine,
        "cores": cores,
        "bundle": bundle.name,
        "seconds": seconds,
        "rounds": rounds,
        "measured": measured,
        "memory": used,
        "costs": dataclasses.asdict(costs),
        "simulated_here": [dataclasses.asdict(one) for one in here],
        "simulated": simulated(costs, simulation),
    }
    directory = output or REPORTS / machine_name()
    store(directory, summary)
    typer.echo((directory / REPORT_FILE).read_text(encoding="utf-8"))


if __name__ == "__main__":
    typer.run(main)
