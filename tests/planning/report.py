"""The report of `dragoman plan` beside what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NAME = "plan"
POINTS = ("p50", "p99", "throughput")
LIMIT = 0.2
"""Largest relative difference."""
MOST_OTHER = 0.1
"""Cores that other programs may take, for a measurement that counts."""


def error_of(simulated: float, measured: float) -> float:
    """The relative difference of a simulated figure from the measured one."""
    return simulated / measured - 1.0


def files(summary: Mapping[str, Any]) -> dict[str, str]:
    """The files of the report, by name."""
    return {"report.md": render(summary)}


def render(summary: Mapping[str, Any]) -> str:
    """The report of a summary, as Markdown."""
    points = summary["points"]
    most = max(abs(error) for point in points for error in point["errors"].values())
    failed = sum(point["failed"] for point in points)
    disturbed = sum(point["other_cores"] > MOST_OTHER for point in points)
    replica = summary["replica"]
    command = "python -m tests.planning.run"
    if summary["about"]["bundle"] == "prescribed":
        command += " --prescribed"
    lines = [
        "# Planned and measured",
        "",
        *(f"- {name}: {value}" for name, value in summary["about"].items()),
        f"- replica: at most {summary['max_rate']:.1f} sentences/s; a step of n rows "
        f"takes {1e3 * replica['step_base']:.2f} + {1e3 * replica['step_row']:.3f} n ms, an "
        f"encode of n tokens {1e3 * replica['encode_base']:.2f} + "
        f"{1e3 * replica['encode_token']:.3f} n ms, a call {1e3 * replica['call_seconds']:.2f} ms",
        "",
        f"`{command}`: the largest difference is {most:.0%}; "
        f"{LIMIT:.0%} is the limit. Times in milliseconds, measured and simulated; the same calls "
        "are simulated. The last column is the number of cores that other programs took: "
        f"{disturbed} of {len(points)} measurements were disturbed by more than {MOST_OTHER:g}. "
        f"{failed} calls failed, and were not simulated.",
        "",
        "| replicas | load | calls/s | calls | p50 | | | p99 | | | throughput | | | other |",
        f"|{' ---: |' * 14}",
    ]
    for point in points:
        cells = [f"{point['replicas']}", f"{point['load']:.0%}", f"{point['rate']:.1f}"]
        cells.append(f"{point['calls']:,}")
        for name in POINTS:
            factor = 1.0 if name == "throughput" else 1e3
            cells += [f"{factor * point[kind][name]:.1f}" for kind in ("measured", "simulated")]
            cells.append(f"{point['errors'][name]:+.0%}")
        cells.append(f"{point['other_cores']:.1f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
