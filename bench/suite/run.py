"""Runs a benchmark: `python -m bench.suite.run quick`. Interrupted, it goes on where it stopped.

Every run is a directory of `dragoman load` results under <output>/runs/, and what is there is not
measured again. Systems alternate within each load point, and change places from one repetition to
the next, so that a machine that warms up or slows down does so for all of them.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from bench.load.capacity import CapacityTest
from bench.load.errors import LoadError, ResultsError
from bench.load.plan import LoadPlan
from bench.load.results import Results, about_machine, read_results
from bench.load.session import Session, about_source
from bench.load.source import read_texts
from bench.load.units import Slo
from bench.suite import agreement
from bench.suite.artifacts import Artifacts, prepare_checkpoint, prepare_speed_model
from bench.suite.points import PLANS, Load, SuitePlan, own_system
from bench.suite.recompute import AGREEMENT_FILE, REFERENCE_FILE, write_report
from bench.suite.systems import ROOT, Running, System, running

RUNS = "runs"
SWEEP = "sweep"
SUITE_FILE = "suite.json"
_SLO_TIMES_MEDIAN = 4.0

_console = Console(stderr=True)


class Interrupted(Exception):
    """Ctrl-C in the middle of a run: end the suite, and measure that run again another time."""


@dataclass(frozen=True)
class Suite:
    """A benchmark of one model.

    Attributes:
        plan: what to measure.
        output: where results go.
        artifacts: the model in one precision.
    """

    plan: SuitePlan
    output: Path
    artifacts: Artifacts

    @property
    def name(self) -> str:
        """Of the model and precision, for directories."""
        return f"{self.artifacts.name}-{self.artifacts.precision}"

    def run(self) -> None:
        """Measure what is not there yet."""
        self._check_agreement()
        reference: float | None = None
        for load in self.plan.loads:
            if load.share is not None and reference is None:
                reference = self._reference_rate()
            rate = reference or 0.0
            peer = self._best_ctranslate2(load, rate)
            systems = [
                peer if name == "ctranslate2" else own_system(name) for name in self.plan.systems
            ]
            for repetition in range(self.plan.repetitions):
                order = systems if repetition % 2 == 0 else systems[::-1]
                for system in order:
                    directory = self._directory(load, system.name, repetition)
                    self._measure(system, load, rate, self._seconds(load), directory)

    def _check_agreement(self) -> None:
        """Count, once, the translations that differ between us and CTranslate2."""
        file = self.output / RUNS / self.name / AGREEMENT_FILE
        if file.exists():
            return
        log = self.output / "logs" / f"{self.name}-agreement.log"
        peer = System("ctranslate2", self.plan.sweep[0])
        found = agreement.measure_agreement(own_system("dragoman"), peer, self.artifacts, log)
        agreement.write(file, found)
        _console.print(f"{self.name}: {found}")

    def _directory(self, load: Load, system: str, repetition: int) -> Path:
        return self.output / RUNS / self.name / load.name / system / str(repetition)

    def _seconds(self, load: Load) -> float:
        return self.plan.seconds if load.share is None else self.plan.open_seconds

    def _measure(
        self, system: System, load: Load, rate: float, seconds: float, directory: Path
    ) -> Results:
        """A run, or what it brought if it was made before."""
        done = _completed(directory)
        if done is not None:
            return done
        shutil.rmtree(directory, ignore_errors=True)
        _console.print(f"{self.name} {load.name} {system.name} {system.settings or ''}")
        log = self.output / "logs" / f"{self.name}-{load.name}-{system.name}.log"
        with running(system, self.artifacts, log) as server:
            session = self._session(server, system, load)
            plan = load.plan(server.address, seconds, self.plan.warmup, rate)
            results = session.run(plan, directory)
        if results.run.broken_off == "interrupted":
            raise Interrupted
        return results

    def _session(
        self, server: Running, system: System, load: Load, slo: Slo | None = None
    ) -> Session:
        texts = read_texts(self.artifacts.texts)
        about = {
            **about_source(self.artifacts.texts, texts),
            "system": system.to_dict(),
            "model": self.artifacts.name,
            "precision": self.artifacts.precision,
            "load": load.name,
        }
        return Session(texts, slo, server.metrics_url, about)

    def _best_ctranslate2(self, load: Load, rate: float) -> System:
        """The settings of the sweep that serve this load best: tokens, or in an open loop p50."""
        candidates = [System("ctranslate2", settings) for settings in self.plan.sweep]
        if len(candidates) == 1:
            return candidates[0]
        scores = []
        for number, system in enumerate(candidates):
            directory = self.output / SWEEP / self.name / load.name / f"{number:02d}"
            results = self._measure(system, load, rate, self.plan.sweep_seconds, directory)
            scores.append((_score(results, load), number))
        return candidates[max(scores)[1]]

    def _reference_rate(self) -> float:
        """Requests a second that the shares are of; measured once."""
        file = self.output / RUNS / self.name / REFERENCE_FILE
        if file.exists():
            return float(json.loads(file.read_text())["rate"])
        facts = self._capacity() if self.plan.measure_capacity else self._throughput()
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(facts, indent=1) + "\n")
        return float(facts["rate"])

    def _throughput(self) -> dict[str, Any]:
        load = Load(concurrency=max(self.plan.closed))
        system = self._best_ctranslate2(load, 0.0)
        directory = self._directory(load, system.name, 0)
        results = self._measure(system, load, 0.0, self.plan.seconds, directory)
        rate = results.summary().achieved_rate
        what = f"CTranslate2's closed-loop throughput with {load.concurrency} users"
        return {"rate": rate, "what": what, "system": system.to_dict()}

    def _capacity(self) -> dict[str, Any]:
        """CTranslate2's capacity at p99 within four times its single client's median."""
        alone = Load(concurrency=1)
        directory = self._directory(alone, "ctranslate2", 0)
        system = self._best_ctranslate2(alone, 0.0)
        single = self._measure(system, alone, 0.0, self.plan.seconds, directory).summary()
        median = single.latency.at(50)
        if median is None:
            raise LoadError("too few answers for CTranslate2's median")
        slo = Slo(99.0, _SLO_TIMES_MEDIAN * median)
        most = Load(concurrency=max(self.plan.closed))
        system = self._best_ctranslate2(most, 0.0)
        target = self.output / "capacity" / self.name
        shutil.rmtree(target, ignore_errors=True)
        log = self.output / "logs" / f"{self.name}-capacity.log"
        with running(system, self.artifacts, log) as server:
            session = self._session(server, system, Load(share=1.0), slo)
            plan = LoadPlan(server.address, rate=single.achieved_rate, warmup=self.plan.warmup)
            capacity = CapacityTest(session, plan).run(target)
        if capacity.ended_early == "interrupted":
            raise Interrupted
        if capacity.rate is None:
            raise LoadError(f"no capacity was found for CTranslate2: {capacity.ended_early}")
        what = f"CTranslate2's capacity at {slo} (4 times its single client's median)"
        return {
            "rate": capacity.rate,
            "what": what,
            "slo_seconds": slo.seconds,
            "system": system.to_dict(),
        }


def _completed(directory: Path) -> Results | None:
    """The results in `directory` if that run came to its end."""
    try:
        results = read_results(directory)
    except ResultsError:
        return None
    return results if not results.run.broken_off else None


def _score(results: Results, load: Load) -> float:
    """Higher is better."""
    summary = results.summary()
    if load.concurrency is not None:
        return summary.target_tokens_per_second
    return -(summary.latency.mean or float("inf"))


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


def main(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(PLANS)}.")] = "quick",
    output: Annotated[
        Path | None, typer.Option(help="Default: bench/reports/<date>-<machine>.")
    ] = None,
    work: Annotated[Path, typer.Option(help="Where models are made.")] = ROOT / "build" / "bench",
    checkpoint: Annotated[
        Path | None, typer.Option(help="A trained model to measure as well.")
    ] = None,
    source: Annotated[Path | None, typer.Option(help="Texts for that, one a line.")] = None,
    size: Annotated[str, typer.Option(help="Of the speed model: base, or small.")] = "base",
) -> None:
    """Run a benchmark and write its report. Ctrl-C stops it; the same command goes on."""
    if name not in PLANS:
        raise typer.BadParameter(f"there is no benchmark {name!r}; there are {', '.join(PLANS)}")
    if (checkpoint is None) != (source is None):
        raise typer.BadParameter("--checkpoint and --source go together")
    plan = PLANS[name]
    directory = output or report_directory(name)
    directory.mkdir(parents=True, exist_ok=True)
    _mark(directory, plan, finished=False)
    try:
        for precision in plan.precisions:
            models = [prepare_speed_model(work, precision, size)]
            if checkpoint is not None and source is not None:
                models.append(prepare_checkpoint(work, "shipped", checkpoint, precision, source))
            for artifacts in models:
                Suite(plan, directory, artifacts).run()
        _mark(directory, plan, finished=True)
    except (Interrupted, KeyboardInterrupt):
        _console.print("Interrupted. The same command goes on from here.")
        raise typer.Exit(130) from None
    except LoadError as exc:
        _console.print(f"bench: {exc}", style="red")
        raise typer.Exit(1) from None
    finally:
        write_report(directory)
        _console.print(f"Report: {directory / 'report.md'}")


def _mark(directory: Path, plan: SuitePlan, finished: bool) -> None:
    (directory / SUITE_FILE).write_text(
        json.dumps({"suite": plan.name, "finished": finished}, indent=1) + "\n"
    )


if __name__ == "__main__":
    typer.run(main)
