"""Runs a benchmark: `python -m bench.suite.run quick`. Interrupted, it goes on where it stopped."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from bench.load.errors import LoadError
from bench.load.results import about_machine
from bench.suite import estimate
from bench.suite.artifacts import (
    SHIPPED_CHECKPOINT,
    SHIPPED_TEXTS,
    Artifacts,
    prepare_checkpoint,
    prepare_speed_model,
)
from bench.suite.cells import read_cells
from bench.suite.overload import verdicts
from bench.suite.points import PEER, PLANS, SuitePlan
from bench.suite.recompute import REPORT, SUITE_FILE, write_report
from bench.suite.reference import reference_rate
from bench.suite.suite import Interrupted, Suite, console
from bench.suite.systems import ROOT

WORK = ROOT / "build" / "bench"


@dataclass(frozen=True)
class Models:
    """What is measured, and where it is made.

    Attributes:
        work: where models are made.
        size: of the speed model: "base", or "small".
        checkpoint: a trained model to measure as well; None for the speed model alone.
        texts: for that, one a line.
    """

    work: Path = WORK
    size: str = "base"
    checkpoint: Path | None = SHIPPED_CHECKPOINT
    texts: Path = SHIPPED_TEXTS

    @property
    def names(self) -> list[str]:
        """Of the models, as results have them."""
        return [self.size] + ["shipped"] * (self.checkpoint is not None)

    def prepare(self, name: str, precision: str) -> Artifacts:
        """Make one ready, or find it made."""
        if name == self.size:
            return prepare_speed_model(self.work, precision, self.size)
        assert self.checkpoint is not None, "otherwise it has no name"
        return prepare_checkpoint(self.work, name, self.checkpoint, precision, self.texts)


def run_plan(plan: SuitePlan, output: Path, models: Models) -> None:
    """Measure what a plan holds and is not there yet, all models in all precisions.

    Raises:
        Interrupted: by Ctrl-C.
        LoadError: something could not be measured.
    """
    cells = [(model, precision) for precision in plan.precisions for model in models.names]
    left = [step for cell in cells for step in estimate.steps(plan, "-".join(cell))]
    console.print(f"{len(left)} steps, about {estimate.format_duration(estimate.total(left))}.")
    for model, precision in cells:
        suite = Suite(plan, output, models.prepare(model, precision))
        for loads in plan.searches:
            if PEER in plan.systems:
                suite.check_agreement(loads[0].beam_size)
                left = _told(left)
            for load in loads:
                named = f"{suite.name} {load.name}"
                rate = reference_rate(suite, load)
                while left[0].name != named:
                    left = _told(left)
                suite.measure(load, rate)
                left = _told(left)


def _told(left: Sequence[estimate.Step]) -> list[estimate.Step]:
    """Say that the first of the steps is done; the rest."""
    rest = list(left[1:])
    remaining = estimate.format_duration(estimate.total(rest))
    console.print(f"Done: {left[0].name}. Left: {len(rest)} steps, {remaining}.")
    return rest


def report_directory(name: str) -> Path:
    """bench/reports/<date>-<machine>-<name>: the newest that is not finished, or a new one.

    The machine goes by its processor: a container's host name is another one every day.
    """
    facts = about_machine()
    machine = re.sub(r"[^a-z0-9]+", "-", f"{facts['processor']} {facts['cpus']}cpu".lower())
    machine = machine.strip("-")
    reports = ROOT / "bench" / "reports"
    for directory in sorted(reports.glob(f"*-{machine}-{name}"), reverse=True):
        file = directory / SUITE_FILE
        if file.exists() and not json.loads(file.read_text())["finished"]:
            return directory
    return reports / f"{time.strftime('%Y-%m-%d')}-{machine}-{name}"


@contextlib.contextmanager
def reporting(
    directory: Path, name: str, is_whole: Callable[[], bool] = lambda: True
) -> Iterator[None]:
    """Mark a report as unfinished until the end of the context; write it whatever ends that.

    Args:
        directory: the report's.
        name: of the benchmark.
        is_whole: whether there is nothing left to measure, if it is not broken off.

    Raises:
        typer.Exit: instead of an interruption (130) or a LoadError (1).
    """
    directory.mkdir(parents=True, exist_ok=True)
    _mark(directory, name, finished=False)
    try:
        yield
        _mark(directory, name, finished=is_whole())
    except (Interrupted, KeyboardInterrupt):
        console.print("Interrupted. The same command goes on from here.")
        raise typer.Exit(130) from None
    except LoadError as exc:
        console.print(f"bench: {exc}", style="red", markup=False)
        raise typer.Exit(1) from None
    finally:
        write_report(directory)
        console.print(f"Report: {directory / REPORT}", soft_wrap=True)


def _mark(directory: Path, name: str, finished: bool) -> None:
    facts = {"suite": name, "finished": finished}
    (directory / SUITE_FILE).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def main(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(PLANS)}.")] = "quick",
    output: Annotated[
        Path | None, typer.Option(help="Default: bench/reports/<date>-<machine>-<name>.")
    ] = None,
    work: Annotated[Path, typer.Option(help="Where models are made.")] = WORK,
    checkpoint: Annotated[
        Path | None, typer.Option(help="A trained model to measure as well. Default: ours.")
    ] = None,
    source: Annotated[Path, typer.Option(help="Texts for it, one a line.")] = SHIPPED_TEXTS,
    size: Annotated[str, typer.Option(help="Of the speed model: base, or small.")] = "base",
) -> None:
    """Run a benchmark and write its report. Ctrl-C stops it; the same command goes on."""
    if name not in PLANS:
        raise typer.BadParameter(f"there is no benchmark {name!r}; there are {', '.join(PLANS)}")
    trained = checkpoint or (SHIPPED_CHECKPOINT if name == "full" else None)
    directory = output or report_directory(name)
    with reporting(directory, name):
        run_plan(PLANS[name], directory, Models(work, size, trained, source))
    if name == "overload":
        found = [one for cells in read_cells(directory).values() for one in verdicts(cells)]
        for verdict in found:
            typer.echo(str(verdict))
        if not all(verdict.kept for verdict in found):
            raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
