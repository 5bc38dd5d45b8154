"""One model's benchmark: agreement, sweeps, capacities, runs. What is there is not measured again.

Every run is a directory of `dragoman load` results. Systems alternate within each load point, and
change places from one repetition to the next, so that a machine that warms up or slows down does
so for all of them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.load.errors import ResultsError
from bench.load.results import REPORT_FILE, Results, read_results
from bench.load.session import Session, about_source
from bench.load.source import read_texts
from bench.load.statistics import Summary
from bench.load.units import Slo
from bench.suite import agreement
from bench.suite.artifacts import Artifacts
from bench.suite.cells import others
from bench.suite.overload import touch_rows
from bench.suite.points import MAIN_SHARE, OWN, PEER, Load, SuitePlan, own_system
from bench.suite.scoring import score, yardstick
from bench.suite.sweep import Settings
from bench.suite.systems import Running, System, running

RUNS = "runs"
SWEEP = "sweep"
CAPACITY = "capacity"
SWEEP_FILE = "sweep.json"
_TRIES = 3
_ROWS = 64  # of a server's widest batch, unless it is told otherwise

console = Console(stderr=True, highlight=False)


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

    @property
    def runs(self) -> Path:
        """Where the runs that tables are made of go."""
        return self.output / RUNS / self.name

    def check_agreement(self, beam_size: int) -> None:
        """Count, once, the translations that differ between us and CTranslate2."""
        file = self.runs / agreement.file_name(beam_size)
        if file.exists():
            return
        console.print(f"{self.name}: do both translate alike, with beam {beam_size}?")
        log = self.output / "logs" / f"{self.name}-agreement.log"
        peer = System(PEER, dict(self.plan.sweep.settings[0]))
        found = agreement.measure_agreement(own_system(OWN), peer, self.artifacts, log, beam_size)
        agreement.write(file, found)
        console.print(f"{self.name}: {found}")

    def measure(
        self,
        load: Load,
        rate: float,
        peer: System | None = None,
        after: Callable[[int], None] = lambda repetition: None,
    ) -> None:
        """All systems at one load point.

        Args:
            load: the point.
            rate: what an open loop takes its share of.
            peer: CTranslate2 with its settings; None to look for the best.
            after: is called after each repetition, with its number.
        """
        systems = [
            (peer or self.best_peer(load, rate)) if name == PEER else own_system(name)
            for name in self.plan.systems_at(load)
        ]
        for repetition in range(self.plan.repetitions):
            order = systems if repetition % 2 == 0 else systems[::-1]
            for system in order:
                if repetition < self.plan.repetitions_of(system.name):
                    self.repeat(system, load, rate, repetition)
            after(repetition)

    def repeat(self, system: System, load: Load, rate: float, repetition: int) -> Results:
        """One of a system's runs at a load point."""
        directory = self.runs / load.name / system.name / str(repetition)
        seconds = self.plan.seconds_of(load)
        return self._run(system, load, rate, seconds, self.plan.warmup, directory)

    def _run(
        self,
        system: System,
        load: Load,
        rate: float,
        seconds: float,
        warmup: float,
        directory: Path,
    ) -> Results:
        """A run, or what it brought if it was made before."""
        done = completed(directory)
        if done is not None:
            return done
        for _ in range(_TRIES):
            results = self._try(system, load, rate, seconds, warmup, directory)
            if not (disturbed := self.disturbance(results)):
                break
            console.print(f"  disturbed: {disturbed}")
        return results

    def disturbance(self, results: Results) -> str:
        """What spoiled a run; "" if nothing did, or the last try has to do."""
        cores = others(results)
        if cores is None or cores <= self.plan.max_other_cores:
            return ""
        return f"something else kept {cores:.2f} cores busy"

    def _try(
        self,
        system: System,
        load: Load,
        rate: float,
        seconds: float,
        warmup: float,
        directory: Path,
    ) -> Results:
        shutil.rmtree(directory, ignore_errors=True)
        console.print(f"{self.name} {load.name} {system}", soft_wrap=True)
        log = self.output / "logs" / f"{self.name}-{load.name}-{system.name}.log"
        with running(system, self.artifacts, log) as server:
            session = self.session(server, system, load.name)
            if load.of_own:  # a run whose memory is looked at
                touch_rows(server.address, session.texts, _ROWS)
            results = session.run(load.plan(server.address, seconds, warmup, rate), directory)
        if results.run.broken_off == "interrupted":
            raise Interrupted
        return results

    def session(
        self, server: Running, system: System, load: str, slo: Slo | None = None
    ) -> Session:
        """What runs on `server` have in common."""
        texts = read_texts(self.artifacts.texts)
        about = {
            **about_source(self.artifacts.texts, texts),
            "system": system.to_dict(),
            "model": self.artifacts.name,
            "precision": self.artifacts.precision,
            "load": load,
        }
        return Session(texts, slo, server.metrics_url, about)

    # --- the best settings -----------------------------------------------------------------------

    def best_peer(self, load: Load, rate: float) -> System:
        """CTranslate2 with the settings that serve this load best.

        At the other shares of an open loop, only those are tried that the first round at
        `MAIN_SHARE` left.
        """
        main = next((one for one in self.plan.shares if one == MAIN_SHARE), None)
        finalists = None
        if load.share not in (None, main) and main is not None:
            shared = Load(share=main, beam_size=load.beam_size)
            finalists = self.finalists(shared.name, shared, rate)
        return self.sweep(load.name, load, rate, finalists)

    def finalists(self, name: str, load: Load, rate: float) -> list[Settings]:
        """The settings that the first round of the sweep `name` leaves."""
        return self._rounds(name, load, rate, None, 1)[1]

    def sweep(
        self, name: str, load: Load, rate: float, finalists: Sequence[Settings] | None = None
    ) -> System:
        """CTranslate2 with the winner of a sweep at `load`; `finalists` skip the first round."""
        rounds = len(self.plan.sweep.rounds)
        record, (best, *_) = self._rounds(name, load, rate, finalists, rounds)
        if record:
            file = self.output / SWEEP / self.name / name / SWEEP_FILE
            file.write_text(json.dumps({"rounds": record, "chosen": dict(best)}, indent=1) + "\n")
        return System(PEER, dict(best))

    def _rounds(
        self,
        name: str,
        load: Load,
        rate: float,
        finalists: Sequence[Settings] | None,
        num_rounds: int,
    ) -> tuple[list[list[dict[str, Any]]], list[Settings]]:
        """What each round's runs brought, and who goes on after them."""
        sweep = self.plan.sweep
        candidates = list(finalists or sweep.candidates(load.concurrency))
        record: list[list[dict[str, Any]]] = []
        if len(sweep.settings) == 1:
            return record, candidates
        first = 1 if finalists and len(sweep.rounds) > 1 else 0
        for number in range(first, num_rounds):
            one = sweep.rounds[number]
            seconds = self.plan.round_seconds(number, load, rate)
            figures: list[tuple[Summary, Settings]] = []
            for settings in candidates:
                place = sweep.settings.index(dict(settings))
                where = f"round-{number + 1}/{place:02d}"
                directory = self.output / SWEEP / self.name / name / where
                system = System(PEER, dict(settings))
                results = self._run(system, load, rate, seconds, one.warmup, directory)
                (directory / REPORT_FILE).unlink(missing_ok=True)  # nobody looks at so many
                figures.append((results.summary(), settings))
            by = yardstick([summary for summary, _ in figures], load)
            scored = [(score(summary, load, by), settings) for summary, settings in figures]
            record.append(
                [
                    {"settings": dict(settings), "score": points, "scored_by": str(by)}
                    for points, settings in scored
                ]
            )
            candidates = sweep.next_candidates(number, scored, load.concurrency)
        return record, candidates


def completed(directory: Path, stopped_counts: bool = False) -> Results | None:
    """The results in `directory` if that run came to its end (or was stopped on purpose)."""
    try:
        results = read_results(directory)
    except ResultsError:
        return None
    ended = not results.run.broken_off or (stopped_counts and results.run.broken_off == "stopped")
    return results if ended else None


def remembered(file: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The facts in a file; made and stored if it is not there."""
    if file.exists():
        facts: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return facts
    facts = make()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return facts
