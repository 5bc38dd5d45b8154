"""Plans of the suite: loads, systems, durations and repetitions."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Literal

from bench.load.capacity import TRIAL_SECONDS
from bench.load.plan import LoadPlan
from bench.suite.agreement import NUM_TEXTS
from bench.suite.sweep import Round, Sweep, isas_here, sweep_settings
from bench.suite.systems import System

Reference = Literal["capacity", "throughput", "own throughput"]
"""The reference rate of open loops: CTranslate2's capacity (long trials), its closed-loop
throughput with the most users, or our own."""

OWN = "dragoman"
PEER = "ctranslate2"

_ANSWERS = 3
_MOST_ADAPTED_SECONDS = 20.0
_MOST_OPEN_SECONDS = 30.0
_CLOSED_QUEUE_SECONDS = 60.0
_MANY_USERS = 16

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
        name: "quick", "full", "thorough", "engine", "overload" or "smoke".
        beam_sizes: widths of the beams; 1 is greedy.
        closed, shares: the load points.
        own_shares: of open loops for our own system alone, greedily, of our own throughput.
        systems: the systems to compare; CTranslate2 gets its settings from the sweep.
        seconds, open_seconds, warmup: durations of closed-loop runs, open-loop runs and warm-ups.
        repetitions: alternating runs of Dragoman and CTranslate2 at each point; the other systems
            run once.
        baselines_everywhere: whether the other systems run with every model and precision, or with
            the first only.
        agreement_texts: number of texts whose translations are compared.
        servers_stay: whether the servers of a load point stay up, idle, while others are measured;
            otherwise each run starts one.
        takes_over: whether only the first sweeps try all settings (see `bench.suite.takeover`).
        sweep: settings of CTranslate2 to try at every point.
        crowded_rounds: its rounds with 16 users or more, where a large batch takes longer than the
            usual rounds. None for those of `sweep`.
        reference: the reference rate of open loops.
        slo_percentiles: candidates for the target of a capacity; the highest is taken for which a
            trial takes at most `max_trial_seconds`.
        max_trial_seconds: see `slo_percentiles`.
        capacity_resolution: resolution of the search for the capacity.
        trial_seconds: shortest duration of its trials.
        trial_warmup: of its trials, at least, if it brackets: the server may still work on
            requests of a broken trial when the next begins.
        brackets: whether the search starts near the rate that the closed loops suggest.
        max_other_cores: a run is repeated if other programs kept more cores busy.
        tries: most runs for one result.
        max_made_again: most repeated runs of one model.
        adapts: whether a closed loop lasts at least three answers of a user, after a warm-up of
            one, as estimated from fewer users.
        alone_seconds: least seconds of a single user: the target of a capacity is a multiple of
            CTranslate2's median there, which takes 20 answers.
        max_single_runs: most runs of a single user for that median.
        open_samples: an open loop lasts until so many requests are expected,
        open_max_seconds: but no longer than this,
        open_least_samples: unless fewer than these are expected by then.
        budget_seconds: time for all; if it would take longer, the last loads are measured once.
        sweep_first_samples: expected requests in the first rounds of an open loop's sweep,
        sweep_samples: and in its last one, enough to score it by a percentile (see
            `bench.suite.scoring`),
        sweep_max_seconds: but no longer than this.
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
    crowded_rounds: tuple[Round, ...] | None = None
    sweep_first_samples: int = 0
    sweep_samples: int = 0
    sweep_max_seconds: float = math.inf
    baselines_everywhere: bool = True
    agreement_texts: int = NUM_TEXTS
    servers_stay: bool = False
    takes_over: bool = False
    trial_seconds: float = TRIAL_SECONDS
    trial_warmup: float = 2.0
    brackets: bool = False
    tries: int = 3
    max_made_again: float = math.inf
    adapts: bool = False
    alone_seconds: float = 0.0
    max_single_runs: int = 4
    open_samples: int = 0
    open_max_seconds: float = 0.0
    open_least_samples: int = 0
    budget_seconds: float = math.inf

    @property
    def searches(self) -> list[list[Load]]:
        """All load points, a list for each beam size."""
        return [
            [Load(concurrency=count, beam_size=beam) for count in self.closed]
            + [Load(share=share, beam_size=beam) for share in self.shares]
            + [Load(share=share, of_own=True) for share in self.own_shares if beam == 1]
            for beam in self.beam_sizes
        ]

    @property
    def loads(self) -> list[Load]:
        """All load points."""
        return [load for loads in self.searches for load in loads]

    def systems_at(self, load: Load, is_first: bool = True) -> tuple[str, ...]:
        """The systems measured there: static batches and batches per request only greedily."""
        if load.of_own:
            return (OWN,)
        if load.beam_size > 1 or not (is_first or self.baselines_everywhere):
            return tuple(name for name in self.systems if name in (OWN, PEER))
        return self.systems

    def repetitions_of(self, system: str) -> int:
        """The runs of a system at a point."""
        return self.repetitions if system in (OWN, PEER) else 1

    def sweep_at(self, load: Load) -> Sweep:
        """The sweep of CTranslate2's settings at a load point."""
        is_crowded = load.concurrency is not None and load.concurrency >= _MANY_USERS
        if not is_crowded or self.crowded_rounds is None:
            return self.sweep
        return dataclasses.replace(self.sweep, rounds=self.crowded_rounds)

    def round_seconds(self, number: int, load: Load, reference: float) -> float:
        """Measured seconds of a run in the sweep's round `number` (from 0).

        Args:
            reference: the rate, in requests a second, of which an open loop takes its share.
        """
        rounds = self.sweep_at(load).rounds
        seconds = rounds[number].seconds
        if load.share is None:
            return seconds
        is_last = number == len(rounds) - 1
        samples = self.sweep_samples if is_last else self.sweep_first_samples
        enough = samples / max(0.01, load.share * reference)
        return max(seconds, min(enough, self.sweep_max_seconds))

    def seconds_of(self, load: Load, reference: float = 0.0, answer: float = 0.0) -> float:
        """Measured seconds of a run.

        Args:
            reference: the rate, in requests a second, of which an open loop takes its share.
            answer: seconds that an answer takes, of a closed loop; 0 if that is not known.
        """
        if load.share is None:
            least = self.alone_seconds if load.concurrency == 1 else 0.0
            return max(self.seconds, least, min(_ANSWERS * answer, _MOST_ADAPTED_SECONDS))
        if not reference:
            return self.open_seconds
        rate = max(0.01, load.share * reference)
        least = min(self.open_least_samples / rate, _MOST_OPEN_SECONDS)
        return max(self.open_seconds, least, min(self.open_samples / rate, self.open_max_seconds))


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
THOROUGH = SuitePlan(
    name="thorough",
    precisions=("int8", "fp32"),
    beam_sizes=(1, 4),
    closed=(1, 4, 16, 64),
    shares=(0.25, 0.5, 0.8, 1.0, 1.5),
    own_shares=(0.8, 1.5),
    systems=(OWN, PEER, "static", "per-request"),
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
FULL = dataclasses.replace(
    THOROUGH,
    name="full",
    seconds=5.0,
    open_seconds=5.0,
    warmup=1.0,
    own_shares=(),  # the benchmark "overload" has them, and long enough for its verdicts
    baselines_everywhere=False,
    agreement_texts=100,
    servers_stay=True,
    sweep=Sweep(THOROUGH.sweep.settings, (Round(1.0, 0.3, 2), Round(2.5, 0.5, 1))),
    sweep_samples=110,  # a p90 takes 100
    sweep_max_seconds=4.0,
    takes_over=True,
    max_trial_seconds=60.0,
    capacity_resolution=0.25,
    brackets=True,
    adapts=True,
    alone_seconds=15.0,
    open_samples=55,  # so that both runs together tell a p90
    open_max_seconds=7.0,
    open_least_samples=11,  # a median takes 20
    tries=2,
    max_made_again=6,
    budget_seconds=76 * 60.0,
)
ENGINE = dataclasses.replace(
    THOROUGH,
    name="engine",
    precisions=("int8",),
    beam_sizes=(1,),
    own_shares=(),
    systems=(OWN, PEER),
    seconds=12.0,
    repetitions=3,
    sweep=Sweep(THOROUGH.sweep.settings, (Round(2.0, 0.7, 3), Round(5.0, 0.8, 1))),
    # A batch of 64 of base takes CTranslate2 up to 4 s.
    crowded_rounds=(Round(6.0, 1.0, 4), Round(10.0, 4.0, 1)),
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
    closed=(1, 2, 4),
    shares=(0.25, 0.8, 1.5),
    seconds=1.0,
    open_seconds=1.0,
    warmup=0.2,
    alone_seconds=0.0,
    max_single_runs=40,  # a busy machine may answer once or twice in one
    sweep=Sweep(
        sweep_settings((8,), (0.0,), isas_here("", "AVX512")),
        (Round(0.5, 0.2, 1), Round(0.5, 0.2, 1)),
    ),
    sweep_samples=0,
    open_samples=0,
    open_least_samples=0,
    agreement_texts=20,
    trial_seconds=1.0,
    trial_warmup=0.2,
    slo_percentiles=(90.0,),
    max_trial_seconds=10.0,
    max_other_cores=math.inf,
)
PLANS = {plan.name: plan for plan in (QUICK, FULL, THOROUGH, OVERLOAD, SMOKE)}


def own_system(name: str, load: Load | None = None) -> System:
    """A system that is not swept: ours, with its defaults.

    In a closed loop, users may wait as long as with the other systems; otherwise requests beyond
    the rows would be refused and sent again at once.
    """
    if name != OWN:
        return System(name, {"max_batch": 64, "window_ms": 0.0})
    is_closed = load is not None and load.concurrency is not None
    return System(name, {"max_queue_seconds": _CLOSED_QUEUE_SECONDS} if is_closed else {})
