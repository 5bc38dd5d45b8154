"""What is measured: loads, systems, durations, and how often."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bench.load.plan import LoadPlan
from bench.suite.systems import System


@dataclass(frozen=True)
class Load:
    """A load point.

    Attributes:
        concurrency: users of a closed loop; None for an open one.
        share: of the reference rate, for an open loop; None for a closed one.
    """

    concurrency: int | None = None
    share: float | None = None

    @property
    def name(self) -> str:
        """For tables and directories."""
        if self.concurrency is not None:
            return f"closed-{self.concurrency}"
        return f"open-{self.share:.0%}".replace("%", "pct")

    def plan(self, server: str, seconds: float, warmup: float, reference: float) -> LoadPlan:
        """The run; `reference` is the rate of which an open loop takes its share."""
        if self.concurrency is not None:
            return LoadPlan(server, concurrency=self.concurrency, duration=seconds, warmup=warmup)
        assert self.share is not None, "a load is closed or open"
        return LoadPlan(
            server, rate=max(0.01, self.share * reference), duration=seconds, warmup=warmup
        )


@dataclass(frozen=True)
class SuitePlan:
    """A whole benchmark.

    Attributes:
        name: "quick", "full" or "smoke".
        precisions: of the models.
        closed, shares: the load points.
        systems: what is compared; CTranslate2 gets its settings from the sweep.
        seconds, open_seconds, warmup: of a run.
        sweep_seconds: of a run of the sweep.
        repetitions: runs of each system at each point, alternating.
        sweep: settings of CTranslate2 to try at every point.
        measure_capacity: search for CTranslate2's capacity (long trials) for the reference rate;
            otherwise its closed-loop throughput at the most users stands in, and the report says
            so.
    """

    name: str
    precisions: tuple[str, ...]
    closed: tuple[int, ...]
    shares: tuple[float, ...]
    systems: tuple[str, ...]
    seconds: float
    open_seconds: float
    warmup: float
    sweep_seconds: float
    repetitions: int
    sweep: tuple[dict[str, Any], ...]
    measure_capacity: bool

    @property
    def loads(self) -> list[Load]:
        """All load points."""
        closed = [Load(concurrency=count) for count in self.closed]
        return closed + [Load(share=share) for share in self.shares]


def sweep_settings(
    batches: tuple[int, ...], windows_ms: tuple[float, ...], isas: tuple[str, ...]
) -> tuple[dict[str, Any], ...]:
    """What to try of CTranslate2's: workers and threads (2,1) and (1,2), each with the rest."""
    return tuple(
        {"inter_threads": inter, "intra_threads": intra, "max_batch": batch, "window_ms": window}
        | ({"isa": isa} if isa else {})
        for inter, intra in ((2, 1), (1, 2))
        for batch in batches
        for window in windows_ms
        for isa in isas
    )


QUICK = SuitePlan(
    name="quick",
    precisions=("int8",),
    closed=(1, 8, 64),
    shares=(0.8,),
    systems=("dragoman", "ctranslate2"),
    seconds=20.0,
    open_seconds=30.0,
    warmup=3.0,
    sweep_seconds=5.0,
    repetitions=2,
    sweep=sweep_settings((64,), (0.0, 2.0), ("",)),
    measure_capacity=False,
)
FULL = SuitePlan(
    name="full",
    precisions=("int8", "fp32"),
    closed=(1, 4, 16, 64),
    shares=(0.25, 0.5, 0.8, 1.0, 1.5),
    systems=("dragoman", "ctranslate2", "static", "per-request"),
    seconds=30.0,
    open_seconds=60.0,
    warmup=5.0,
    sweep_seconds=10.0,
    repetitions=3,
    sweep=sweep_settings((8, 16, 32, 64), (0.0, 2.0, 5.0), ("", "AVX512")),
    measure_capacity=True,
)
SMOKE = SuitePlan(
    name="smoke",
    precisions=("int8",),
    closed=(2,),
    shares=(0.5,),
    systems=("dragoman", "ctranslate2", "static"),
    seconds=1.0,
    open_seconds=1.0,
    warmup=0.5,
    sweep_seconds=0.5,
    repetitions=1,
    sweep=sweep_settings((8,), (0.0,), ("",))[:1],
    measure_capacity=False,
)
PLANS = {plan.name: plan for plan in (QUICK, FULL, SMOKE)}


def own_system(name: str) -> System:
    """A system that is not swept: ours, with its defaults."""
    return System(name, {} if name == "dragoman" else {"max_batch": 64, "window_ms": 0.0})
