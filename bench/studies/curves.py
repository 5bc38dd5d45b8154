"""Curves against a size on logarithmic axes, and the power that a cost grows with."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape

from bench.load.svg import log_ticks

Points = Sequence[tuple[float, float]]

# Told apart without red and green.
_COLOURS = ("#444444", "#0072b2", "#e69f00", "#cc79a7", "#009e73", "#56b4e9", "#8c564b")
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 640, 400, 70, 130, 34, 46


def exponent(points: Points, fit_from: float) -> float:
    """The slope of log y over log x, by least squares: y grows like x to this power.

    Args:
        points: (x, y), both positive.
        fit_from: the smallest x that counts; all count where fewer than two are as large.

    Returns:
        Not a number where there are not two points at all.
    """
    far = [point for point in points if point[0] >= fit_from]
    used = far if len(far) > 1 else points
    if len(used) < 2:
        return math.nan
    xs, ys = [math.log(x) for x, _ in used], [math.log(y) for _, y in used]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    products = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    return products / sum((x - mean_x) ** 2 for x in xs)


def cost_table(series: Mapping[str, Points], size: str, fit_from: float) -> list[str]:
    """Markdown: a line a size, a column a series, and the exponents in the last line."""
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
        notes: what stands behind a name, in brackets.
        log_y: a logarithmic y axis, too; or a linear one from zero.
    """
    xs = [x for points in series.values() for x, _ in points]
    ys = [y for points in series.values() for _, y in points]
    x_of = _logarithmic(min(xs), max(xs), _LEFT, _WIDTH - _RIGHT)
    low, high = (min(ys) / 1.2, max(ys) * 1.2) if log_y else (0.0, max(ys) * 1.1 or 1.0)
    y_of = (_logarithmic if log_y else _linear)(low, high, _HEIGHT - _BOTTOM, _TOP)
    ticks = log_ticks(low, high) if log_y else [high * share / 4 for share in range(5)]
    parts = _frame(title, labels)
    for x in sorted(set(xs)):
        place = f'x="{x_of(x):.1f}" y="{_HEIGHT - _BOTTOM + 16}"'
        parts.append(f'<text {place} text-anchor="middle">{x:,}</text>')
    for y in ticks:
        parts.append(
            f'<path d="M{_LEFT} {y_of(y):.1f}H{_WIDTH - _RIGHT}" stroke="#dddddd"/>'
            f'<text x="{_LEFT - 6}" y="{y_of(y) + 4:.1f}" text-anchor="end">{y:.4g}</text>'
        )
    colours = {name: _COLOURS[i % len(_COLOURS)] for i, name in enumerate(series)}
    label_y = math.inf
    for name, points in sorted(series.items(), key=lambda item: item[1][-1][1]):
        path = "L".join(f"{x_of(x):.1f} {y_of(y):.1f}" for x, y in points)
        last_x, last_y = x_of(points[-1][0]), y_of(points[-1][1])
        label_y = min(last_y + 4, label_y - 14)  # labels of close lines stand above each other
        note = f" ({notes[name]})" if notes and name in notes else ""
        parts.append(
            f'<path d="M{path}" fill="none" stroke="{colours[name]}" stroke-width="2"/>'
            f'<text x="{last_x + 6:.1f}" y="{label_y:.1f}" fill="{colours[name]}">'
            f"{escape(name + note)}</text>"
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _frame(title: str, labels: tuple[str, str]) -> list[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="18" font-size="14">{escape(title)}</text>',
        f'<text x="{(_LEFT + right) / 2}" y="{_HEIGHT - 8}" text-anchor="middle">'
        f"{escape(labels[0])}</text>",
        f'<text transform="translate(16 {(_TOP + bottom) / 2}) rotate(-90)" '
        f'text-anchor="middle">{escape(labels[1])}</text>',
    ]


def _logarithmic(
    low: float, high: float, at_low: float, at_high: float
) -> Callable[[float], float]:
    span = math.log(high / low) or 1.0
    return lambda value: at_low + math.log(value / low) / span * (at_high - at_low)


def _linear(low: float, high: float, at_low: float, at_high: float) -> Callable[[float], float]:
    return lambda value: at_low + (value - low) / (high - low) * (at_high - at_low)
