"""Small charts as inline SVG.

Written by hand rather than drawn by matplotlib: a report is then one file of some 50 kB that needs
nothing from anywhere, its text can be selected, it follows the reader's light or dark mode, and the
load generator does not bring a plotting library along.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH, HEIGHT = 760, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 16, 12, 42

Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    """Points of one kind.

    Attributes:
        name: for the legend.
        points: (x, y), ascending in x for a line.
        kind: "line", "dots", or "steps" (a line that keeps its value until the next point).
        colour: a number; the style sheet has a colour for each of 0 to 4.
    """

    name: str
    points: Sequence[Point]
    kind: str = "line"
    colour: int = 0


@dataclass(frozen=True)
class Chart:
    """Series on common axes.

    Attributes:
        series: what is drawn; those without points are left out.
        log_y: a logarithmic y axis; values of 0 and below are then left out.
        x_ticks: positions and texts, instead of numbers.
        lines_at: horizontal lines, by name: a latency target, a limit.
    """

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    log_y: bool = False
    x_ticks: Sequence[tuple[float, str]] | None = None
    lines_at: Sequence[tuple[str, float]] = field(default_factory=tuple)

    def render(self) -> str:
        """The chart as a figure of HTML; says so if there is nothing to draw."""
        series = [self._drawable(one) for one in self.series]
        points = [point for one in series for point in one.points]
        caption = f"<figcaption>{escape(self.title)}</figcaption>"
        if not points:
            return f"<figure>{caption}<p>No data.</p></figure>"
        xs, ys = [x for x, _ in points], [y for _, y in points]
        ys += [y for _, y in self.lines_at if y > 0 or not self.log_y]
        x_of = _linear(min(xs), max(xs), _LEFT, WIDTH - _RIGHT)
        low, high = _y_range(ys, self.log_y)
        y_of = (_logarithmic if self.log_y else _linear)(low, high, HEIGHT - _BOTTOM, _TOP)
        parts = [
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(self.title)}">',
            *self._axes(x_of, y_of, (min(xs), max(xs)), (low, high)),
            *(_horizontal(name, y_of(y)) for name, y in self.lines_at),
            *(_draw(one, x_of, y_of) for one in series),
            "</svg>",
        ]
        return f"<figure>{caption}{_legend(series)}{''.join(parts)}</figure>"

    def _drawable(self, series: Series) -> Series:
        points = [(x, y) for x, y in series.points if not self.log_y or y > 0]
        return Series(series.name, points, series.kind, series.colour)

    def _axes(
        self,
        x_of: Callable[[float], float],
        y_of: Callable[[float], float],
        x_range: Point,
        y_range: Point,
    ) -> list[str]:
        ticks = self.x_ticks
        if ticks is None:
            ticks = [(x, _number(x)) for x in nice_ticks(*x_range)]
        bottom = HEIGHT - _BOTTOM
        parts = [
            f'<line class="axis" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{bottom}" y2="{bottom}"/>'
        ]
        for x, text in ticks:
            parts.append(
                f'<text x="{x_of(x):.1f}" y="{bottom + 16}" text-anchor="middle">'
                f"{escape(text)}</text>"
            )
        for y in log_ticks(*y_range) if self.log_y else nice_ticks(*y_range):
            parts.append(
                f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" '
                f'y1="{y_of(y):.1f}" y2="{y_of(y):.1f}"/>'
                f'<text x="{_LEFT - 6}" y="{y_of(y) + 4:.1f}" text-anchor="end">{_number(y)}</text>'
            )
        middle = (_TOP + bottom) / 2
        parts.append(
            f'<text x="{(_LEFT + WIDTH - _RIGHT) / 2}" y="{HEIGHT - 6}" text-anchor="middle">'
            f"{escape(self.x_label)}</text>"
            f'<text transform="translate(14 {middle}) rotate(-90)" text-anchor="middle">'
            f"{escape(self.y_label)}</text>"
        )
        return parts


def nice_ticks(low: float, high: float, count: int = 6) -> list[float]:
    """About `count` round numbers from `low` to `high`."""
    if high <= low:
        return [low]
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten from `low` to `high`, with 2 and 5 between them where there are few."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if len(decades) <= 4 else (1,)
    ticks = [factor * 10.0**decade for decade in decades for factor in factors]
    return [tick for tick in ticks if low * 0.999 <= tick <= high * 1.001]


def thin(points: Sequence[Point], most: int) -> list[Point]:
    """At most about `most` of the points, the highest of each stretch of x among them.

    Leaving points out at random would lose the outliers, which are what one looks for.
    """
    if len(points) <= most:
        return list(points)
    width = math.ceil(2 * len(points) / most)
    kept = []
    for start in range(0, len(points), width):
        stretch = points[start : start + width]
        highest = max(range(len(stretch)), key=lambda index: stretch[index][1])
        kept += [stretch[index] for index in sorted({0, highest})]
    return kept


def _y_range(ys: Sequence[float], log: bool) -> Point:
    low, high = min(ys), max(ys)
    if log:
        return low / 1.2, high * 1.2
    return min(0.0, low), high * 1.05 or 1.0


def _linear(low: float, high: float, at_low: float, at_high: float) -> Callable[[float], float]:
    span = (high - low) or 1.0
    return lambda value: at_low + (value - low) / span * (at_high - at_low)


def _logarithmic(
    low: float, high: float, at_low: float, at_high: float
) -> Callable[[float], float]:
    inner = _linear(math.log10(low), math.log10(high), at_low, at_high)
    return lambda value: inner(math.log10(value))


def _draw(series: Series, x_of: Callable[[float], float], y_of: Callable[[float], float]) -> str:
    places = [(x_of(x), y_of(y)) for x, y in series.points]
    if series.kind == "dots":
        # One path for all: a zero-length stroke with round caps is a dot.
        path = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in places)
        return f'<path class="dots c{series.colour}" d="{path}"/>'
    if series.kind == "steps":
        path = "".join(
            f"{'H' if i else 'M'}{x:.1f}{'V' if i else ' '}{y:.1f}"
            for i, (x, y) in enumerate(places)
        )
    else:
        path = "".join(f"{'L' if i else 'M'}{x:.1f} {y:.1f}" for i, (x, y) in enumerate(places))
    return f'<path class="line c{series.colour}" d="{path}"/>'


def _horizontal(name: str, y: float) -> str:
    return (
        f'<line class="limit" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text class="limit" x="{WIDTH - _RIGHT}" y="{y - 4:.1f}" text-anchor="end">'
        f"{escape(name)}</text>"
    )


def _legend(series: Sequence[Series]) -> str:
    drawn = [one for one in series if one.points]
    items = "".join(f'<span class="c{one.colour}">{escape(one.name)}</span>' for one in drawn)
    return f'<div class="legend">{items}</div>'


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.6g}"
