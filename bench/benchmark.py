"""Runs the measurements of a benchmark in order, and writes its report even after a failure.

`bench.suite.run`, `bench.engine.run` and `tests.robustness.soak.run` say what to measure and what
is required; `run_benchmark` does the rest. After an interruption, the same command resumes.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.console import Console

from bench.load.errors import LoadError
from bench.load.results import about_machine
from bench.recompute import REPORT_FILE, SUMMARY_FILE, write_report
from bench.server_process import ROOT, end_in_order_on_sigterm
from bench.suite.report import SUITE_FILE
from dragoman.results import TranslationError

console = Console(stderr=True, highlight=False)


class Interrupted(Exception):
    """Ctrl-C ended a run. The benchmark ends too, and repeats the run when it resumes."""


@dataclass(frozen=True)
class Measurement:
    """One part of a benchmark.

    Attributes:
        name: name for the terminal and the command line.
        measure: takes the measurement, unless its results exist.
    """

    name: str
    measure: Callable[[], object]


@dataclass(frozen=True)
class Conclusion:
    """The end of a benchmark.

    Attributes:
        lines: text lines for standard output.
        whole: whether nothing is left to measure.
    """

    lines: Sequence[str] = ()
    passed: bool = True
    whole: bool = True


def run_benchmark(
    name: str,
    output: Path | None,
    prepare: Callable[[Path], Sequence[Measurement]],
    conclude: Callable[[Path], Conclusion],
) -> None:
    """Measure, write the report, print the conclusion.

    Args:
        output: the run's folder; None for the newest of that name, see `run_directory`.
        conclude: judges the folder once all is measured and the summary is written.

    Raises:
        typer.Exit: 1 if something could not be measured or a requirement is not met, 130 after
            Ctrl-C or SIGTERM.
    """
    end_in_order_on_sigterm()
    directory = output or run_directory(name)
    directory.mkdir(parents=True, exist_ok=True)
    problems: list[str] = []
    _mark(directory, name, finished=False)
    try:
        problems += run_measurements(prepare(directory))
        _mark(directory, name, finished=False, problems=problems)
    except (Interrupted, KeyboardInterrupt):
        console.print("Interrupted. The same command resumes from here.")
        raise typer.Exit(130) from None
    except LoadError as exc:
        console.print(f"bench: {exc}", style="red", markup=False)
        raise typer.Exit(1) from None
    finally:
        if (directory / "runs").is_dir() or (directory / SUMMARY_FILE).exists():
            write_report(directory)
            console.print(f"Report: {directory / REPORT_FILE}", soft_wrap=True)
    found = conclude(directory)
    _mark(directory, name, finished=found.whole and not problems, problems=problems)
    for line in found.lines:
        typer.echo(line)
    if problems:
        typer.echo(f"{len(problems)} things could not be measured: see the report.", err=True)
    if problems or not found.passed:
        raise typer.Exit(1)


def run_measurements(measurements: Sequence[Measurement]) -> list[str]:
    """Make all measurements, even if one fails.

    Returns:
        A line for each measurement that failed, with the reason.

    Raises:
        Interrupted: by Ctrl-C.
    """
    began = time.monotonic()
    problems: list[str] = []
    for number, one in enumerate(measurements, 1):
        try:
            one.measure()
        except (LoadError, TranslationError, OSError, LookupError, ValueError) as exc:
            problems.append(f"{one.name}: {exc}")
            console.print(f"bench: {problems[-1]}", style="red", markup=False)
        took = format_duration(time.monotonic() - began)
        console.print(f"Done: {one.name}, {number} of {len(measurements)}, after {took}.")
    return problems


def machine_name() -> str:
    """The name of this machine for folders: its processor and the number of CPUs."""
    facts = about_machine()
    name = re.sub(r"[^a-z0-9]+", "-", f"{facts['processor']} {facts['cpus']}cpu".lower())
    return name.strip("-")


def run_directory(name: str) -> Path:
    """runs/bench/<date>-<machine>-<name>: the newest that is not finished, or a new one.

    The machine is named after its processor: a container's host name changes every day.
    """
    machine = machine_name()
    runs = ROOT / "runs" / "bench"
    for directory in sorted(runs.glob(f"*-{machine}-{name}"), reverse=True):
        file = directory / SUITE_FILE
        if file.exists() and not json.loads(file.read_text())["finished"]:
            return directory
    return runs / f"{time.strftime('%Y-%m-%d')}-{machine}-{name}"


def _mark(directory: Path, name: str, finished: bool, problems: Sequence[str] = ()) -> None:
    facts = {"suite": name, "finished": finished, "problems": list(problems)}
    (directory / SUITE_FILE).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def format_duration(seconds: float) -> str:
    """A duration in hours and minutes."""
    if seconds < 1:
        return "nothing"
    minutes = max(1, round(seconds / 60))
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"
