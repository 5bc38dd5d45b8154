"""Runs the suite: `python -m bench.suite.run quick`. Resumes after an interruption."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from bench.benchmark import Conclusion, Measurement, run_benchmark
from bench.recompute import read_summary
from bench.suite import estimate
from bench.suite.artifacts import SHIPPED_CHECKPOINT, SHIPPED_TEXTS, WORK, Models
from bench.suite.overload import criteria
from bench.suite.points import FULL, PEER, PLANS, THOROUGH, Load, SuitePlan
from bench.suite.reference import reference_rate
from bench.suite.report import SuiteFigures
from bench.suite.suite import Suite

LazySuite = Callable[[], Suite]
"""The suite of a model that is made ready when it is first needed."""


def measurements(plan: SuitePlan, output: Path, models: Models) -> list[Measurement]:
    """All measurements of a plan: all models in all precisions."""
    cells = [(model, precision) for precision in plan.precisions for model in models.names]
    return [one for cell in cells for one in _of_model(plan, output, models, cell, cells[0])]


def _of_model(
    plan: SuitePlan, output: Path, models: Models, cell: tuple[str, str], first: tuple[str, str]
) -> list[Measurement]:
    """The measurements of one model in one precision; `first` is measured before the others."""
    name, is_first = "-".join(cell), cell == first

    @functools.cache
    def suite() -> Suite:
        return Suite(plan, output, models.prepare(*cell), first="-".join(first))

    made = []
    for loads in plan.searches:
        beam = loads[0].beam_size
        if PEER in plan.systems:
            seconds = estimate.agreement_seconds(plan, cell, beam)
            measure = partial(_check_agreement, suite, beam)
            made.append(Measurement(f"{name} agreement, beam {beam}", seconds, measure))
        reference = ""
        for load in loads:
            needs_reference = load.share is not None and not load.of_own
            if needs_reference and not reference:
                reference = f"{name} reference, beam {beam}"
                seconds = 0.0
                if plan.reference == "capacity":
                    seconds = estimate.capacity_seconds(
                        plan, beam_size=beam, cell=cell, is_first=is_first
                    )
                made.append(
                    Measurement(reference, seconds, partial(_measure_reference, suite, load))
                )
            seconds = estimate.load_seconds(plan, load, cell, is_first)
            once = dataclasses.replace(plan, repetitions=1)
            made.append(
                Measurement(
                    f"{name} {load.name}",
                    seconds,
                    partial(_measure_load, suite, load),
                    spare=seconds - estimate.load_seconds(once, load, cell, is_first),
                    needs=reference if needs_reference else "",
                )
            )
    return made


def _check_agreement(suite: LazySuite, beam_size: int, once: bool) -> None:
    suite().check_agreement(beam_size)


def _measure_reference(suite: LazySuite, load: Load, once: bool) -> None:
    reference_rate(suite(), load)


def _measure_load(suite: LazySuite, load: Load, once: bool) -> None:
    one = suite()
    if once:
        one = dataclasses.replace(one, plan=dataclasses.replace(one.plan, repetitions=1, tries=1))
    one.measure(load, reference_rate(one, load))


def conclude(directory: Path) -> Conclusion:
    """The requirements under overload, and whether all are met."""
    models = SuiteFigures.from_dict(read_summary(directory)).models.values()
    found = [one for model in models for one in criteria(model.cells)]
    return Conclusion([str(one) for one in found], all(one.kept for one in found))


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
    """Run the suite and write its report. Ctrl-C stops it; the same command resumes."""
    if name not in PLANS:
        raise typer.BadParameter(f"there is no benchmark {name!r}; there are {', '.join(PLANS)}")
    if thorough:
        if name != FULL.name:
            raise typer.BadParameter(f"--thorough goes with {FULL.name}, not with {name}")
        name = THOROUGH.name
    plan = PLANS[name]
    trained = checkpoint or (SHIPPED_CHECKPOINT if plan in (FULL, THOROUGH) else None)
    models = Models(work, size, trained, source)
    run_benchmark(
        name,
        output,
        lambda directory: measurements(plan, directory, models),
        conclude if name == "overload" else lambda directory: Conclusion(),
        plan.budget_seconds,
    )


if __name__ == "__main__":
    typer.run(main)
