"""How long a benchmark will take, from its plan: said before it begins and while it goes on."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from bench.suite.points import MAIN_SHARE, PEER, Load, SuitePlan
from bench.suite.takeover import sources

# Measured: to start and stop a server and the load generator, and to await the last answers.
_AROUND_A_RUN_SECONDS = 3.0
_START_SECONDS = 2.0  # of them, for the server
_AGREEMENT_SECONDS = 30.0
_PROBES = 6
_PROBE_SECONDS = 12.0
_TRIALS = 4
_TRIAL_SECONDS = 65.0
_PEER_TRIAL_SECONDS = 140.0
_OPEN_SWEEP_RATE = 5.0  # requests a second of the base model on two cores
_BRACKETED_PROBES = 4
_BRACKETED_TRIALS = 1.5  # most end early where they break the promise


@dataclass(frozen=True)
class Step:
    """A part of a benchmark.

    Attributes:
        name: for the terminal.
        seconds: that it will take, roughly.
        spare: those of them that go to repetitions.
    """

    name: str
    seconds: float
    spare: float = 0.0


def steps(plan: SuitePlan, cell: tuple[str, str], is_first: bool = True) -> list[Step]:
    """The parts of one model's benchmark.

    Args:
        plan: all of it.
        cell: the model's name and precision.
        is_first: whether it is the one that is measured first.
    """
    model, precision = "-".join(cell), cell[1]
    found = []
    for loads in plan.searches:
        beam = loads[0].beam_size
        if PEER in plan.systems:
            found.append(Step(f"{model} agreement, beam {beam}", _AGREEMENT_SECONDS))
        reference = plan.reference == "capacity" and any(load.share is not None for load in loads)
        for load in loads:
            if load.share is not None and reference:
                seconds = capacity_seconds(plan, beam_size=beam, is_first=is_first)
                found.append(Step(f"{model} reference, beam {beam}", seconds))
                reference = False
            seconds = load_seconds(plan, load, precision, is_first)
            once = dataclasses.replace(plan, repetitions=1)
            spare = seconds - load_seconds(once, load, precision, is_first)
            found.append(Step(f"{model} {load.name}", seconds, spare))
    return found


def load_seconds(
    plan: SuitePlan, load: Load, precision: str = "int8", is_first: bool = True
) -> float:
    """Sweep and runs of a load point."""
    systems = plan.systems_at(load, precision)
    runs = sum(plan.repetitions_of(system) for system in systems)
    seconds = runs * (plan.seconds_of(load) + plan.warmup + _AROUND_A_RUN_SECONDS)
    if plan.servers_stay:
        seconds -= (runs - len(systems)) * _START_SECONDS
    if PEER not in systems:
        return seconds
    if plan.takes_over:
        return seconds + _taken_over_seconds(plan, load, load.beam_size, is_first)
    shared = load.share is not None and load.share != MAIN_SHARE and MAIN_SHARE in plan.shares
    return seconds + sweep_seconds(plan, load, skip=1 if shared else 0)


def sweep_seconds(plan: SuitePlan, load: Load, skip: int = 0) -> float:
    """A sweep, its first `skip` rounds left out."""
    num_runs = plan.sweep.num_runs(load.concurrency)
    return sum(
        num_runs[number] * _round_run_seconds(plan, number, load)
        for number in range(skip, len(num_runs))
    )


def _round_run_seconds(plan: SuitePlan, number: int, load: Load) -> float:
    reference = _OPEN_SWEEP_RATE / (load.share or 1.0)
    one = plan.sweep.rounds[number]
    return plan.round_seconds(number, load, reference) + one.warmup + _AROUND_A_RUN_SECONDS


def _taken_over_seconds(
    plan: SuitePlan, load: Load | None, beam_size: int, is_first: bool
) -> float:
    """A sweep that may begin where others ended; `load` is None for that near the capacity."""
    near = Load(share=1.0, beam_size=beam_size)
    found = sources(plan, load, beam_size, is_first)
    if not found:
        return sweep_seconds(plan, load or near)
    splits = {(one["inter_threads"], one["intra_threads"]) for one in plan.sweep.settings}
    isas = {one.get("isa") for one in plan.sweep.settings}
    # A winner with every instruction set and the best of each other split; or a winner of each.
    counts = [len(splits) - 1 + len(isas) if one.of_first else 1 for one in found]
    if sum(counts) == 1:
        return 0.0
    last = len(plan.sweep.rounds) - 1
    return sum(counts) * _round_run_seconds(plan, last, load or near)


def capacity_seconds(
    plan: SuitePlan, of_own: bool = False, beam_size: int = 1, is_first: bool = True
) -> float:
    """A search for a capacity; how many trials it will take, and how long, is a guess."""
    if of_own:
        return _PROBES * _PROBE_SECONDS + _TRIALS * _TRIAL_SECONDS
    if plan.brackets:
        probes = _BRACKETED_PROBES * (plan.probe_seconds + plan.warmup + 1.0)
        trials = _BRACKETED_TRIALS * (plan.confirm_seconds + plan.warmup + 1.0)
        return probes + trials + _taken_over_seconds(plan, None, beam_size, is_first)
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
