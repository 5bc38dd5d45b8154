"""The report about costs by length: tables, fitted exponents, and a plot for each figure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from bench.studies import curves
from bench.studies.curves import Points
from bench.studies.lengths.measure import ENGINES, KINDS, LengthCase, LengthCost

NAME = "lengths"
_FIT_FROM = 2_048
"""Below it, what grows with the length itself (projections, feed-forward) hides the rest."""


def exponent(points: Points) -> float:
    """The power of the length that a cost grows with, from 2,048 tokens on (`curves.exponent`)."""
    return curves.exponent(points, _FIT_FROM)


def series_of(
    costs: Sequence[LengthCost], engine: str, value: Callable[[LengthCost], float]
) -> dict[str, Points]:
    """Points by kind, shortest first."""
    found: dict[str, list[tuple[float, float]]] = {}
    for cost in sorted(costs, key=lambda cost: cost.case.length):
        if cost.case.engine == engine:
            found.setdefault(cost.case.kind, []).append((cost.case.length, value(cost)))
    return {kind: found[kind] for kind in KINDS if kind in found}


def milliseconds(cost: LengthCost) -> float:
    """Duration of an encode in milliseconds."""
    return 1000 * cost.seconds


def mebibytes(cost: LengthCost) -> float:
    """Peak memory in MiB, at least 1: smaller growth of a process can't be measured."""
    return max(1.0, cost.peak_bytes / 2**20)


FIGURES = {"time": ("milliseconds", milliseconds), "memory": ("MiB", mebibytes)}


def to_dict(costs: Sequence[LengthCost], about: Mapping[str, str]) -> dict[str, Any]:
    """The summary: what was measured, and lines for the head of the report."""
    return {"benchmark": NAME, "about": about, "costs": [asdict(cost) for cost in costs]}


def render(summary: Mapping[str, Any]) -> str:
    """The report of a summary, as Markdown."""
    lines = ["# Cost of an encoder against the length of its source", ""]
    lines += [f"- {name}: {text}" for name, text in summary["about"].items()]
    lines.append(
        f"- Exponent: the slope of the logarithms from {_FIT_FROM:,} tokens on. Empty cells were "
        f"left out, since they would have taken too much time or memory."
    )
    for engine, figure, unit, series in _curves(summary):
        lines += ["", f"## {engine}: {figure} in {unit}", ""]
        lines += curves.cost_table(series, "tokens", _FIT_FROM)
        lines += ["", f"![{engine}: {figure}]({engine}-{figure}.svg)"]
    return "\n".join(lines) + "\n"


def files(summary: Mapping[str, Any]) -> dict[str, str]:
    """The files of the report, by name."""
    return {"report.md": render(summary), **pictures(summary)}


def pictures(summary: Mapping[str, Any]) -> dict[str, str]:
    """The report's plots as SVG, by file name: the exponents stand behind the names of curves."""
    return {
        f"{engine}-{figure}.svg": curves.plot(
            series,
            f"{engine}: {figure} of an encode",
            ("tokens", unit),
            notes={kind: f"{exponent(points):.2f}" for kind, points in series.items()},
        )
        for engine, figure, unit, series in _curves(summary)
    }


def _curves(summary: Mapping[str, Any]) -> Iterator[tuple[str, str, str, dict[str, Points]]]:
    """Engine, figure, unit, and points by kind."""
    costs = [
        LengthCost(**{**cost, "case": LengthCase(**cost["case"])}) for cost in summary["costs"]
    ]
    for engine in ENGINES:
        for figure, (unit, value) in FIGURES.items():
            if series := series_of(costs, engine, value):
                yield engine, figure, unit, series
