"""Small charts as SVG: in a page of HTML, or in a file of their own.

Written by hand rather than drawn by matplotlib: a report is then one file of some 50 kB that needs
nothing from anywhere, its text can be selected, a page follows the reader's light or dark mode, and
neither training nor the load generator brings a plotting library along.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from html import escape

WIDTH, HEIGHT = 760, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 16, 12, 42
_LEGEND_WIDTH, _TITLE_HEIGHT = 220, 26
FILE_WIDTH, FILE_HEIGHT = WIDTH + _LEGEND_WIDTH, HEIGHT + _TITLE_HEIGHT

# Told apart without red and green.
COLOURS = ("#0072b2", "#e69f00", "#cc79a7", "#009e73", "#56b4e9", "#8c564b", "#444444")
_STYLE = """
.axis { stroke: #222; } .grid { stroke: #8884; } .line { fill: none; stroke-width: 1.6; }
line.limit { stroke: #cc3344; stroke-dasharray: 6 4; } text.limit { fill: #cc3344; }
.dashes { stroke-dasharray: 5 3; }
.dots { stroke-width: 6; stroke-linecap: round; fill: none; }
""" + "".join(f".c{n} {{ stroke: {colour}; }}\n" for n, colour in enumerate(COLOURS))

Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    """Points of one kind.

    Attributes:
        name: name in the legend.
        points: (x, y), ascending in x for a line.
        kind: "line", "dashes", "dots", or "steps" (a line that keeps its value until the next
            point).
        colour: a number; a page's style sheet has a colour for each of 0 to 4, a file for each
            of `COLOURS`.
    """

    name: str
    points: Sequence[Point]
    kind: str = "line"
    colour: int = 0


@dataclass(frozen=True)
class Chart:
    """Series on common axes.

    Attributes:
        series: series to draw; those without points are left out.
        log_x: a logarithmic x axis; all x are positive.
        log_y: a logarithmic y axis; values of 0 and below are then left out.
        from_zero: a linear y axis that has 0 on it.
        x_ticks: positions and texts, instead of numbers.
        lines_at: horizontal lines, by name: a latency target, a limit.
    """

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    log_x: bool = False
    log_y: bool = False
    from_zero: bool = True
    x_ticks: Sequence[tuple[float, str]] | None = None
    lines_at: Sequence[tuple[str, float]] = field(default_factory=tuple)

    def render(self) -> str:
        """The chart as a figure of HTML; says so if there is nothing to draw."""
        series = self._drawable()
        caption = f"<figcaption>{escape(self.title)}</figcaption>"
        if not series:
            return f"<figure>{caption}<p>No data.</p></figure>"
        start = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(self.title)}">'
        drawn = "".join(self._drawn(series))
        return f"<figure>{caption}{_legend(series)}{start}{drawn}</svg></figure>"

    def group(self) -> str:
        """The chart as a group of SVG, `FILE_WIDTH` by `FILE_HEIGHT`, with title and legend."""
        series = self._drawable()
        lines = [f'<text x="{_LEFT}" y="18" font-weight="bold">{escape(self.title)}</text>']
        for row, (name, colour) in enumerate({one.name: one.colour for one in series}.items()):
            y = _TITLE_HEIGHT + _TOP + 16 * row
            lines.append(
                f'<path class="dots c{colour}" d="M{WIDTH} {y + 4}h0"/>'
                f'<text x="{WIDTH + 10}" y="{y + 8}">{escape(name)}</text>'
            )
        drawn = self._drawn(series) if series else []
        lines += [f'<g transform="translate(0 {_TITLE_HEIGHT})">', *drawn, "</g>"]
        return "\n".join(lines)

    def _drawable(self) -> list[Series]:
        """The series without the points that an axis has no place for."""
        least = 0.0 if self.log_y else -math.inf
        kept = (
            replace(one, points=[(x, y) for x, y in one.points if least < y < math.inf])
            for one in self.series
        )
        return [one for one in kept if one.points]

    def _drawn(self, series: Sequence[Series]) -> list[str]:
        points = [point for one in series for point in one.points]
        xs, ys = [x for x, _ in points], [y for _, y in points]
        ys += [y for _, y in self.lines_at if y > 0 or not self.log_y]
        x_of = (_logarithmic if self.log_x else _linear)(min(xs), max(xs), _LEFT, WIDTH - _RIGHT)
        low, high = self._y_range(ys)
        y_of = (_logarithmic if self.log_y else _linear)(low, high, HEIGHT - _BOTTOM, _TOP)
        return [
            *self._axes(x_of, y_of, (min(xs), max(xs)), (low, high)),
            *(_horizontal(name, y_of(y)) for name, y in self.lines_at),
            *(_draw(one, x_of, y_of) for one in series),
        ]

    def _y_range(self, ys: Sequence[float]) -> Point:
        low, high = min(ys), max(ys)
        if self.log_y:
            return low / 1.2, high * 1.2
        if self.from_zero:
            return min(0.0, low), high * 1.05 or 1.0
        return low, high if high > low else low + 1.0

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


def charts_file(charts: Sequence[Chart]) -> str:
    """Charts below each other, as an SVG file."""
    groups = (
        f'<g transform="translate(0 {row * FILE_HEIGHT})">\n{chart.group()}\n</g>'
        for row, chart in enumerate(charts)
    )
    return svg_file(groups, FILE_WIDTH, len(charts) * FILE_HEIGHT)


def svg_file(parts: Iterable[str], width: int, height: int) -> str:
    """Elements of SVG on white, as a file with the style that charts need."""
    start = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        'font-family="system-ui, sans-serif" font-size="12">'
    )
    background = f'<style>{_STYLE}</style>\n<rect width="100%" height="100%" fill="white"/>'
    return "\n".join([start, background, *parts, "</svg>"]) + "\n"


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
    dashes = " dashes" if series.kind == "dashes" else ""
    return f'<path class="line{dashes} c{series.colour}" d="{path}"/>'


def _horizontal(name: str, y: float) -> str:
    return (
        f'<line class="limit" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text class="limit" x="{WIDTH - _RIGHT}" y="{y - 4:.1f}" text-anchor="end">'
        f"{escape(name)}</text>"
    )


def _legend(series: Sequence[Series]) -> str:
    items = "".join(f'<span class="c{one.colour}">{escape(one.name)}</span>' for one in series)
    return f'<div class="legend">{items}</div>'


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.6g}"
