"""The engine against CTranslate2: `python -m bench.engine.run`. Resumes after an interruption.

Prints a table with a floor for each line. Exit status: 0 if all floors are held, 1 if one is missed
or a line could not be measured, 130 after Ctrl-C.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from bench.benchmark import Conclusion, Interrupted, Measurement, console, run_benchmark
from bench.load.errors import LoadError
from bench.load.units import Slo
from bench.recompute import read_summary
from bench.suite import engine_table as table
from bench.suite.artifacts import (
    SHIPPED_CHECKPOINT,
    SHIPPED_TEXTS,
    WORK,
    Models,
    prepare_opus_model,
)
from bench.suite.points import ENGINE, MAIN_SHARE, Load, SuitePlan, own_system
from bench.suite.reference import find_capacity, near_capacity, peer_capacity, reference_name
from bench.suite.report import SuiteFigures
from bench.suite.suite import Suite, remembered
from bench.suite.sweep import Round, Sweep, isas_here, sweep_settings
from bench.suite.systems import environment

# A smaller sweep than the speed model's, around what wins there.
_OPUS_SWEEP = Sweep(
    sweep_settings((8, 16, 32), (0.0, 5.0), isas_here("", "AVX512")),
    (Round(5.0, 1.5, 2), Round(10.0, 4.0, 1)),
)
_P99_SAMPLES = 1300  # more than the 1000 that it takes: all repetitions draw the same arrivals

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


class EngineBenchmark:
    """The measurements that the table needs.

    Args:
        plan: durations, repetitions, sweep.
        output: where results go.
        models: what is measured.
    """

    def __init__(self, plan: SuitePlan, output: Path, models: Models) -> None:
        self._plan = plan
        is_smoke = len(plan.sweep.settings) == 1
        self._opus_plan = plan if is_smoke else dataclasses.replace(plan, sweep=_OPUS_SWEEP)
        self._speed_name, self._shipped_name = models.names
        self._models = models
        self._output = output

    @functools.cached_property
    def _base(self) -> Suite:
        """Made when it is first needed: not every part needs this model."""
        made = self._models.prepare(self._speed_name, "int8")
        return Suite(self._plan, self._output, made)

    def measurements(self) -> list[Measurement]:
        """All measurements, in order."""
        return [
            *(self._closed(load) for load in (table.ALONE, table.FEW, table.MANY, table.BEAMS)),
            Measurement("shipped", self._shipped),
            Measurement("capacity", self._capacity),
            Measurement("open", self._open),
            *(self._opus(load) for load in (table.ALONE, table.FEW, table.MANY)),
        ]

    def _closed(self, load: Load) -> Measurement:
        inside = load == table.MANY

        def measure() -> None:
            self._base.check_agreement(load.beam_size)
            self._base.measure(load, 0.0, after=self._in_process if inside else None)

        return Measurement(load.name, measure)

    def _in_process(self, repetition: int) -> None:
        """Measure the engine without a server, in a separate process."""
        file = self._base.runs / table.IN_PROCESS / f"{repetition}.json"
        if file.exists():
            return
        console.print(f"{self._base.name} {table.IN_PROCESS}")
        made = self._base.artifacts
        command = [sys.executable, "-m", "bench.engine.in_process", "--output", str(file)]
        command += ["--bundle", str(made.bundle), "--texts", str(made.texts)]
        command += ["--seconds", f"{self._plan.seconds:g}", "--warmup", f"{self._plan.warmup:g}"]
        ended = subprocess.run(
            command, env=environment(), check=False, capture_output=True, text=True
        )
        if ended.returncode < 0 or ended.returncode == 130:
            raise Interrupted
        if ended.returncode:
            raise LoadError(f"the engine in process: {ended.stderr[-2000:]}")

    def _shipped(self) -> None:
        made = self._models.prepare(self._shipped_name, "int8")
        suite = Suite(self._plan, self._output, made)
        suite.check_agreement(1)
        suite.measure(table.MANY, 0.0)

    def _opus(self, load: Load) -> Measurement:
        """The model of an OPUS-MT model's size at one load."""

        def measure() -> None:
            made = prepare_opus_model(self._models.work, self._models.size)
            suite = Suite(self._opus_plan, self._output, made)
            suite.check_agreement(1)
            suite.measure(load, 0.0)

        return Measurement(f"{table.OPUS}-{load.name}", measure)

    def _reference(self) -> dict[str, Any]:
        file = self._base.runs / reference_name(table.OPEN)
        return remembered(file, lambda: peer_capacity(self._base))

    def _capacity(self) -> None:
        facts = self._reference()
        find_capacity(self._base, own_system(), Slo(**facts["slo"]), 2 * facts["rate"])

    def _open(self) -> None:
        facts = self._reference()
        rate = float(facts["rate"])
        # The sweep of the capacity search is near enough to start from its finalists.
        name, near = near_capacity()
        finalists = self._base.finalists(name, near, facts["single_client_rate"])
        peer = self._base.sweep(table.OPEN.name, table.OPEN, rate, finalists)
        # Long enough for a p99 over all repetitions.
        enough = _P99_SAMPLES / (MAIN_SHARE * rate) / self._plan.repetitions
        plan = dataclasses.replace(self._plan, open_seconds=max(self._plan.open_seconds, enough))
        dataclasses.replace(self._base, plan=plan).measure(table.OPEN, rate, peer)


def choose(measurements: list[Measurement], names: str) -> list[Measurement]:
    """The measurements that are named, with commas between; all if none is.

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
    work: Annotated[Path, typer.Option(help="Where models are made.")] = WORK,
    checkpoint: Annotated[
        Path, typer.Option(help="The trained model that is measured.")
    ] = SHIPPED_CHECKPOINT,
    source: Annotated[Path, typer.Option(help="Texts for it, one a line.")] = SHIPPED_TEXTS,
    size: Annotated[str, typer.Option(help="Of the speed model: base, or small.")] = "base",
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Seconds instead of minutes, to check that it runs.")
    ] = False,
) -> None:
    """Measure the engine against CTranslate2 and print the table. Resumes after Ctrl-C."""
    models = Models(work, size, checkpoint, source)

    def prepare(directory: Path) -> list[Measurement]:
        benchmark = EngineBenchmark(SMOKE if smoke else ENGINE, directory, models)
        return choose(benchmark.measurements(), parts)

    run_benchmark(table.SUITE, output, prepare, conclude)


if __name__ == "__main__":
    typer.run(main)
