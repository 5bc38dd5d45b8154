"""How long a benchmark will take, from its plan: said before it begins and while it goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.suite.points import MAIN_SHARE, PEER, Load, SuitePlan

# Measured: to start and stop a server and the load generator, and to await the last answers.
_AROUND_A_RUN_SECONDS = 3.0
_AGREEMENT_SECONDS = 30.0
_PROBES = 6
_PROBE_SECONDS = 12.0
_TRIALS = 4
_TRIAL_SECONDS = 65.0
_PEER_TRIAL_SECONDS = 140.0
_OPEN_SWEEP_RATE = 5.0  # requests a second of the base model on two cores


@dataclass(frozen=True)
class Step:
    """A part of a benchmark.

    Attributes:
        name: for the terminal.
        seconds: that it will take, roughly.
    """

    name: str
    seconds: float


def steps(plan: SuitePlan, model: str) -> list[Step]:
    """The parts of one model's benchmark."""
    found = []
    for loads in plan.searches:
        beam = loads[0].beam_size
        if PEER in plan.systems:
            found.append(Step(f"{model} agreement, beam {beam}", _AGREEMENT_SECONDS))
        reference = plan.reference == "capacity" and any(load.share is not None for load in loads)
        for load in loads:
            if load.share is not None and reference:
                found.append(Step(f"{model} reference, beam {beam}", capacity_seconds(plan)))
                reference = False
            found.append(Step(f"{model} {load.name}", load_seconds(plan, load)))
    return found


def load_seconds(plan: SuitePlan, load: Load) -> float:
    """Sweep and runs of a load point."""
    systems = plan.systems_at(load)
    runs = sum(plan.repetitions_of(system) for system in systems)
    seconds = runs * (plan.seconds_of(load) + plan.warmup + _AROUND_A_RUN_SECONDS)
    if PEER not in systems:
        return seconds
    shared = load.share is not None and load.share != MAIN_SHARE and MAIN_SHARE in plan.shares
    return seconds + sweep_seconds(plan, load, skip=1 if shared else 0)


def sweep_seconds(plan: SuitePlan, load: Load, skip: int = 0) -> float:
    """A sweep, its first `skip` rounds left out."""
    num_runs = plan.sweep.num_runs(load.concurrency)
    reference = _OPEN_SWEEP_RATE / (load.share or 1.0)
    return sum(
        num_runs[number]
        * (plan.round_seconds(number, load, reference) + one.warmup + _AROUND_A_RUN_SECONDS)
        for number, one in enumerate(plan.sweep.rounds)
        if number >= skip
    )


def capacity_seconds(plan: SuitePlan, of_own: bool = False) -> float:
    """A search for a capacity; how many trials it will take, and how long, is a guess."""
    if of_own:
        return _PROBES * _PROBE_SECONDS + _TRIALS * _TRIAL_SECONDS
    # The fewer requests it carries, the longer it takes until there are enough for a percentile.
    trial = max(_TRIAL_SECONDS, min(_PEER_TRIAL_SECONDS, plan.max_trial_seconds / 2))
    seconds = _PROBES * _PROBE_SECONDS + _TRIALS * trial
    return seconds + sweep_seconds(plan, Load(share=1.0))


def format_duration(seconds: float) -> str:
    """Hours and minutes."""
    if seconds < 1:
        return "nothing"
    minutes = max(1, round(seconds / 60))
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


def total(parts: Sequence[Step]) -> float:
    """Seconds of all of them."""
    return sum(part.seconds for part in parts)
