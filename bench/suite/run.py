"""Runs the suite: `python -m bench.suite.run quick`. Resumes after an interruption."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from bench.benchmark import Conclusion, Measurement, run_benchmark
from bench.recompute import read_summary
from bench.suite.artifacts import SHIPPED_CHECKPOINT, SHIPPED_TEXTS, WORK, Models
from bench.suite.overload import criteria
from bench.suite.points import FULL, PLANS, Load, SuitePlan
from bench.suite.reference import reference_rate
from bench.suite.report import SuiteFigures
from bench.suite.suite import Suite


def measurements(plan: SuitePlan, output: Path, models: Models) -> list[Measurement]:
    """All measurements of a plan: all models in all precisions, at all loads."""
    return [
        one
        for precision in plan.precisions
        for model in models.names
        for one in loads_of(
            f"{model}-{precision} ", lazily(plan, output, models, model, precision), plan.loads
        )
    ]


def lazily(
    plan: SuitePlan, output: Path, models: Models, model: str, precision: str
) -> Callable[[], Suite]:
    """The suite of a model, which is made when the suite is first needed."""
    return functools.cache(lambda: Suite(plan, output, models.prepare(model, precision)))


def loads_of(
    prefix: str, suite: Callable[[], Suite], loads: Iterable[Load]
) -> Iterator[Measurement]:
    """A measurement of each load; their names begin with `prefix`."""

    def measure(load: Load) -> None:
        suite().measure(load, reference_rate(suite(), load))

    for load in loads:
        yield Measurement(f"{prefix}{load.name}", partial(measure, load))


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
    work: Annotated[Path, typer.Option(help="Folder in which models are made.")] = WORK,
    checkpoint: Annotated[
        Path | None, typer.Option(help="A trained model to measure as well. Default: ours.")
    ] = None,
    source: Annotated[Path, typer.Option(help="Texts for it, one a line.")] = SHIPPED_TEXTS,
    size: Annotated[str, typer.Option(help="Size of the speed model: base, or small.")] = "base",
) -> None:
    """Run the suite and write its report. Ctrl-C stops it; the same command resumes."""
    if name not in PLANS:
        raise typer.BadParameter(f"there is no benchmark {name!r}; there are {', '.join(PLANS)}")
    plan = PLANS[name]
    trained = checkpoint or (SHIPPED_CHECKPOINT if plan is FULL else None)
    models = Models(work, size, trained, source)
    run_benchmark(
        name,
        output,
        lambda directory: measurements(plan, directory, models),
        conclude if name == "overload" else lambda directory: Conclusion(),
    )


if __name__ == "__main__":
    typer.run(main)
