"""Makes a benchmark's report from its files: `python -m bench.recompute DIRECTORY`.

In a run's folder, the figures are computed from the raw samples and stored as `summary.json`; the
report is rendered from that file alone. In a report's folder, which has no raw samples, only the
report is rendered again.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

SUMMARY_FILE = "summary.json"
REPORT_FILE = "report.md"

# The module that renders a benchmark's summary: its function `files` returns the files of the
# report by name. Loaded by name, since benchmarks import this module to store what they measured.
_RENDERERS = {
    "faults": "tests.robustness.faults.report",
    "gpu": "bench.gpu.report",
    "fuzz": "tests.robustness.fuzz.report",
    "kept": "bench.kept",
    "layers": "bench.studies.layers.report",
    "lengths": "bench.studies.lengths.report",
    "plan": "tests.planning.report",
    "scale": "bench.engine.scale_report",
    "sleeping-memory": "bench.sleeping_memory",
    "soak": "tests.robustness.soak.report",
    "students": "bench.students",
    "timeline": "bench.engine.timeline",
    "trainings": "bench.studies.trainings.report",
}
_SUITE = "bench.suite.report"
RETIRED = ("context", "search-parity")
"""Benchmarks without code: their reports are kept as they were written."""


def render(summary: Mapping[str, Any]) -> dict[str, str]:
    """The files of a report by name: the report as Markdown, and its pictures."""
    renderer = importlib.import_module(_RENDERERS.get(summary["benchmark"], _SUITE))
    files: dict[str, str] = renderer.files(summary)
    return files


def write_report(directory: Path) -> None:
    """Write the report, and before that the summary if there are raw runs of a suite.

    Raises:
        OSError: there is neither a summary nor a run.
    """
    if (directory / "runs").is_dir():
        from bench.suite import report

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
        from bench.suite import report

        report.update_readme(readme, report.SuiteFigures.from_dict(read_summary(directory)))
    typer.echo(str(directory / REPORT_FILE))


if __name__ == "__main__":
    typer.run(main)
