"""Plans of the suite: loads, systems, durations and repetitions."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Literal

from bench.load.plan import LoadPlan
from bench.suite.sweep import Round, Sweep, isas_here, sweep_settings
from bench.suite.systems import System

Reference = Literal["capacity", "throughput", "own throughput"]
"""The reference rate of open loops: CTranslate2's capacity (long trials), its closed-loop
throughput with the most users, or our own."""

OWN = "dragoman"
PEER = "ctranslate2"

_CLOSED_QUEUE_SECONDS = 60.0

MAIN_SHARE = 0.8
"""The share of an open loop at which every setting is tried; other shares try the finalists."""


@dataclass(frozen=True)
class Load:
    """A load point of a closed or an open loop.

    Attributes:
        concurrency: users of a closed loop; None for an open one.
        share: fraction of the reference rate, for an open loop; None for a closed one.
        beam_size: hypotheses; 1 is greedy.
        of_own: whether the share is of our own throughput instead of the plan's reference.
    """

    concurrency: int | None = None
    share: float | None = None
    beam_size: int = 1
    of_own: bool = False

    @property
    def name(self) -> str:
        """Name of the load point in tables and directories."""
        if self.concurrency is not None:
            name = f"closed-{self.concurrency}"
        else:
            name = f"{'own' if self.of_own else 'open'}-{self.share:.0%}".replace("%", "pct")
        return name if self.beam_size == 1 else f"{name}-beam{self.beam_size}"

    def plan(self, server: str, seconds: float, warmup: float, reference: float) -> LoadPlan:
        """The plan of a run; an open loop takes its share of the rate `reference`.

        A beam is searched as CTranslate2 searches it.
        """
        rate = None
        if self.concurrency is None:
            assert self.share is not None, "a load is closed or open"
            rate = max(0.01, self.share * reference)
        return LoadPlan(
            server,
            rate=rate,
            concurrency=self.concurrency,
            duration=seconds,
            warmup=warmup,
            timeout=300.0,
            beam_size=self.beam_size,
            early_stopping="first" if self.beam_size > 1 else "",
        )


@dataclass(frozen=True)
class SuitePlan:
    """A whole benchmark.

    Attributes:
        name: "quick", "full", "engine", "overload" or "smoke".
        beam_sizes: widths of the beams; 1 is greedy.
        closed, shares: the load points.
        own_shares: shares of our own throughput, for open loops of our system alone with greedy
            search.
        systems: the systems to compare; CTranslate2 gets its settings from the sweep.
        seconds, open_seconds, warmup: durations of closed-loop runs, open-loop runs and warm-ups.
        repetitions: alternating runs of the systems at each point.
        sweep: settings of CTranslate2 to try at every point.
        reference: the reference rate of open loops.
        slo_percentiles: candidates for the target of a capacity; the highest is taken for which a
            trial takes at most `max_trial_seconds`.
        max_trial_seconds: see `slo_percentiles`.
        capacity_resolution: resolution of the search for the capacity.
        max_other_cores: a run is repeated, at most twice, if other programs kept more cores busy.
        sweep_first_samples: expected requests in the first rounds of an open loop's sweep.
        sweep_samples: expected requests in its last round, enough to score it by a percentile (see
            `bench.suite.scoring`).
    """

    name: str
    precisions: tuple[str, ...]
    closed: tuple[int, ...]
    shares: tuple[float, ...]
    systems: tuple[str, ...]
    seconds: float
    open_seconds: float
    warmup: float
    repetitions: int
    sweep: Sweep
    reference: Reference
    beam_sizes: tuple[int, ...] = (1,)
    own_shares: tuple[float, ...] = ()
    slo_percentiles: tuple[float, ...] = (99.0,)
    max_trial_seconds: float = 300.0
    capacity_resolution: float = 0.05
    max_other_cores: float = 0.15
    sweep_first_samples: int = 0
    sweep_samples: int = 0

    @property
    def loads(self) -> list[Load]:
        """All load points, beam size by beam size."""
        return [
            load
            for beam in self.beam_sizes
            for load in (
                *(Load(concurrency=count, beam_size=beam) for count in self.closed),
                *(Load(share=share, beam_size=beam) for share in self.shares),
                *(Load(share=share, of_own=True) for share in self.own_shares if beam == 1),
            )
        ]

    def systems_at(self, load: Load) -> tuple[str, ...]:
        """The systems measured at a load point."""
        return (OWN,) if load.of_own else self.systems

    def round_seconds(self, number: int, load: Load, reference: float) -> float:
        """Measured seconds of a run in the sweep's round `number` (from 0).

        Args:
            reference: the rate, in requests a second, of which an open loop takes its share.
        """
        rounds = self.sweep.rounds
        seconds = rounds[number].seconds
        if load.share is None:
            return seconds
        is_last = number == len(rounds) - 1
        samples = self.sweep_samples if is_last else self.sweep_first_samples
        return max(seconds, samples / max(0.01, load.share * reference))

    def seconds_of(self, load: Load) -> float:
        """Measured seconds of a run."""
        return self.seconds if load.share is None else self.open_seconds


QUICK = SuitePlan(
    name="quick",
    precisions=("int8",),
    closed=(1, 8, 64),
    shares=(0.8,),
    systems=(OWN, PEER),
    seconds=20.0,
    open_seconds=30.0,
    warmup=3.0,
    repetitions=2,
    sweep=Sweep(sweep_settings((64,), (0.0, 2.0, 5.0), ("",)), (Round(5.0, 2.0, 1),)),
    reference="throughput",
)
FULL = SuitePlan(
    name="full",
    precisions=("int8", "fp32"),
    beam_sizes=(1, 4),
    closed=(1, 16, 64),
    shares=(0.5, 0.8, 1.5),
    systems=(OWN, PEER),
    seconds=12.0,
    open_seconds=15.0,
    warmup=2.0,
    repetitions=2,
    sweep=Sweep(
        sweep_settings((8, 16, 32, 64), (0.0, 2.0, 5.0), isas_here("", "AVX512")),
        (Round(1.5, 0.5, 3), Round(4.0, 0.8, 1)),
    ),
    reference="capacity",
    slo_percentiles=(99.0, 95.0, 90.0),
    max_trial_seconds=120.0,
    capacity_resolution=0.1,
)
ENGINE = dataclasses.replace(
    FULL,
    name="engine",
    precisions=("int8",),
    beam_sizes=(1,),
    open_seconds=150.0,  # a p99 takes 1,000 samples of all repetitions
    repetitions=3,
    # A batch of 64 of base takes CTranslate2 up to 4 s.
    sweep=Sweep(FULL.sweep.settings, (Round(6.0, 1.0, 4), Round(10.0, 4.0, 1))),
    slo_percentiles=(99.0,),
    max_trial_seconds=300.0,
    sweep_first_samples=50,
    sweep_samples=160,  # a p90 takes 100; arrivals are random
)
OVERLOAD = SuitePlan(
    name="overload",
    precisions=("int8",),
    closed=(64,),
    shares=(),
    own_shares=(0.8, 1.5),
    systems=(OWN,),
    seconds=20.0,
    open_seconds=60.0,
    warmup=5.0,
    repetitions=1,
    sweep=QUICK.sweep,
    reference="own throughput",
)
SMOKE = dataclasses.replace(
    FULL,
    name="smoke",
    beam_sizes=(1, 2),
    closed=(1, 2),
    shares=(0.8,),
    seconds=1.0,
    open_seconds=1.0,
    warmup=0.2,
    sweep=Sweep(
        sweep_settings((8,), (0.0,), isas_here("", "AVX512")),
        (Round(0.5, 0.2, 1), Round(0.5, 0.2, 1)),
    ),
    slo_percentiles=(90.0,),
    max_trial_seconds=2.0,
    max_other_cores=math.inf,
)
PLANS = {plan.name: plan for plan in (QUICK, FULL, OVERLOAD, SMOKE)}


def own_system(load: Load | None = None) -> System:
    """Our system with its defaults.

    In a closed loop, users may wait as long as with the other systems; otherwise requests beyond
    the rows would be refused and sent again at once.
    """
    is_closed = load is not None and load.concurrency is not None
    return System(OWN, {"max_queue_seconds": _CLOSED_QUEUE_SECONDS} if is_closed else {})
