"""`dragoman plan` beside what is measured: `python -m tests.planning.run`.

Servers of the included model run on one core each, alone and as two behind Envoy, and get calls
at three rates. The same calls are simulated with the replica that `dragoman plan` measures. All
stays on loopback. Linux only, with two cores; takes about five minutes on an idle machine.

On a busy machine, `--prescribed` compares the rest of the simulation: the model's steps then sleep
for a prescribed time, and nothing is measured but the calls.

Exit status: 0 if p50, p99 and throughput agree within 20 % everywhere, 1 if not.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from bench.load.host import other_cores
from bench.load.plan import LoadPlan
from bench.load.results import about_machine
from bench.load.session import Session
from bench.load.source import read_texts
from bench.processes import descendants
from bench.recompute import store
from bench.server_process import ROOT, Running, end_in_order_on_sigterm
from cli.plan.measurement import measure, served_bundle
from cli.plan.replica import MeasuredReplica
from cli.plan.simulation import FleetSimulation, Traffic
from tests.planning.prescribed import PRESCRIBED, served_prescribed
from tests.planning.report import LIMIT, NAME, POINTS, error_of, render
from tests.robustness.envoy import envoy_program, running_envoy

LOADS = (0.3, 0.6, 0.85)
FLEETS = (1, 2)
_BUNDLE = ROOT / "model" / "pretrained" / "en-de"
_TEXTS = ROOT / "bench" / "suite" / "sentences.txt"
_ROUTING_SEEDS = 5
# CPU time of Envoy and the generator for a call, before it is measured.
_USUAL_BESIDE = 3e-3
_TICKS = os.sysconf("SC_CLK_TCK")


def main(
    bundle: Annotated[Path, typer.Option(help="The bundle that is served.")] = _BUNDLE,
    texts: Annotated[Path, typer.Option(help="Texts for it, one a line.")] = _TEXTS,
    seconds: Annotated[float, typer.Option(help="Of each load, at least.")] = 25.0,
    calls: Annotated[int, typer.Option(help="Of each load, at least.")] = 1_000,
    measuring: Annotated[float, typer.Option(help="Seconds to measure the replica.")] = 42.0,
    prescribed: Annotated[
        bool, typer.Option("--prescribed", help="Steps of prescribed duration, which sleep.")
    ] = False,
    output: Annotated[Path | None, typer.Option(help="Folder of a report.")] = None,
) -> None:
    """Measure, simulate, and print both."""
    end_in_order_on_sigterm()
    if (program := envoy_program()) is None:
        raise typer.BadParameter("envoy is not on PATH; `make check-manifests` installs it")
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < max(FLEETS):
        raise typer.BadParameter("it needs two cores")
    lines = read_texts(texts)
    replica = PRESCRIBED
    if not prescribed:
        os.sched_setaffinity(0, cores[1:])
        with served_bundle(bundle, cores[:1]) as server:
            replica = measure(server, lines, cores=1, seconds=measuring, report=typer.echo)
    points: list[dict[str, Any]] = []
    for fleet in FLEETS:
        # The core that one server leaves free is for Envoy and the load generator.
        os.sched_setaffinity(0, cores if fleet > 1 else cores[1:])
        with _fleet(program, None if prescribed else bundle, cores[:fleet]) as (address, direct):
            hop = _hop(address, direct, lines)
            beside = _USUAL_BESIDE if fleet > 1 and replica.is_single_core else 0.0
            for load in LOADS:
                rate = load * fleet * _beside(replica, beside).capacity()
                plan = LoadPlan(
                    address,
                    rate=rate,
                    duration=max(seconds, 1.1 * calls / rate),
                    warmup=3.0,
                    seed=len(points),
                    split_sentences=False,
                )
                point = _compare(replica, fleet, load, hop, plan, lines)
                points.append(point)
                beside = point["beside_seconds"]
                typer.echo(f"{fleet} replicas at {load:.0%}: {_shown(point)}")
    about = about_machine()
    summary = {
        "benchmark": NAME,
        "about": {
            "processor": about["processor"],
            "cpus": about["cpus"],
            "revision": about.get("revision"),
            "date": about["started_at"][:10],
            "texts": texts.name,
            "bundle": replica.model if prescribed else bundle.name,
        },
        "replica": {**dataclasses.asdict(replica), "lengths": len(replica.lengths)},
        "max_rate": replica.capacity(),
        "points": points,
    }
    if output is not None:
        store(output, summary)
    typer.echo(render(summary))
    raise typer.Exit(
        any(abs(error) > LIMIT for each in points for error in each["errors"].values())
    )


@contextlib.contextmanager
def _fleet(program: str, bundle: Path | None, cores: list[int]) -> Iterator[tuple[str, str]]:
    """Servers with a core each behind Envoy: its address, and that of the first server.

    Without a bundle, their steps have a prescribed duration.
    """
    with contextlib.ExitStack() as stack:
        servers: list[Running] = [
            stack.enter_context(served_bundle(bundle, [core]) if bundle else served_prescribed())
            for core in cores
        ]
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ports = [int(server.address.rpartition(":")[2]) for server in servers]
        proxy = stack.enter_context(running_envoy(program, folder, ports))
        yield proxy.address, servers[0].address


def _hop(address: str, direct: str, lines: list[str]) -> float:
    """Seconds that Envoy adds to a call of a single user."""
    means = []
    for place in (direct, address):
        plan = LoadPlan(place, concurrency=1, duration=4.0, warmup=0.5, split_sentences=False)
        samples = Session(lines).run(plan).run.samples
        means.append(float(np.median([sample.latency for sample in samples])))
    return max(0.0, means[1] - means[0])


def _compare(
    replica: MeasuredReplica, fleet: int, load: float, hop: float, plan: LoadPlan, lines: list[str]
) -> dict[str, Any]:
    """Offer a load, and simulate the same calls."""
    before = _cpu_seconds()
    results = Session(lines).run(plan)
    after = _cpu_seconds()
    beside_servers = results.run.cpu_seconds + after["envoy"] - before["envoy"]
    servers = after["servers"] - before["servers"]
    samples = sorted(
        (sample for sample in results.run.samples if sample.ok), key=lambda one: one.scheduled
    )
    counted = [sample for sample in samples if sample.scheduled >= plan.warmup]
    latencies = np.array([sample.latency for sample in counted])
    # With two servers on two cores, Envoy and the generator take their time from both.
    beside = beside_servers / len(samples) if fleet > 1 and replica.is_single_core else 0.0
    loaded = dataclasses.replace(
        _beside(replica, beside), other_seconds=replica.other_seconds + hop
    )
    traffic = Traffic(
        np.array([sample.scheduled for sample in samples]),
        np.array([max(1, sample.reply.source_tokens) for sample in samples]),
        np.array([sample.reply.target_tokens + 1 for sample in samples]),
    )
    runs = [
        FleetSimulation(loaded, fleet, seed=seed).run(traffic) for seed in range(_ROUTING_SEEDS)
    ]
    ended = max(sample.ended for sample in samples)
    measured = {
        "p50": float(np.percentile(latencies, 50, method="higher")),
        "p99": float(np.percentile(latencies, 99, method="higher")),
        "throughput": len(samples) / (ended - samples[0].scheduled),
    }
    simulated = {
        "p50": float(np.mean([run.percentile(50, plan.warmup) for run in runs])),
        "p99": float(np.mean([run.percentile(99, plan.warmup) for run in runs])),
        "throughput": float(np.mean([len(samples) / run.seconds for run in runs])),
    }
    return {
        "replicas": fleet,
        "load": load,
        "rate": plan.rate,
        "calls": len(counted),
        "failed": len(results.run.samples) - len(samples),
        "measured": measured,
        "simulated": simulated,
        "errors": {name: error_of(simulated[name], measured[name]) for name in POINTS},
        "beside_seconds": beside,
        "hop_seconds": hop,
        "other_cores": _other_cores(results.about.get("host"), beside_servers, servers),
    }


def _beside(replica: MeasuredReplica, seconds: float) -> MeasuredReplica:
    """The replica, with other work on its core for each call."""
    return dataclasses.replace(replica, call_seconds=replica.call_seconds + seconds)


def _other_cores(host: Any, beside_servers: float, servers: float) -> float:
    """Cores that other programs took."""
    if not host:
        return 0.0
    return other_cores(host, beside_servers, servers / host["seconds"])


def _cpu_seconds() -> dict[str, float]:
    """CPU time so far, of Envoy and of the servers."""
    total = {"envoy": 0.0, "servers": 0.0}
    for pid in descendants():
        with contextlib.suppress(OSError):
            name, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
            user, system = rest.split()[11:13]
            kind = "envoy" if "envoy" in name else "servers"
            total[kind] += (int(user) + int(system)) / _TICKS
    return total


def _shown(point: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {point['measured'][name]:.4g} / {point['simulated'][name]:.4g}" for name in POINTS
    )


if __name__ == "__main__":
    typer.run(main)
