"""The reference rates of open loops: a capacity or a throughput, measured once."""

from __future__ import annotations

from typing import Any

from bench.benchmark import Interrupted, console
from bench.load import capacity_report
from bench.load.capacity import TRIAL_SECONDS, CapacityTest
from bench.load.errors import LoadError
from bench.load.results import Results
from bench.load.statistics import Summary
from bench.load.units import Slo, min_samples
from bench.suite.cells import pooled_latency
from bench.suite.points import OWN, PEER, Load, SuitePlan, own_system
from bench.suite.suite import CAPACITY, Suite, remembered
from bench.suite.systems import System, running

_SLO_TIMES_MEDIAN = 4.0
_MAX_SINGLE_RUNS = 40


def reference_rate(suite: Suite, load: Load) -> float:
    """The reference rate of an open loop in requests a second; 0 for a closed one."""
    return 0.0 if load.share is None else float(reference(suite, load)["rate"])


def reference(suite: Suite, load: Load) -> dict[str, Any]:
    """The "rate" that an open loop takes its share of, and its origin; measured once."""

    def make() -> dict[str, Any]:
        if load.of_own or suite.plan.reference == "own throughput":
            return _throughput(suite, OWN, load.beam_size)
        if suite.plan.reference == "throughput":
            return _throughput(suite, PEER, load.beam_size)
        return _peer_capacity(suite, load.beam_size)

    name = "own-reference" if load.of_own else "reference"
    beam = "" if load.beam_size == 1 else f"-beam{load.beam_size}"
    return remembered(suite.runs / f"{name}{beam}.json", make)


def _throughput(suite: Suite, name: str, beam_size: int) -> dict[str, Any]:
    load = Load(concurrency=max(suite.plan.closed), beam_size=beam_size)
    system = suite.best_peer(load, 0.0) if name == PEER else own_system(load)
    rate = suite.repeat(system, load, 0.0, 0).summary().achieved_rate
    whose = "CTranslate2's" if name == PEER else "our own"
    what = f"{whose} closed-loop throughput with {load.concurrency} users"
    return {"rate": rate, "what": what, "system": system.to_dict()}


def _peer_capacity(suite: Suite, beam_size: int) -> dict[str, Any]:
    """CTranslate2's capacity at a percentile within four times its single client's median."""
    single, median = _single_user(suite, beam_size)
    seconds = _SLO_TIMES_MEDIAN * median
    start = single.achieved_rate
    # At twice a single client's rate, two workers would be busy all the time.
    name = "capacity" if beam_size == 1 else f"capacity-beam{beam_size}"
    system = suite.sweep(name, Load(share=2.0, beam_size=beam_size), start)
    slo = Slo(percentile_for(suite.plan, start), seconds)
    rate = find_capacity(suite, system, slo, start, beam_size)
    what = f"CTranslate2's capacity at {slo} (4 times its single client's median)"
    if rate is None:
        rate = single.achieved_rate
        what = f"CTranslate2's rate with a single client: no capacity was found at {slo}"
    return {
        "rate": rate,
        "what": what,
        "slo": {"percentile": slo.percentile, "seconds": slo.seconds},
        "system": system.to_dict(),
    }


def _single_user(suite: Suite, beam_size: int) -> tuple[Summary, float]:
    """CTranslate2's first run with a single user, and the median over enough runs."""
    alone = Load(concurrency=1, beam_size=beam_size)
    system = suite.best_peer(alone, 0.0)
    runs: list[Results] = []
    while len(runs) < _MAX_SINGLE_RUNS:
        runs.append(suite.repeat(system, alone, 0.0, len(runs)))
        median = pooled_latency(runs).at(50)
        if median is not None:
            return runs[0].summary(), median
    raise LoadError(
        f"too few answers for CTranslate2's median in {len(runs)} runs: give them more seconds"
    )


def percentile_for(plan: SuitePlan, rate: float) -> float:
    """The highest percentile for which enough samples come within the longest trial."""
    for percentile in plan.slo_percentiles:
        if min_samples(percentile) / max(rate, 1e-9) <= plan.max_trial_seconds:
            return percentile
    return plan.slo_percentiles[-1]


def find_capacity(
    suite: Suite, system: System, slo: Slo, start: float, beam_size: int = 1
) -> float | None:
    """A system's capacity for a latency target; None if none was found.

    Trials that were made before are not made again.
    """
    name = system.name if beam_size == 1 else f"{system.name}-beam{beam_size}"
    target = suite.output / CAPACITY / suite.name / name
    log = suite.output / "logs" / f"{suite.name}-capacity-{system.name}.log"
    console.print(f"{suite.name} capacity {system} at {slo}", soft_wrap=True)
    load = Load(share=1.0, beam_size=beam_size)
    with running(system, suite.artifacts, log) as server:
        session = suite.session(server, system, "capacity", slo)
        seconds = min(TRIAL_SECONDS, suite.plan.max_trial_seconds)
        plan = load.plan(server.address, seconds, suite.plan.warmup, start)
        test = CapacityTest(
            session,
            plan,
            resolution=suite.plan.capacity_resolution,
            resumes=True,
            # A capacity may be less than a single client's rate, so allow for slower ones.
            max_trial_seconds=4 * suite.plan.max_trial_seconds,
            disturbance=suite.disturbance,
        )
        capacity = test.run(target, on_trial=lambda trial: console.print(f"  {trial}"))
    capacity_report.write(target, capacity, {"plan": plan.to_dict(), **session.about})
    if capacity.ended_early == "interrupted":
        raise Interrupted
    if capacity.ended_early:
        console.print(f"  the search ended: {capacity.ended_early}", soft_wrap=True)
    return capacity.rate
