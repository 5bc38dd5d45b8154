"""Runs a benchmark: `python -m bench.suite.run quick`. Interrupted, it goes on where it stopped."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from bench.load.errors import LoadError
from bench.load.results import about_machine
from bench.recompute import REPORT_FILE, read_summary, write_report
from bench.suite import estimate
from bench.suite.artifacts import (
    SHIPPED_CHECKPOINT,
    SHIPPED_TEXTS,
    Artifacts,
    prepare_checkpoint,
    prepare_speed_model,
)
from bench.suite.overload import criteria
from bench.suite.points import FULL, PEER, PLANS, THOROUGH, Load, SuitePlan
from bench.suite.reference import reference_rate
from bench.suite.report import SUITE_FILE, SuiteFigures
from bench.suite.suite import Interrupted, Suite, console
from bench.suite.systems import ROOT, end_in_order_on_sigterm
from dragoman.results import TranslationError

WORK = ROOT / "build" / "bench"
_PACE_SECONDS = 300.0
_MOST_PACE = 2.0


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


def run_plan(plan: SuitePlan, output: Path, models: Models) -> list[str]:
    """Measure what a plan holds and is not there yet, all models in all precisions.

    What can't be measured is told and passed over: the rest is worth having.

    Returns:
        What could not be measured, and why.

    Raises:
        Interrupted: by Ctrl-C.
        LoadError: a model could not be made.
    """
    cells = [(model, precision) for precision in plan.precisions for model in models.names]
    progress = Progress(
        [step for cell in cells for step in estimate.steps(plan, cell, is_first=cell == cells[0])],
        plan.budget_seconds,
    )
    problems: list[str] = []
    for model, precision in cells:
        suite = Suite(plan, output, models.prepare(model, precision), first="-".join(cells[0]))
        for loads in plan.searches:
            problems += _measure_search(suite, loads, progress)
    return problems


def _measure_search(suite: Suite, loads: Sequence[Load], progress: Progress) -> list[str]:
    """All load points of one kind of search; what could not be measured, and why."""
    problems: list[str] = []
    lost = ""

    def attempt(what: str, measure: Callable[[], object]) -> str:
        try:
            measure()
        except (LoadError, TranslationError, OSError, LookupError, ValueError) as exc:
            problems.append(f"{suite.name} {what}: {exc}")
            console.print(f"bench: {problems[-1]}", style="red", markup=False)
            return str(exc)
        return ""

    beam_size = loads[0].beam_size
    if PEER in suite.plan.systems:
        what = f"agreement, beam {beam_size}"
        attempt(what, partial(suite.check_agreement, beam_size))
        progress.reach(f"{suite.name} {what}")
    for load in loads:
        if load.share is not None and not load.of_own:
            if not lost:  # a capacity that could not be found would not be at the next share
                what = f"reference, beam {beam_size}"
                lost = attempt(what, partial(reference_rate, suite, load))
            if lost:
                problems.append(f"{suite.name} {load.name}: there is no rate to take a share of")
                progress.reach(f"{suite.name} {load.name}")
                continue
        hurries = progress.hurries(f"{suite.name} {load.name}")
        attempt(load.name, partial(_measure, suite, load, hurries))
        progress.reach(f"{suite.name} {load.name}")
    return problems


def _measure(suite: Suite, load: Load, once: bool) -> None:
    rate = reference_rate(suite, load)
    if once:
        plan = dataclasses.replace(suite.plan, repetitions=1, tries=1)
        suite = dataclasses.replace(suite, plan=plan)
    suite.measure(load, rate)


class Progress:
    """Tells which steps are done, how long the others will take, and whether there is time for all.

    Args:
        left: all steps, in order.
        budget_seconds: that they may take together.
        clock: seconds from any point in time.
    """

    def __init__(
        self,
        left: Sequence[estimate.Step],
        budget_seconds: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._left = list(left)
        self._budget_seconds = budget_seconds
        self._clock = clock
        self._began = clock()
        self._whole = estimate.total(left)
        console.print(f"{len(left)} steps, about {estimate.format_duration(self._whole)}.")

    def hurries(self, name: str) -> bool:
        """Whether a load has to do with one repetition.

        Only where no later one could make up for it: the first loads are those that matter most.
        """
        names = [step.name for step in self._left]
        left = self._left[names.index(name) :]
        spent = self._clock() - self._began
        pace = self._pace(spent, estimate.total(left))
        over = spent + pace * estimate.total(left) - self._budget_seconds
        hurries = over > pace * sum(step.spare for step in left[1:])
        if hurries:
            console.print(f"{name}: once, since time is short")
        return hurries

    def reach(self, name: str) -> None:
        """Tick off all steps up to the one of this name."""
        names = [step.name for step in self._left]
        self._left = self._left[names.index(name) + 1 :]
        spent = estimate.format_duration(self._clock() - self._began)
        remaining = estimate.format_duration(estimate.total(self._left))
        console.print(
            f"Done: {name}. Took so far: {spent}. Left: {len(self._left)} steps, {remaining}."
        )

    def _pace(self, spent: float, left: float) -> float:
        """How much longer steps take than was thought, once enough of them say so."""
        thought = self._whole - left
        if thought < _PACE_SECONDS:
            return 1.0
        # What an earlier call has measured takes no time: no reason to think that the rest is fast.
        return min(_MOST_PACE, max(1.0, spent / thought))


def report_directory(name: str) -> Path:
    """runs/bench/<date>-<machine>-<name>: the newest that is not finished, or a new one.

    The machine is named after its processor: a container's host name changes every day.
    """
    facts = about_machine()
    machine = re.sub(r"[^a-z0-9]+", "-", f"{facts['processor']} {facts['cpus']}cpu".lower())
    machine = machine.strip("-")
    runs = ROOT / "runs" / "bench"
    for directory in sorted(runs.glob(f"*-{machine}-{name}"), reverse=True):
        file = directory / SUITE_FILE
        if file.exists() and not json.loads(file.read_text())["finished"]:
            return directory
    return runs / f"{time.strftime('%Y-%m-%d')}-{machine}-{name}"


@contextlib.contextmanager
def reporting(
    directory: Path,
    name: str,
    is_whole: Callable[[], bool] = lambda: True,
    problems: Sequence[str] = (),
) -> Iterator[None]:
    """Mark a report as unfinished until the end of the context; write it whatever ends that.

    Args:
        directory: the report's.
        name: of the benchmark.
        is_whole: whether there is nothing left to measure, if it is not broken off.
        problems: what could not be measured, and why, as far as that is known at the end.

    Raises:
        typer.Exit: instead of an interruption (130) or a LoadError (1).
    """
    directory.mkdir(parents=True, exist_ok=True)
    _mark(directory, name, finished=False)
    try:
        yield
        _mark(directory, name, finished=is_whole(), problems=problems)
    except (Interrupted, KeyboardInterrupt):
        console.print("Interrupted. The same command goes on from here.")
        raise typer.Exit(130) from None
    except LoadError as exc:
        console.print(f"bench: {exc}", style="red", markup=False)
        raise typer.Exit(1) from None
    finally:
        write_report(directory)
        console.print(f"Report: {directory / REPORT_FILE}", soft_wrap=True)


def _mark(directory: Path, name: str, finished: bool, problems: Sequence[str] = ()) -> None:
    facts = {"suite": name, "finished": finished, "problems": list(problems)}
    (directory / SUITE_FILE).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def main(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(PLANS)}.")] = "quick",
    output: Annotated[
        Path | None, typer.Option(help="Default: runs/bench/<date>-<machine>-<name>.")
    ] = None,
    work: Annotated[Path, typer.Option(help="Where models are made.")] = WORK,
    checkpoint: Annotated[
        Path | None, typer.Option(help="A trained model to measure as well. Default: ours.")
    ] = None,
    source: Annotated[Path, typer.Option(help="Texts for it, one a line.")] = SHIPPED_TEXTS,
    size: Annotated[str, typer.Option(help="Of the speed model: base, or small.")] = "base",
    thorough: Annotated[
        bool,
        typer.Option("--thorough", help="For full: every sweep anew, longer runs. Five hours."),
    ] = False,
) -> None:
    """Run a benchmark and write its report. Ctrl-C stops it; the same command goes on."""
    if name not in PLANS:
        raise typer.BadParameter(f"there is no benchmark {name!r}; there are {', '.join(PLANS)}")
    if thorough:
        if name != FULL.name:
            raise typer.BadParameter(f"--thorough goes with {FULL.name}, not with {name}")
        name = THOROUGH.name
    both = (FULL.name, THOROUGH.name)
    trained = checkpoint or (SHIPPED_CHECKPOINT if name in both else None)
    directory = output or report_directory(name)
    problems: list[str] = []
    end_in_order_on_sigterm()
    with reporting(directory, name, lambda: not problems, problems):
        problems += run_plan(PLANS[name], directory, Models(work, size, trained, source))
    if problems:
        typer.echo(f"{len(problems)} things could not be measured: see the report.", err=True)
        raise typer.Exit(1)
    if name == "overload":
        models = SuiteFigures.from_dict(read_summary(directory)).models.values()
        found = [one for model in models for one in criteria(model.cells)]
        for one in found:
            typer.echo(str(one))
        if not all(one.kept for one in found):
            raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
