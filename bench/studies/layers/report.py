"""The report on layers: tables, fitted exponents, path lengths, and a plot for each figure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.studies import curves
from bench.studies.curves import Points

NAME = "layers"
KINDS = ("self-attention", "recurrent", "convolutional")


@dataclass(frozen=True)
class LayerCase:
    """One layer: its kind, the positions n and the width d of its input."""

    kind: str
    length: int
    d_model: int
    threads: int = 1
    repeats: int = 5


@dataclass(frozen=True)
class LayerCost:
    """Cost of a case: CPU seconds of its best pass, and memory beyond the weights."""

    case: LayerCase
    seconds: float
    peak_bytes: int


@dataclass(frozen=True)
class Signal:
    """The reach of a signal: the inputs that position n / 2 sees, and path lengths by n."""

    seen: int
    paths: Mapping[int, int]


FIGURES: Mapping[str, tuple[str, Callable[[LayerCost], float]]] = {
    "time": ("milliseconds", lambda cost: 1000 * cost.seconds),
    "memory": ("MiB", lambda cost: max(1.0, cost.peak_bytes / 2**20)),
}


def to_dict(
    costs: Mapping[str, Sequence[LayerCost]],
    about: Mapping[str, str],
    found: Mapping[str, Signal],
) -> dict[str, Any]:
    """The summary.

    Args:
        costs: costs by the size that grows, "n" or "d".
        about: lines for the head of the report.
    """
    return {
        "benchmark": NAME,
        "about": about,
        "costs": {name: [asdict(cost) for cost in of] for name, of in costs.items()},
        "signals": {kind: asdict(signal) for kind, signal in found.items()},
    }


def render(summary: Mapping[str, Any]) -> str:
    """The report of a summary, as Markdown."""
    lines = ["# Self-attention, recurrent and convolutional layers", ""]
    lines += [f"- {name}: {text}" for name, text in summary["about"].items()]
    lines.append("- Exponent: the slope of the logarithms over the larger half of the sizes.")
    for growing, figure, unit, series in _curves(summary):
        lines += ["", f"## {figure} against {growing}, in {unit}", ""]
        lines += curves.cost_table(series, growing, _fit_from(series))
        lines += ["", f"![{figure} against {growing}]({figure}-{growing}.svg)"]
    lines += ["", *path_table(summary["signals"])]
    return "\n".join(lines) + "\n"


def files(summary: Mapping[str, Any]) -> dict[str, str]:
    """The files of the report, by name."""
    return {"report.md": render(summary), **pictures(summary)}


def pictures(summary: Mapping[str, Any]) -> dict[str, str]:
    """The report's plots as SVG, by file name."""
    return {
        f"{figure}-{growing}.svg": curves.plot(
            series,
            f"One layer: {figure} against {growing}",
            (growing, unit),
            notes={k: f"{curves.exponent(p, _fit_from(series)):.2f}" for k, p in series.items()},
        )
        for growing, figure, unit, series in _curves(summary)
    }


def _curves(summary: Mapping[str, Any]) -> Iterator[tuple[str, str, str, dict[str, Points]]]:
    """The growing size, the figure, its unit, and points by kind."""
    for growing, of in summary["costs"].items():
        costs = [LayerCost(**{**cost, "case": LayerCase(**cost["case"])}) for cost in of]
        for figure, (unit, value) in FIGURES.items():
            yield growing, figure, unit, _series(costs, growing, value)


def _fit_from(series: Mapping[str, Points]) -> float:
    sizes = [x for x, _ in next(iter(series.values()))]
    return sizes[len(sizes) // 2]


def path_table(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A Markdown table of path lengths, and of the inputs that one layer sees."""
    lengths = list(next(iter(found.values()))["paths"])
    head = [f"n = {n}" for n in lengths]
    lines = [
        "## Path length",
        "",
        "Operations, each of which needs the one before, until the last of n positions depends on "
        "the input of the first; and the inputs on which the output at position n / 2 depends "
        f"after one layer, of n = {lengths[-1]}. Both are found by gradients.",
        "",
        "| layer | " + " | ".join(head) + " | inputs seen |",
        "| --- |" + " ---: |" * (len(lengths) + 1),
    ]
    for kind, signal in found.items():
        cells = [str(n) for n in (*signal["paths"].values(), signal["seen"])]
        lines.append(f"| {kind} | " + " | ".join(cells) + " |")
    return lines


def _series(
    costs: Sequence[LayerCost], growing: str, value: Callable[[LayerCost], float]
) -> dict[str, Points]:
    found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
    for cost in costs:
        size = cost.case.length if growing == "n" else cost.case.d_model
        found[cost.case.kind].append((size, value(cost)))
    return {kind: sorted(points) for kind, points in found.items() if points}
