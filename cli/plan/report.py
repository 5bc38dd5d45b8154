"""A capacity plan as a table, as JSON, and as a picture of p99 against replicas."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.load.units import format_seconds
from cli.plan.planner import Demand, FleetEvaluation, ScenarioPlan
from cli.plan.replica import MeasuredReplica
from model.evaluation.chart import Chart, Series, charts_file

HEADER = ("scenario", "replicas", "cores", "memory", "load", "p50", "p99")
PRICES = ("an hour", "a month", "a million sentences")
_HOURS_IN_MONTH = 730.0


@dataclass(frozen=True)
class FleetCost:
    """Size and price of a fleet.

    Attributes:
        per_hour, per_month, per_million: price, in the currency of `--price`; per million
            sentences at the planned rate. None without a price.
    """

    cores: int
    memory_bytes: float
    per_hour: float | None
    per_month: float | None
    per_million: float | None


def cost_of(
    replicas: int, replica: MeasuredReplica, demand: Demand, core_hour: float | None
) -> FleetCost:
    """The size and price of this number of replicas."""
    cores = replicas * replica.cores
    hour = None if core_hour is None else cores * core_hour
    return FleetCost(
        cores,
        replicas * replica.memory_bytes,
        hour,
        None if hour is None else _HOURS_IN_MONTH * hour,
        None if hour is None else hour / (3600.0 * demand.rate) * 1e6,
    )


def table_rows(
    plans: Sequence[ScenarioPlan],
    replica: MeasuredReplica,
    demand: Demand,
    core_hour: float | None,
) -> list[tuple[str, ...]]:
    """The rows of the table, one for each scenario."""
    rows = []
    for plan in plans:
        chosen = plan.chosen
        cost = cost_of(chosen.replicas, replica, demand, core_hour)
        row = [plan.name, f"{chosen.replicas:,}", f"{cost.cores:,}", _gib(cost.memory_bytes)]
        row += [f"{chosen.load:.0%}", format_seconds(chosen.p50), format_seconds(chosen.p99)]
        if cost.per_hour is not None:
            prices = (cost.per_hour, cost.per_month, cost.per_million)
            row += [f"{price:,.2f}" for price in prices if price is not None]
        rows.append(tuple(row))
    return rows


def as_json(
    plans: Sequence[ScenarioPlan],
    replica: MeasuredReplica,
    demand: Demand,
    core_hour: float | None,
) -> dict[str, Any]:
    """The plan as plain JSON values; what is infinite or unknown is null."""
    return {
        "demand": asdict(demand),
        "replica": {
            "model": replica.model,
            "cores": replica.cores,
            "memory_bytes": replica.memory_bytes,
            "max_rate": replica.capacity(),
        },
        "replicas": max(plan.chosen.replicas for plan in plans),
        "scenarios": [
            {
                "scenario": plan.name,
                **_finite(plan.chosen),
                **asdict(cost_of(plan.chosen.replicas, replica, demand, core_hour)),
                "tried": [_finite(one) for one in plan.tried],
            }
            for plan in plans
        ],
    }


def picture(plans: Sequence[ScenarioPlan], demand: Demand) -> str:
    """The p99 of each scenario against the number of replicas, as an SVG file."""
    series = []
    for number, plan in enumerate(plans):
        points = [(one.replicas, one.p99) for one in plan.tried if math.isfinite(one.p99)]
        kept = [one for one in plan.tried if one.p99_most <= demand.p99_seconds]
        name = f"{plan.name}: {plan.chosen.replicas:,} replicas"
        series.append(Series(name, [(x, 1e3 * y) for x, y in points], colour=number))
        dots = [(one.replicas, 1e3 * one.p99) for one in kept[:1]]
        series.append(Series(name, dots, "dots", number))
    replicas = sorted({int(x) for one in series for x, _ in one.points})
    target = f"target {format_seconds(demand.p99_seconds)}"
    chart = Chart(
        f"p99 at {demand.rate:,g} sentences/s",
        "replicas",
        "p99, ms",
        series,
        log_y=True,
        x_ticks=[(x, str(x)) for x in _spaced(replicas)],
        lines_at=[(target, 1e3 * demand.p99_seconds)],
    )
    return charts_file([chart])


def _spaced(numbers: Sequence[int], most: int = 10) -> list[int]:
    """Some of the numbers, far enough from each other for a label each."""
    kept: list[int] = []
    for number in numbers:
        if not kept or number - kept[-1] >= (numbers[-1] - numbers[0]) / most:
            kept.append(number)
    return kept


def _finite(found: FleetEvaluation) -> dict[str, Any]:
    values = asdict(found)
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def _gib(size: float) -> str:
    return f"{size / 2**30:,.1f} GiB"
