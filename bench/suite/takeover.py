"""Sweeps that start from the results of others, so that many loads need few long sweeps.

The first model's greedy loads are swept over all settings. Later sweeps try only the best of
those: another precision or a beam tries the best of each split of the cores at the same load, a
share of an open loop the winners of the loads on both sides of it. Each sweep's record names the
sweeps that its candidates came from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.suite.points import MAIN_SHARE, Load, SuitePlan
from bench.suite.sweep import Settings, with_every_isa

NEAR_CAPACITY = "capacity"
"""The name of the sweep near the capacity, at a rate that closed loops suggest."""


@dataclass(frozen=True)
class Source:
    """A sweep that gives candidates to others.

    Attributes:
        load: at which it is; None for the one near the capacity.
        of_first: whether it is the greedy one of the model that is measured first; otherwise it is
            of the same model and search.
    """

    load: Load | None
    of_first: bool = False


def sources(plan: SuitePlan, load: Load | None, beam_size: int, is_first: bool) -> list[Source]:
    """The sweeps whose candidates the sweep at a load tries; none if it tries all settings.

    Args:
        load: the load point; None for the sweep near the capacity.
    """
    from_the_start = is_first and beam_size == 1
    if load is not None and load.share is not None:
        return _of_share(plan, load.share, beam_size, from_the_start)
    if from_the_start:
        return []
    if load is None:
        return [Source(None, of_first=True)]
    neighbour = _neighbour(plan, load)
    if neighbour is not None:
        return [Source(neighbour)]
    return [Source(Load(concurrency=load.concurrency), of_first=True)]


def _of_share(plan: SuitePlan, share: float, beam_size: int, from_the_start: bool) -> list[Source]:
    """Below the capacity a single user's settings may be better, above it those of many users."""
    near = Source(None)
    fewest, most = (
        Source(Load(concurrency=count, beam_size=beam_size))
        for count in (min(plan.closed), max(plan.closed))
    )
    if share == min(plan.shares) and share < MAIN_SHARE:
        return [near, fewest]
    if from_the_start and share < MAIN_SHARE:
        return [near, fewest]
    if from_the_start and share > 1.0:
        return [near, most]
    return [near]


def _neighbour(plan: SuitePlan, load: Load) -> Load | None:
    """The load whose winner is used unchanged: few users need the settings of a few more."""
    counts = sorted(plan.closed)
    if len(counts) > 2 and load.concurrency == counts[1]:
        return Load(concurrency=counts[2], beam_size=load.beam_size)
    return None


def best_of_each_split(
    record: Sequence[Sequence[dict[str, Any]]], settings: Sequence[Settings]
) -> list[Settings]:
    """The candidates that a sweep gives to others, best first; later rounds rank first.

    These are its winner, the same with every instruction set, and the best of each other split of
    the cores.

    Args:
        record: the rounds of a sweep, as its file has them.
    """
    ranked = [
        run["settings"]
        for runs in reversed(record)
        for run in sorted(runs, key=lambda run: -run["score"])
    ]
    chosen = with_every_isa(ranked[:1], settings)
    chosen.sort(key=lambda one: one != ranked[0])
    seen = {_split(ranked[0])}
    for one in ranked:
        if _split(one) not in seen:
            seen.add(_split(one))
            chosen.append(one)
    return chosen


def is_sibling(one: Settings, other: Settings) -> bool:
    """Whether two settings differ in the instruction set at most."""
    return _rest(one) == _rest(other)


def _rest(settings: Settings) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name != "isa"}


def _split(settings: Settings) -> tuple[int, int]:
    return settings["inter_threads"], settings["intra_threads"]
