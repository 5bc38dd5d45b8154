"""The report about costs by length: tables, fitted exponents, and a plot for each figure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape

from bench.lengths.measure import ENGINES, KINDS, LengthCost
from bench.load.svg import log_ticks

Points = list[tuple[int, float]]

_FIT_FROM = 2_048
"""Below it, what grows with the length itself (projections, feed-forward) hides the rest."""
_COLOURS = ("#444444", "#0072b2", "#e69f00", "#cc79a7", "#009e73")  # told apart without red, green
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 640, 400, 70, 110, 34, 46


def exponent(points: Points) -> float:
    """The slope of log y over log n, by least squares: y grows like n to this power.

    Over the lengths from 2,048 on, or over all where there are not two of these; not a number where
    there are not two at all.
    """
    far = [point for point in points if point[0] >= _FIT_FROM]
    used = far if len(far) > 1 else points
    if len(used) < 2:
        return math.nan
    xs, ys = [math.log(n) for n, _ in used], [math.log(y) for _, y in used]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    products = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    return products / sum((x - mean_x) ** 2 for x in xs)


def series_of(
    costs: Sequence[LengthCost], engine: str, value: Callable[[LengthCost], float]
) -> dict[str, Points]:
    """Points by kind, shortest first."""
    found: dict[str, Points] = {}
    for cost in sorted(costs, key=lambda cost: cost.case.length):
        if cost.case.engine == engine:
            found.setdefault(cost.case.kind, []).append((cost.case.length, value(cost)))
    return {kind: found[kind] for kind in KINDS if kind in found}


def milliseconds(cost: LengthCost) -> float:
    """Of an encode."""
    return 1000 * cost.seconds


def mebibytes(cost: LengthCost) -> float:
    """At the peak; at least one, which the growth of the process can't tell from none."""
    return max(1.0, cost.peak_bytes / 2**20)


FIGURES = {"time": ("milliseconds", milliseconds), "memory": ("MiB", mebibytes)}


def markdown(costs: Sequence[LengthCost], about: Mapping[str, str]) -> str:
    """The report."""
    lines = ["# Cost of an encoder against the length of its source", ""]
    lines += [f"- {name}: {text}" for name, text in about.items()]
    lines.append(
        f"- Exponent: the slope of the logarithms from {_FIT_FROM:,} tokens on. Empty cells were "
        f"left out, since they would have taken too much time or memory."
    )
    for engine in ENGINES:
        for figure, (unit, value) in FIGURES.items():
            series = series_of(costs, engine, value)
            if not series:
                continue
            lines += ["", f"## {engine}: {figure} in {unit}", "", *_table(series)]
            lines += ["", f"![{engine}: {figure}]({engine}-{figure}.svg)"]
    return "\n".join(lines) + "\n"


def _table(series: Mapping[str, Points]) -> list[str]:
    lengths = sorted({n for points in series.values() for n, _ in points})
    rows = [["tokens", *series], ["---:"] * (1 + len(series))]
    for length in lengths:
        cells = [dict(points).get(length) for points in series.values()]
        rows.append([f"{length:,}", *("" if y is None else f"{y:,.3g}" for y in cells)])
    rows.append(["exponent", *(f"{exponent(points):.2f}" for points in series.values())])
    return ["| " + " | ".join(row) + " |" for row in rows]


def plot(series: Mapping[str, Points], title: str, unit: str) -> str:
    """A chart with two logarithmic axes as an SVG file."""
    xs = [n for points in series.values() for n, _ in points]
    ys = [y for points in series.values() for _, y in points]
    x_of = _scale(min(xs), max(xs), _LEFT, _WIDTH - _RIGHT)
    low, high = min(ys) / 1.2, max(ys) * 1.2
    y_of = _scale(low, high, _HEIGHT - _BOTTOM, _TOP)
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="18" font-size="14">{escape(title)}</text>',
        f'<text x="{(_LEFT + right) / 2}" y="{_HEIGHT - 8}" text-anchor="middle">tokens</text>',
        f'<text transform="translate(16 {(_TOP + bottom) / 2}) rotate(-90)" '
        f'text-anchor="middle">{escape(unit)}</text>',
    ]
    for x in sorted(set(xs)):
        parts.append(f'<text x="{x_of(x):.1f}" y="{bottom + 16}" text-anchor="middle">{x:,}</text>')
    for y in log_ticks(low, high):
        parts.append(
            f'<path d="M{_LEFT} {y_of(y):.1f}H{right}" stroke="#dddddd"/>'
            f'<text x="{_LEFT - 6}" y="{y_of(y) + 4:.1f}" text-anchor="end">{y:g}</text>'
        )
    label_y = math.inf
    for kind, points in sorted(series.items(), key=lambda item: item[1][-1][1]):
        colour = _COLOURS[KINDS.index(kind)]
        path = "L".join(f"{x_of(n):.1f} {y_of(y):.1f}" for n, y in points)
        last_x, last_y = x_of(points[-1][0]), y_of(points[-1][1])
        label_y = min(last_y + 4, label_y - 14)  # labels of close lines stand above each other
        parts.append(
            f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
            f'<text x="{last_x + 6:.1f}" y="{label_y:.1f}" fill="{colour}">{kind} '
            f"({exponent(points):.2f})</text>"
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _scale(low: float, high: float, at_low: float, at_high: float) -> Callable[[float], float]:
    span = math.log(high / low) or 1.0
    return lambda value: at_low + math.log(value / low) / span * (at_high - at_low)
