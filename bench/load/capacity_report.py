"""The outcome of a search for the capacity: as a table, a plot, and files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from bench.load.capacity import Capacity
from bench.load.errors import ResultsError
from bench.load.html_report import page, table
from bench.load.results import REPORT_FILE
from bench.load.units import format_seconds
from model.evaluation.chart import Chart, Series

CAPACITY_FILE = "capacity.json"
HEADER = ["rate", "measured", "requests", "p50", "p99", "max", "errors", "promise"]


def sentence(capacity: Capacity) -> str:
    """The result in a sentence."""
    if capacity.rate is None:
        text = f"No rate was found that keeps {capacity.slo}."
    elif capacity.ended_early:
        text = f"Capacity at {capacity.slo}: at least {capacity.rate:.4g} requests/s."
    else:
        text = f"Capacity at {capacity.slo}: {capacity.rate:.4g} requests/s."
    if capacity.ended_early:
        text += f" The search was broken off: {capacity.ended_early}."
    return text


def rows(capacity: Capacity) -> list[list[str]]:
    """A row of text for each trial; see `HEADER`."""
    made = []
    for trial in capacity.trials:
        summary = trial.summary
        times = [summary.latency.at(50), summary.latency.at(99), summary.latency.max]
        made.append(
            [
                f"{trial.rate:.4g}/s",
                f"{summary.seconds:.0f} s",
                f"{summary.num_requests:,}",
                *("–" if value is None else format_seconds(value) for value in times),
                f"{summary.num_errors:,}",
                trial.verdict,
            ]
        )
    return made


def chart(capacity: Capacity) -> Chart:
    """Latency against offered rate."""
    trials = sorted(capacity.trials, key=lambda trial: trial.rate)
    series = []
    for colour, percentile in enumerate((50.0, 95.0, 99.0)):
        points = [
            (trial.rate, value * 1e3)
            for trial in trials
            if (value := trial.summary.latency.at(percentile)) is not None
        ]
        series.append(Series(f"p{percentile:g}", points, "line", colour))
    worst = [(t.rate, t.summary.latency.max * 1e3) for t in trials if t.summary.latency.max]
    series.append(Series("max", worst, "dots", 3))
    return Chart(
        "Latency against offered rate",
        "offered rate, requests/s",
        "latency, ms",
        series,
        log_y=True,
        lines_at=[(str(capacity.slo), capacity.slo.seconds * 1e3)],
    )


def write(directory: Path, capacity: Capacity, about: Mapping[str, Any]) -> None:
    """Write capacity.json and report.html beside the trials.

    Raises:
        ResultsError: the directory can't be written.
    """
    body = "\n".join(
        [
            f"<p><b>{escape(sentence(capacity))}</b> The highest Poisson rate that kept the "
            "promise, without an error. Trials that could not keep it any more ended early.</p>",
            chart(capacity).render(),
            table(rows(capacity), HEADER),
        ]
    )
    facts = {**capacity.to_dict(), "about": dict(about)}
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / CAPACITY_FILE).write_text(json.dumps(facts, indent=1) + "\n")
        (directory / REPORT_FILE).write_text(page("Capacity", body), encoding="utf-8")
    except OSError as exc:
        raise ResultsError(f"cannot write to {directory}: {exc.strerror or exc}") from exc
