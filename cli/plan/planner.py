"""Finds the number of replicas for a latency target: steady, in a restart, without a zone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from bench.load.arrivals import arrival_times
from bench.load.units import format_seconds
from cli.plan.replica import MeasuredReplica
from cli.plan.simulation import FleetEvent, FleetSimulation, Routing, SimulatedRun, Traffic

STEADY, RESTART, ZONE, SURGE = "steady", "rolling restart", "zone lost", "surge"
SEEDS = 5
# One-sided 95 % quantile of Student's t distribution with four degrees of freedom.
_T_QUANTILE = 2.132
_PERCENTILE = 99.0
# A larger fleet is simulated as a slice of this many replicas with their share of the calls.
_SLICE = 24
_MIN_CALLS, _MAX_CALLS, _MIN_SECONDS = 4_000, 15_000, 10.0
# A p99 this many times the target in one run needs no further seeds.
_HOPELESS = 1.5
_WARM_SENTENCES = 5.0
_ZONES = 3
_MOST_TIMES = 64
# Of large fleets, the number is found to within this share: 1 %.
_RESOLUTION = 100


class UnreachableError(Exception):
    """No number of replicas meets the target. The message may be shown to users."""


@dataclass(frozen=True)
class Demand:
    """The rate, the target and the conditions of a plan.

    Attributes:
        rate: sentences a second.
        p99_seconds: the target for the 99th percentile of the latency.
        burstiness: variance of the gaps between calls over their squared mean; 1 is Poisson.
        routing: rule by which the balancer chooses a replica.
        scale_seconds: time from an event until the replicas started for it serve.
        surge: factor of the rate in the scenario "surge"; 1 leaves it out.
    """

    rate: float
    p99_seconds: float
    burstiness: float = 1.0
    routing: Routing = "least-request"
    scale_seconds: float = 60.0
    surge: float = 1.0

    @property
    def scenarios(self) -> tuple[str, ...]:
        """Names of the scenarios."""
        return (STEADY, RESTART, ZONE) if self.surge == 1.0 else (STEADY, RESTART, ZONE, SURGE)


@dataclass(frozen=True)
class FleetEvaluation:
    """A number of replicas in a scenario.

    Attributes:
        load: offered rate by what these replicas can answer at most, without an event.
        p50, p99: seconds, means over the seeds; infinite if too many calls are refused.
        p99_most: upper bound of the mean p99, with 95 % confidence.
        refused: share of the calls that are refused.
    """

    replicas: int
    load: float
    p50: float
    p99: float
    p99_most: float
    refused: float


@dataclass(frozen=True)
class ScenarioPlan:
    """The smallest number of replicas for a scenario, and all numbers that were tried."""

    name: str
    chosen: FleetEvaluation
    tried: tuple[FleetEvaluation, ...]


@dataclass
class FleetPlanner:
    """Searches the smallest number of replicas for each scenario.

    Args:
        report: function that is called with a line about each scenario.
    """

    replica: MeasuredReplica
    demand: Demand
    seed: int = 0
    report: Callable[[str], None] = lambda _: None
    _known: dict[tuple[str, int], FleetEvaluation] = field(default_factory=dict)

    def plan(self) -> list[ScenarioPlan]:
        """The plan of each scenario.

        Raises:
            UnreachableError: no number of replicas meets the target.
        """
        fastest = self.fastest_seconds()
        if fastest > self.demand.p99_seconds:
            raise UnreachableError(
                f"--p99: {format_seconds(self.demand.p99_seconds)} can't be reached with any "
                f"number of replicas, since an idle one has a p99 of {format_seconds(fastest)}"
            )
        return [self._plan_scenario(name) for name in self.demand.scenarios]

    def fastest_seconds(self) -> float:
        """The 99th percentile of the latency on idle replicas."""
        alone = [self.replica.idle_seconds(*lengths) for lengths in self.replica.lengths]
        return float(np.percentile(alone, _PERCENTILE, method="higher"))

    def _plan_scenario(self, name: str) -> ScenarioPlan:
        least = max(1, math.ceil(self.demand.rate / self.replica.capacity()))
        failing, step, number = least - 1, max(1, least // 8), least
        while not self._holds(name, number):
            if number > _MOST_TIMES * least:
                raise UnreachableError(
                    f"--p99: with {number} replicas, the p99 is still too long in the scenario "
                    f"{name!r}: the target is too close to the p99 of an idle replica"
                )
            failing, number, step = number, number + step, 2 * step
        while number - failing > max(1, number // _RESOLUTION):
            middle = (failing + number) // 2
            if self._holds(name, middle):
                number = middle
            else:
                failing = middle
        # Neighbours, for the picture.
        for neighbour in {number + 1, number + max(1, number // 8), number + max(2, number // 4)}:
            self.evaluate(name, neighbour)
        tried = sorted(
            (found for (of, _), found in self._known.items() if of == name),
            key=lambda found: found.replicas,
        )
        chosen = self.evaluate(name, number)
        self.report(f"{name}: {number} replicas, p99 {format_seconds(chosen.p99)}")
        return ScenarioPlan(name, chosen, tuple(tried))

    def _holds(self, name: str, replicas: int) -> bool:
        return self.evaluate(name, replicas).p99_most <= self.demand.p99_seconds

    def evaluate(self, name: str, replicas: int) -> FleetEvaluation:
        """Simulate a scenario with this number of replicas, once for each seed."""
        if (name, replicas) not in self._known:
            self._known[name, replicas] = self._evaluate(name, replicas)
        return self._known[name, replicas]

    def _evaluate(self, name: str, replicas: int) -> FleetEvaluation:
        p50s, p99s, refused = [], [], []
        for seed in range(self.seed, self.seed + SEEDS):
            run, start, end = self.simulate(name, replicas, seed)
            p50s.append(run.percentile(50.0, start, end))
            p99s.append(run.percentile(_PERCENTILE, start, end))
            refused.append(run.num_refused / len(run.times))
            if p99s[-1] > _HOPELESS * self.demand.p99_seconds:
                break
        p99, spread = float(np.mean(p99s)), 0.0
        if math.isfinite(p99) and len(p99s) == SEEDS:
            spread = _T_QUANTILE * float(np.std(p99s, ddof=1)) / math.sqrt(SEEDS)
        return FleetEvaluation(
            replicas,
            self.demand.rate / (replicas * self.replica.capacity()),
            float(np.mean(p50s)),
            p99,
            p99 + spread,
            float(np.mean(refused)),
        )

    def simulate(self, name: str, replicas: int, seed: int) -> tuple[SimulatedRun, float, float]:
        """Simulate once; returns the run, and the beginning and end of the measured time."""
        demand, replica = self.demand, self.replica
        simulated = min(replicas, _SLICE)
        rate = demand.rate * simulated / replicas
        full = replica.max_rows / replica.capacity()
        warm = _WARM_SENTENCES * max(full, self.fastest_seconds())
        counted = max(_MIN_CALLS / rate, _MIN_SECONDS)
        factor = demand.surge if name == SURGE else 1.0
        back = warm + demand.scale_seconds
        events: list[FleetEvent] = []
        if name == RESTART:
            events = _restarts(simulated, warm, counted)
        elif name == ZONE:
            lost = range(math.ceil(simulated / _ZONES))
            events = [FleetEvent(warm, number, "lose") for number in lost]
            events += [FleetEvent(back, number, "join") for number in lost]
        elif name == SURGE:
            more = range(simulated, math.ceil(factor * simulated))
            events = [FleetEvent(back, number, "join") for number in more]
        if name in (ZONE, SURGE):  # without the replicas that come later, and with them
            counted = max(counted, 2 * demand.scale_seconds)
        counted = min(counted, _MAX_CALLS / (factor * rate))
        times = self._arrivals(rate, warm, counted, seed, factor)
        traffic = Traffic.draw(times, replica.lengths, seed)
        fleet = FleetSimulation(replica, simulated, routing=demand.routing, seed=seed)
        return fleet.run(traffic, events), warm, warm + counted

    def _arrivals(
        self, rate: float, warm: float, counted: float, seed: int, factor: float
    ) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        burstiness = self.demand.burstiness
        before = arrival_times("gamma", rate, warm, seed=seed, burstiness=burstiness)
        after = arrival_times(
            "gamma", factor * rate, counted, seed=seed + 1_000_003, burstiness=burstiness
        )
        return np.concatenate((before, warm + after))


def _restarts(replicas: int, start: float, seconds: float) -> list[FleetEvent]:
    """One replica after another drains and comes back, without a pause."""
    each = seconds / replicas
    return [
        event
        for number in range(replicas)
        for event in (
            FleetEvent(start + number * each, number, "drain"),
            FleetEvent(start + (number + 1) * each, number, "join"),
        )
    ]
