"""Estimates of a benchmark's duration from its plan, printed before and while it runs."""

from __future__ import annotations

from bench.suite.points import MAIN_SHARE, PEER, Load, SuitePlan
from bench.suite.takeover import sources

# Measured: to start and stop a server and the load generator, and to await the last answers.
_AROUND_A_RUN_SECONDS = 3.0
_START_SECONDS = 2.0  # of them, for the server
_TRIALS = 6
_TRIAL_SECONDS = 65.0
_PEER_TRIAL_SECONDS = 140.0
_OPEN_SWEEP_RATE = 5.0  # requests a second of the base model on two cores
# The same with many users, by precision and beam; other beams count as the wider one.
_THROUGHPUT = {("int8", 1): 45.0, ("fp32", 1): 25.0, ("int8", 4): 13.0, ("fp32", 4): 6.0}
_TIMES_SHIPPED = 8.0
_CAPACITY_SHARE = 0.35  # of the throughput
_BRACKETED_TRIALS = 2.0  # most end early when they miss the target


def load_seconds(
    plan: SuitePlan,
    load: Load,
    cell: tuple[str, str] = ("base", "int8"),
    is_first: bool = True,
) -> float:
    """Sweep and runs of a load point."""
    systems = plan.systems_at(load, is_first)
    runs = sum(plan.repetitions_of(system) for system in systems)
    answer = _answer_seconds(plan, load, cell)
    reference = _CAPACITY_SHARE * _throughput(cell, load.beam_size) if plan.adapts else 0.0
    each = plan.seconds_of(load, reference, answer) + max(plan.warmup, answer)
    seconds = runs * (each + _AROUND_A_RUN_SECONDS)
    if plan.servers_stay:
        seconds -= (runs - len(systems)) * _START_SECONDS
    if PEER not in systems:
        return seconds
    if plan.takes_over:
        return seconds + _taken_over_seconds(plan, load, load.beam_size, cell, is_first)
    shared = load.share is not None and load.share != MAIN_SHARE and MAIN_SHARE in plan.shares
    return seconds + sweep_seconds(plan, load, skip=1 if shared else 0)


def _throughput(cell: tuple[str, str], beam_size: int) -> float:
    model, precision = cell
    rate = _THROUGHPUT[precision, 1 if beam_size == 1 else 4]
    return rate * (_TIMES_SHIPPED if model == "shipped" else 1.0)


def _answer_seconds(plan: SuitePlan, load: Load, cell: tuple[str, str]) -> float:
    if not plan.adapts or load.concurrency is None or load.concurrency == min(plan.closed):
        return 0.0
    return min(load.concurrency / _throughput(cell, load.beam_size), 6.0)


def sweep_seconds(
    plan: SuitePlan, load: Load, skip: int = 0, cell: tuple[str, str] = ("base", "int8")
) -> float:
    """A sweep without its first `skip` rounds."""
    num_runs = plan.sweep_at(load).num_runs(load.concurrency)
    return sum(
        num_runs[number] * _round_run_seconds(plan, number, load, cell)
        for number in range(skip, len(num_runs))
    )


def _round_run_seconds(plan: SuitePlan, number: int, load: Load, cell: tuple[str, str]) -> float:
    reference = _OPEN_SWEEP_RATE / (load.share or 1.0)
    one = plan.sweep_at(load).rounds[number]
    answer = _answer_seconds(plan, load, cell)
    seconds = max(plan.round_seconds(number, load, reference), (number + 1) * answer)
    return seconds + max(one.warmup, answer) + _AROUND_A_RUN_SECONDS


def _taken_over_seconds(
    plan: SuitePlan, load: Load | None, beam_size: int, cell: tuple[str, str], is_first: bool
) -> float:
    """A sweep that may start from others' results; `load` is None for that near the capacity."""
    near = Load(share=1.0, beam_size=beam_size)
    found = sources(plan, load, beam_size, is_first)
    if not found:
        return sweep_seconds(plan, load or near, cell=cell)
    splits = {(one["inter_threads"], one["intra_threads"]) for one in plan.sweep.settings}
    isas = {one.get("isa") for one in plan.sweep.settings}
    # A winner, with every instruction set where the precision is another, and the best of each
    # other split; or a winner of each.
    winners = 1 if cell[1] == plan.precisions[0] else len(isas)
    counts = [len(splits) - 1 + winners if one.of_first else 1 for one in found]
    if sum(counts) == 1:
        return 0.0
    last = len(plan.sweep.rounds) - 1
    return sum(counts) * _round_run_seconds(plan, last, load or near, cell)


def agreement_seconds(plan: SuitePlan, cell: tuple[str, str], beam_size: int) -> float:
    """Translating the same texts with both systems."""
    texts = plan.agreement_texts / _throughput(cell, beam_size)
    return 2 * (_AROUND_A_RUN_SECONDS + texts)


def capacity_seconds(
    plan: SuitePlan,
    of_own: bool = False,
    beam_size: int = 1,
    cell: tuple[str, str] = ("base", "int8"),
    is_first: bool = True,
) -> float:
    """A search for a capacity; how many trials it will take, and how long, is a guess."""
    if of_own:
        return _TRIALS * _TRIAL_SECONDS
    if plan.brackets:
        trials = _BRACKETED_TRIALS * (plan.trial_seconds + plan.warmup + 1.0)
        return trials + _taken_over_seconds(plan, None, beam_size, cell, is_first)
    # The fewer requests it carries, the longer it takes until there are enough for a percentile.
    trial = max(_TRIAL_SECONDS, min(_PEER_TRIAL_SECONDS, plan.max_trial_seconds / 2))
    return _TRIALS * trial + sweep_seconds(plan, Load(share=1.0))
