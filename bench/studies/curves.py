"""Curves on logarithmic axes, and the power with which a cost grows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from model.evaluation.chart import COLOURS, Chart, Series, charts_file

Points = Sequence[tuple[float, float]]


def exponent(points: Points, fit_from: float) -> float:
    """The slope of log y over log x, by least squares: y grows like x to this power.

    Args:
        points: (x, y), both positive.
        fit_from: the smallest x that counts; all count where fewer than two are as large.

    Returns:
        The exponent; NaN with fewer than two points.
    """
    far = [point for point in points if point[0] >= fit_from]
    used = far if len(far) > 1 else points
    if len(used) < 2:
        return math.nan
    xs, ys = [math.log(x) for x, _ in used], [math.log(y) for _, y in used]
    return statistics.linear_regression(xs, ys).slope


def cost_table(series: Mapping[str, Points], size: str, fit_from: float) -> list[str]:
    """A Markdown table: a line for each size, a column for each series, and the exponents."""
    sizes = sorted({x for points in series.values() for x, _ in points})
    rows = [[size, *series], ["---:"] * (1 + len(series))]
    for x in sizes:
        cells = [dict(points).get(x) for points in series.values()]
        rows.append([f"{x:,}", *("" if y is None else f"{y:,.3g}" for y in cells)])
    fitted = (f"{exponent(points, fit_from):.2f}" for points in series.values())
    rows.append(["exponent", *fitted])
    return ["| " + " | ".join(row) + " |" for row in rows]


def plot(
    series: Mapping[str, Points],
    title: str,
    labels: tuple[str, str],
    *,
    notes: Mapping[str, str] | None = None,
    log_y: bool = True,
) -> str:
    """A chart with a logarithmic x axis as an SVG file.

    Args:
        series: points by name, ascending in x.
        labels: names of the x and the y axis.
        notes: notes behind the names, in brackets.
        log_y: a logarithmic y axis, too; or a linear one from zero.
    """
    drawn = [
        Series(
            f"{name} ({notes[name]})" if notes and name in notes else name,
            points,
            colour=number % len(COLOURS),
        )
        for number, (name, points) in enumerate(series.items())
    ]
    sizes = sorted({x for points in series.values() for x, _ in points})
    ticks = [(x, f"{x:,}") for x in sizes]
    return charts_file([Chart(title, *labels, drawn, log_x=True, log_y=log_y, x_ticks=ticks)])
