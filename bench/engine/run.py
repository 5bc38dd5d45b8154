"""The engine against CTranslate2: `python -m bench.engine.run`. Resumes after an interruption.

Prints a table with a floor for each line. Exit status: 0 if all floors are held, 1 if one is missed
or a line could not be measured, 130 after Ctrl-C.
"""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from bench.benchmark import Conclusion, Interrupted, Measurement, console, run_benchmark
from bench.load.errors import LoadError
from bench.load.units import Slo
from bench.recompute import read_summary
from bench.server_process import environment
from bench.suite import engine_table as table
from bench.suite.artifacts import OPUS, SHIPPED_CHECKPOINT, SHIPPED_TEXTS, WORK, Models
from bench.suite.points import ENGINE, SuitePlan, own_system
from bench.suite.reference import find_capacity, reference
from bench.suite.report import SuiteFigures
from bench.suite.run import lazily, loads_of
from bench.suite.suite import Suite
from bench.suite.sweep import Round, Sweep, isas_here, sweep_settings

# A smaller sweep than the speed model's, around what wins there.
_SMALL_SWEEP = Sweep(
    sweep_settings((8, 16, 32), (0.0, 5.0), isas_here("", "AVX512")),
    (Round(5.0, 1.5, 2), Round(10.0, 4.0, 1)),
)
_SHIPPED_SECONDS = 20.0  # of Poisson arrivals, hundreds a second

SMOKE = dataclasses.replace(
    ENGINE,
    seconds=1.5,
    open_seconds=1.0,
    warmup=0.5,
    repetitions=1,
    max_other_cores=math.inf,
    sweep=dataclasses.replace(
        ENGINE.sweep, settings=ENGINE.sweep.settings[:1], rounds=ENGINE.sweep.rounds[:1]
    ),
)


def measurements(plan: SuitePlan, output: Path, models: Models) -> list[Measurement]:
    """The measurements of the table, in order."""
    is_smoke = len(plan.sweep.settings) == 1
    small = plan if is_smoke else dataclasses.replace(plan, sweep=_SMALL_SWEEP)
    arriving = small if is_smoke else dataclasses.replace(small, open_seconds=_SHIPPED_SECONDS)
    speed_name, shipped_name = models.names
    speed = lazily(plan, output, models, speed_name, "int8")
    shipped = lazily(plan, output, models, shipped_name, "int8")
    shipped_arriving = lazily(arriving, output, models, shipped_name, "int8")
    opus = lazily(small, output, models, OPUS, "int8")
    return [
        *loads_of("", speed, (table.ALONE, table.FEW, table.MANY, table.BEAMS)),
        Measurement(table.IN_PROCESS, lambda: _in_process(speed())),
        *loads_of("shipped-", shipped, (table.ALONE, table.FEW, table.MANY)),
        *loads_of("shipped-", shipped_arriving, [table.SHIPPED_OPEN]),
        Measurement("capacity", lambda: _capacity(speed())),
        *loads_of("", speed, [table.OPEN]),
        *loads_of("opus-", opus, (table.ALONE, table.FEW, table.MANY)),
    ]


def _in_process(suite: Suite) -> None:
    """Measure the engine without a server, in processes of their own."""
    made, plan = suite.artifacts, suite.plan
    for repetition in range(plan.repetitions):
        file = suite.runs / table.IN_PROCESS / f"{repetition}.json"
        if file.exists():
            continue
        console.print(f"{suite.name} {table.IN_PROCESS}")
        command = [sys.executable, "-m", "bench.engine.in_process", "--output", str(file)]
        command += ["--bundle", str(made.bundle), "--texts", str(made.texts)]
        command += ["--seconds", f"{plan.seconds:g}", "--warmup", f"{plan.warmup:g}"]
        ended = subprocess.run(
            command, env=environment(), check=False, capture_output=True, text=True
        )
        if ended.returncode < 0 or ended.returncode == 130:
            raise Interrupted
        if ended.returncode:
            raise LoadError(f"the engine in process: {ended.stderr[-2000:]}")


def _capacity(suite: Suite) -> None:
    facts = reference(suite, table.OPEN)
    find_capacity(suite, own_system(), Slo(**facts["slo"]), 2 * facts["rate"])


def choose(measurements: list[Measurement], names: str) -> list[Measurement]:
    """The measurements in a list of names with commas; all for an empty list.

    Raises:
        LoadError: there is no such part.
    """
    wanted = [name for name in names.split(",") if name]
    known = [one.name for one in measurements]
    for name in wanted:
        if name not in known:
            raise LoadError(f"--parts: there is no {name!r}; there are {', '.join(known)}")
    return [one for one in measurements if not wanted or one.name in wanted]


def conclude(directory: Path) -> Conclusion:
    """The table, and whether all floors are held."""
    rows = SuiteFigures.from_dict(read_summary(directory)).engine
    is_whole = all(row.ratio is not None for row in rows)
    return Conclusion(table.render(rows), table.floors_held(rows), is_whole)


def main(
    output: Annotated[
        Path | None, typer.Option(help="Default: runs/bench/<date>-<machine>-engine.")
    ] = None,
    parts: Annotated[str, typer.Option(help="Only these, with commas between. Default: all.")] = "",
    work: Annotated[Path, typer.Option(help="Folder in which models are made.")] = WORK,
    checkpoint: Annotated[
        Path, typer.Option(help="The trained model that is measured.")
    ] = SHIPPED_CHECKPOINT,
    source: Annotated[Path, typer.Option(help="Texts for it, one a line.")] = SHIPPED_TEXTS,
    size: Annotated[str, typer.Option(help="Size of the speed model: base, or small.")] = "base",
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Seconds instead of minutes, to check that it runs.")
    ] = False,
) -> None:
    """Measure the engine against CTranslate2 and print the table. Resumes after Ctrl-C."""
    models = Models(work, size, checkpoint, source)

    def prepare(directory: Path) -> list[Measurement]:
        return choose(measurements(SMOKE if smoke else ENGINE, directory, models), parts)

    run_benchmark(table.SUITE, output, prepare, conclude)


if __name__ == "__main__":
    typer.run(main)
