"""Makes a benchmark's report from its files: `python -m bench.recompute DIRECTORY`.

In a run's folder, the figures are computed from the raw samples and stored as `summary.json`; the
report is rendered from that file alone. In a report's folder, which has no raw samples, only the
report is rendered again.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from bench import search_parity
from bench.context import report as context
from bench.studies.layers import report as layers
from bench.studies.lengths import report as lengths
from bench.studies.trainings import report as trainings
from bench.suite import report
from tests.robustness.faults import report as faults
from tests.robustness.fuzz import report as fuzz
from tests.robustness.soak.report import SOAK, Soak
from tests.robustness.soak.report import render as render_soak

SUMMARY_FILE = "summary.json"
REPORT_FILE = "report.md"


# What is made of a summary, by its benchmark: the report as Markdown, and pictures as SVG by name.
_RENDER: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    SOAK: lambda summary: render_soak(Soak.from_dict(summary)),
    search_parity.NAME: lambda summary: search_parity.render(
        search_parity.SearchParity.from_dict(summary)
    ),
    context.NAME: context.render,
    faults.NAME: faults.render,
    fuzz.NAME: fuzz.render,
    layers.NAME: layers.render,
    lengths.NAME: lengths.render,
    trainings.NAME: trainings.render,
}
_PICTURES: Mapping[str, Callable[[Mapping[str, Any]], dict[str, str]]] = {
    layers.NAME: layers.pictures,
    lengths.NAME: lengths.pictures,
    trainings.NAME: trainings.pictures,
}


def render(summary: Mapping[str, Any]) -> dict[str, str]:
    """The files of a report by name: the report as Markdown, and its pictures."""
    name = summary["benchmark"]
    if name not in _RENDER:
        return {REPORT_FILE: report.render(report.SuiteFigures.from_dict(summary))}
    pictures = _PICTURES[name](summary) if name in _PICTURES else {}
    return {REPORT_FILE: _RENDER[name](summary), **pictures}


def write_report(directory: Path) -> None:
    """Write the report, and before that the summary if there are raw runs of a suite.

    Raises:
        OSError: there is neither a summary nor a run.
    """
    if (directory / "runs").is_dir():
        write_summary(directory, dataclasses.asdict(report.collect(directory)))
    for name, text in render(read_summary(directory)).items():
        (directory / name).write_text(text, encoding="utf-8")


def store(directory: Path, summary: Mapping[str, Any]) -> None:
    """Store a summary and its report in a folder, which is made if need be."""
    directory.mkdir(parents=True, exist_ok=True)
    write_summary(directory, summary)
    write_report(directory)


def write_summary(directory: Path, summary: Mapping[str, Any]) -> None:
    """Store a summary."""
    text = json.dumps(summary, indent=1, ensure_ascii=False) + "\n"
    (directory / SUMMARY_FILE).write_text(text, encoding="utf-8")


def read_summary(directory: Path) -> dict[str, Any]:
    """The summary that `write_summary` stored."""
    text = (directory / SUMMARY_FILE).read_text(encoding="utf-8")
    summary: dict[str, Any] = json.loads(text)
    return summary


def main(
    directory: Annotated[Path, typer.Argument(help="A run's folder, or one of bench/reports/.")],
    readme: Annotated[Path | None, typer.Option(help="A README to put the tables into.")] = None,
) -> None:
    """Recompute the summary and the report of a benchmark."""
    write_report(directory)
    if readme is not None:
        report.update_readme(readme, report.SuiteFigures.from_dict(read_summary(directory)))
    typer.echo(str(directory / REPORT_FILE))


if __name__ == "__main__":
    typer.run(main)
