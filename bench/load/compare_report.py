"""A comparison of two sides on the terminal."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench.load.compare import (
    CONFIDENCE,
    Difference,
    Measured,
    compare,
    different_loads,
    read_side,
)
from bench.load.units import format_seconds


def print_comparison(console: Console, a: Path, b: Path) -> list[Difference]:
    """Print and return the differences between the results in `a` and in `b`.

    Raises:
        ResultsError: either holds no results.
    """
    side_a, side_b = read_side(a), read_side(b)
    differences = compare([Measured.of(r) for r in side_a], [Measured.of(r) for r in side_b])
    names = ("", "A", "B", "B / A", f"B - A, {CONFIDENCE:.0%} interval", "verdict")
    table = Table(*names, box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for column in table.columns[:5]:
        column.no_wrap = True  # whole units at 80 columns; the verdict may take two lines
    for column in table.columns[1:5]:
        column.justify = "right"
    for one in differences:
        table.add_row(*row(one))
    console.print(Text(f"A: {a} ({len(side_a)} run(s)), B: {b} ({len(side_b)} run(s))"))
    console.print(table)
    if min(len(side_a), len(side_b)) < 3:
        console.print(
            "With fewer than three runs a side, what changes from one run to the next (the "
            "machine's mood) is not in the intervals: repeat the runs before you believe a small "
            "difference."
        )
    for results in (*side_a, *side_b):
        for problem in results.summary().problems:
            console.print(Text(f"NOT A VALID RUN among these: {problem}", style="bold red"))
    for difference in different_loads(side_a[0], side_b[0]):
        console.print(Text(f"Not the same load: {difference}", style="yellow"))
    return differences


def row(one: Difference) -> list[str]:
    """The cells of a difference."""
    form = format_seconds if one.name.startswith("latency") else _plain
    if not one.enough:
        return [one.name, form(one.a), form(one.b), "", "", "too few samples to say"]
    ratio = "" if one.ratio is None else f"{one.ratio:.3f}"
    interval = f"{form(one.low)} … {form(one.high)}"
    verdict = "differ" if one.beyond_noise else "within noise"
    return [one.name, form(one.a), form(one.b), ratio, interval, verdict]


def _plain(value: float) -> str:
    return f"{value:,.4g}"
