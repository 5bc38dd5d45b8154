"""The benchmark of one model: agreement, sweeps, runs. Nothing is measured twice.

Every run is a directory of `dragoman load` results. Systems alternate within each load point, and
change their order from one repetition to the next, so that a machine that warms up or slows down
affects all of them alike.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.benchmark import Interrupted, console
from bench.load.plan import LoadPlan
from bench.load.results import Results, completed
from bench.load.session import Session, about_source
from bench.load.source import read_texts
from bench.load.units import Slo
from bench.server_process import Running
from bench.suite import agreement
from bench.suite.artifacts import Artifacts
from bench.suite.cells import others
from bench.suite.overload import touch_rows
from bench.suite.points import MAIN_SHARE, PEER, Load, SuitePlan, own_system
from bench.suite.scoring import score, yardstick
from bench.suite.sweep import Settings
from bench.suite.systems import System, running

RUNS = "runs"
SWEEP = "sweep"
CAPACITY = "capacity"
SWEEP_FILE = "sweep.json"
_ROWS = 64  # of a server by default
_TRIES = 3


@dataclass(frozen=True)
class Suite:
    """A benchmark of one model.

    Attributes:
        artifacts: the model in one precision.
    """

    plan: SuitePlan
    output: Path
    artifacts: Artifacts

    @property
    def name(self) -> str:
        """The model and precision, for directories."""
        return f"{self.artifacts.name}-{self.artifacts.precision}"

    @property
    def runs(self) -> Path:
        """The folder of the runs that tables are made of."""
        return self.output / RUNS / self.name

    def check_agreement(self, beam_size: int) -> None:
        """Count, once, the translations that differ between us and CTranslate2."""
        file = self.runs / agreement.file_name(beam_size)
        if file.exists():
            return
        console.print(f"{self.name}: do both translate alike, with beam {beam_size}?")
        log = self.output / "logs" / f"{self.name}-agreement.log"
        peer = System(PEER, dict(self.plan.sweep.settings[0]))
        found = agreement.measure_agreement(own_system(), peer, self.artifacts, log, beam_size)
        agreement.write(file, found)
        console.print(f"{self.name}: {found}")

    def measure(self, load: Load, rate: float) -> None:
        """All systems at one load point, in turn, after a check that they translate alike.

        Args:
            rate: reference rate of an open loop, in requests a second.
        """
        systems = []
        for name in self.plan.systems_at(load):
            if name == PEER:
                self.check_agreement(load.beam_size)
            systems.append(self.best_peer(load, rate) if name == PEER else own_system(load))
        for repetition in range(self.plan.repetitions):
            for system in systems if repetition % 2 == 0 else systems[::-1]:
                self.repeat(system, load, rate, repetition)

    def repeat(self, system: System, load: Load, rate: float, repetition: int) -> Results:
        """One of a system's runs at a load point."""
        directory = self.runs / load.name / system.name / str(repetition)
        run = load.plan("", self.plan.seconds_of(load), self.plan.warmup, rate)
        return self._run(system, load, run, directory)

    def _run(self, system: System, load: Load, run: LoadPlan, directory: Path) -> Results:
        """Make a run, or read its results if it was made before; `run` names no server yet."""
        done = completed(directory)
        if done is not None:
            return done
        for _ in range(_TRIES):
            results = self._try(system, load, run, directory)
            if not (disturbed := self.disturbance(results)):
                break
            console.print(f"  disturbed: {disturbed}")
        return results

    def disturbance(self, results: Results) -> str:
        """The reason why a run was disturbed; "" if it was not."""
        cores = others(results)
        if cores is None or cores <= self.plan.max_other_cores:
            return ""
        return f"something else kept {cores:.2f} cores busy"

    def _try(self, system: System, load: Load, run: LoadPlan, directory: Path) -> Results:
        shutil.rmtree(directory, ignore_errors=True)
        console.print(f"{self.name} {load.name} {system}", soft_wrap=True)
        log = self.output / "logs" / f"{self.name}-{load.name}-{system.name}.log"
        with running(system, self.artifacts, log) as server:
            session = self.session(server, system, load.name)
            if load.of_own:  # a run whose memory is looked at
                touch_rows(server.address, session.texts, _ROWS)
            results = session.run(dataclasses.replace(run, server=server.address), directory)
        if results.run.broken_off == "interrupted":
            raise Interrupted
        return results

    def session(
        self, server: Running, system: System, load: str, slo: Slo | None = None
    ) -> Session:
        """The session of all runs on `server`."""
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

        At the other shares of an open loop, only settings that passed the first round at
        `MAIN_SHARE` are tried.
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
        self,
        name: str,
        load: Load,
        rate: float,
        finalists: Sequence[Settings] | None = None,
    ) -> System:
        """CTranslate2 with the winner of a sweep at `load`; `finalists` skip the first round."""
        rounds = len(self.plan.sweep.rounds)
        record, (best, *_) = self._rounds(name, load, rate, finalists, rounds)
        if record:
            file = self.output / SWEEP / self.name / name / SWEEP_FILE
            file.parent.mkdir(parents=True, exist_ok=True)
            facts = {"rounds": record, "chosen": dict(best)}
            file.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
        return System(PEER, dict(best))

    def _rounds(
        self,
        name: str,
        load: Load,
        rate: float,
        finalists: Sequence[Settings] | None,
        num_rounds: int,
    ) -> tuple[list[list[dict[str, Any]]], list[Settings]]:
        """The record of each round, and the settings that passed the last one."""
        sweep = self.plan.sweep
        candidates = list(finalists or sweep.candidates(load.concurrency))
        record: list[list[dict[str, Any]]] = []
        if len(sweep.settings) == 1:
            return record, candidates
        first = 1 if finalists and len(sweep.rounds) > 1 else 0
        for number in range(first, num_rounds):
            one = sweep.rounds[number]
            seconds = self.plan.round_seconds(number, load, rate)
            run = load.plan("", seconds, one.warmup, rate)
            found: list[tuple[Results, Settings]] = []
            for settings in candidates:
                place = sweep.settings.index(dict(settings))
                where = f"round-{number + 1}/{place:02d}"
                directory = self.output / SWEEP / self.name / name / where
                system = System(PEER, dict(settings))
                results = self._run(system, load, run, directory)
                found.append((results, settings))
            by = yardstick([results.summary() for results, _ in found], load)
            scored = [(score(results.run, load, by), settings) for results, settings in found]
            record.append(
                [
                    {"settings": dict(settings), "score": points, "scored_by": str(by)}
                    for points, settings in scored
                ]
            )
            candidates = sweep.next_candidates(number, scored, load.concurrency)
        return record, candidates


def remembered(file: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The facts in a file; made and stored if it is not there."""
    if file.exists():
        facts: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return facts
    facts = make()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return facts
