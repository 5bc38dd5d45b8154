"""The benchmark of one model: agreement, sweeps, runs. Nothing is measured twice.

Every run is a directory of `dragoman load` results. Systems alternate within each load point, and
change their order from one repetition to the next, so that a machine that warms up or slows down
affects all of them alike.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.benchmark import Interrupted, console
from bench.load.plan import LoadPlan
from bench.load.results import Results, completed
from bench.load.session import Session, about_source
from bench.load.source import read_texts
from bench.load.units import Slo
from bench.suite import agreement
from bench.suite.artifacts import Artifacts
from bench.suite.cells import others
from bench.suite.overload import touch_rows
from bench.suite.points import MAIN_SHARE, OWN, PEER, Load, SuitePlan, own_system
from bench.suite.scoring import score, yardstick
from bench.suite.sweep import Settings
from bench.suite.systems import Running, Servers, System
from bench.suite.takeover import (
    NEAR_CAPACITY,
    Source,
    best_of_each_split,
    is_sibling,
    sources,
)

RUNS = "runs"
SWEEP = "sweep"
CAPACITY = "capacity"
SWEEP_FILE = "sweep.json"
_ROWS = 64  # of a server by default
_MOST_ANSWER_SECONDS = 6.0


@dataclass(frozen=True)
class Suite:
    """A benchmark of one model.

    Attributes:
        artifacts: the model in one precision.
        first: the name of the suite that is measured first, whose sweeps others take over; None
            for this one.
        made_again: the runs that something disturbed and that were made again.
    """

    plan: SuitePlan
    output: Path
    artifacts: Artifacts
    first: str | None = None
    made_again: list[Path] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The model and precision, for directories."""
        return f"{self.artifacts.name}-{self.artifacts.precision}"

    @property
    def is_first(self) -> bool:
        """Whether this is measured first."""
        return self.first in (None, self.name)

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
        found = agreement.measure_agreement(
            own_system(OWN), peer, self.artifacts, log, beam_size, self.plan.agreement_texts
        )
        agreement.write(file, found)
        console.print(f"{self.name}: {found}")

    def measure(
        self,
        load: Load,
        rate: float,
        peer: System | None = None,
        after: Callable[[int], None] | None = None,
    ) -> None:
        """All systems at one load point.

        Args:
            rate: what an open loop takes its share of.
            peer: CTranslate2 with its settings; None to look for the best.
            after: is called after each repetition, with its number.
        """
        systems = [
            (peer or self.best_peer(load, rate)) if name == PEER else own_system(name, load)
            for name in self.plan.systems_at(load, self.is_first)
        ]
        with Servers(self.artifacts) as servers:
            kept = servers if self.plan.servers_stay else None
            for repetition in range(self.plan.repetitions):
                order = systems if repetition % 2 == 0 else systems[::-1]
                for system in order:
                    if repetition < self.plan.repetitions_of(system.name):
                        self.repeat(system, load, rate, repetition, kept)
                if after is not None:
                    after(repetition)

    def repeat(
        self,
        system: System,
        load: Load,
        rate: float,
        repetition: int,
        servers: Servers | None = None,
    ) -> Results:
        """One of a system's runs at a load point, with a server of its own or one of `servers`."""
        directory = self.runs / load.name / system.name / str(repetition)
        answer = self._answer_seconds(load)
        seconds = self.plan.seconds_of(load, rate, answer)
        run = load.plan("", seconds, max(self.plan.warmup, answer), rate)
        return self._run(system, load, run, directory, self.plan.tries, servers)

    def _answer_seconds(self, load: Load) -> float:
        """The expected seconds of an answer in a closed loop, if the plan adapts to it; else 0.

        All users start at once, so the load is not steady before that. Estimated from CTranslate2's
        throughput with the next fewer users; 0 if that has not been measured.
        """
        fewer = [count for count in self.plan.closed if count < (load.concurrency or 0)]
        if not self.plan.adapts or not fewer or load.concurrency is None:
            return 0.0
        before = Load(concurrency=max(fewer), beam_size=load.beam_size)
        done = completed(self.runs / before.name / PEER / "0")
        rate = done.summary().achieved_rate if done is not None else 0.0
        return min(load.concurrency / rate, _MOST_ANSWER_SECONDS) if rate else 0.0

    def _run(
        self,
        system: System,
        load: Load,
        run: LoadPlan,
        directory: Path,
        tries: int,
        servers: Servers | None = None,
    ) -> Results:
        """Make a run, or read its results if it was made before; `run` names no server yet."""
        done = completed(directory)
        if done is not None:
            return done
        for left in reversed(range(tries)):
            results = self._try(system, load, run, directory, servers)
            if not (disturbed := self.disturbance(results)):
                break
            if not left or len(self.made_again) >= self.plan.max_made_again:
                console.print(f"  disturbed, and stays: {disturbed}")
                break
            console.print(f"  disturbed: {disturbed}")
            self.made_again.append(directory)
        return results

    def disturbance(self, results: Results) -> str:
        """The reason why a run was disturbed; "" if it was not."""
        cores = others(results)
        if cores is None or cores <= self.plan.max_other_cores:
            return ""
        return f"something else kept {cores:.2f} cores busy"

    def _try(
        self,
        system: System,
        load: Load,
        run: LoadPlan,
        directory: Path,
        servers: Servers | None,
    ) -> Results:
        shutil.rmtree(directory, ignore_errors=True)
        console.print(f"{self.name} {load.name} {system}", soft_wrap=True)
        log = self.output / "logs" / f"{self.name}-{load.name}-{system.name}.log"
        with contextlib.ExitStack() as stack:
            if servers is None:
                servers = stack.enter_context(Servers(self.artifacts))
            with servers.serving(system, log) as server:
                session = self.session(server, system, load.name)
                if load.of_own:  # a run whose memory is looked at
                    touch_rows(server.address, session.texts, _ROWS)
                results = session.run(dataclasses.replace(run, server=server.address), directory)
                if results.run.broken_off:
                    servers.drop(system)
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

        At the other shares of an open loop, only those are tried that the first round at
        `MAIN_SHARE` left; a plan that takes over looks at what other sweeps left.
        """
        if self.plan.takes_over:
            return self._taking_over(load.name, load, rate, load)
        main = next((one for one in self.plan.shares if one == MAIN_SHARE), None)
        finalists = None
        if load.share not in (None, main) and main is not None:
            shared = Load(share=main, beam_size=load.beam_size)
            finalists = self.finalists(shared.name, shared, rate)
        return self.sweep(load.name, load, rate, finalists)

    def best_near_capacity(self, rate: float, beam_size: int) -> System:
        """CTranslate2 with the best settings near its capacity.

        Args:
            rate: that it may carry, in requests a second.
        """
        name = NEAR_CAPACITY if beam_size == 1 else f"{NEAR_CAPACITY}-beam{beam_size}"
        return self._taking_over(name, Load(share=1.0, beam_size=beam_size), rate, None)

    def _taking_over(self, name: str, load: Load, rate: float, point: Load | None) -> System:
        """The winner of the sweep `name`, with candidates from other sweeps where there are any.

        Args:
            rate: of which that is a share.
            point: the load point; None for the sweep near the capacity.
        """
        file = self._sweep_file(self.name, name)
        if file.exists():
            return System(PEER, json.loads(file.read_text(encoding="utf-8"))["chosen"])
        found = sources(self.plan, point, load.beam_size, self.is_first)
        candidates = [one for source in found for one in self._left_by(source, load, rate)]
        unique = [one for place, one in enumerate(candidates) if one not in candidates[:place]]
        origins = [self._origin(source, load.beam_size) for source in found]
        if len(unique) != 1:
            return self.sweep(name, load, rate, unique or None, origins if unique else [])
        self._store_sweep(name, [], unique[0], origins)
        return System(PEER, dict(unique[0]))

    def _left_by(self, source: Source, load: Load, rate: float) -> list[Settings]:
        """The candidates from another sweep; none if there was no such sweep."""
        if not source.of_first and source.load is not None:
            return [self.best_peer(source.load, rate).settings]
        model, _, name = self._origin(source, load.beam_size).partition("/")
        file = self._sweep_file(model, name)
        if not file.exists():
            return []
        facts = json.loads(file.read_text(encoding="utf-8"))
        if not source.of_first:
            return [facts["chosen"]]
        left = best_of_each_split(facts["rounds"], self.plan.sweep.settings)
        if model.endswith(f"-{self.artifacts.precision}"):
            # The best instruction set depends on the precision only.
            left = [one for one in left if one == left[0] or not is_sibling(one, left[0])]
        return left

    def _origin(self, source: Source, beam_size: int) -> str:
        """A sweep, as "MODEL/LOAD"."""
        if source.load is not None:
            name = source.load.name
        elif source.of_first or beam_size == 1:
            name = NEAR_CAPACITY
        else:
            name = f"{NEAR_CAPACITY}-beam{beam_size}"
        return f"{(self.first or self.name) if source.of_first else self.name}/{name}"

    def _sweep_file(self, model: str, name: str) -> Path:
        return self.output / SWEEP / model / name / SWEEP_FILE

    def _store_sweep(
        self,
        name: str,
        record: list[list[dict[str, Any]]],
        chosen: Settings,
        origins: Sequence[str],
    ) -> None:
        facts = {"rounds": record, "chosen": dict(chosen)}
        if origins:
            facts["candidates_from"] = list(origins)
        file = self._sweep_file(self.name, name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")

    def finalists(self, name: str, load: Load, rate: float) -> list[Settings]:
        """The settings that the first round of the sweep `name` leaves."""
        return self._rounds(name, load, rate, None, 1)[1]

    def sweep(
        self,
        name: str,
        load: Load,
        rate: float,
        finalists: Sequence[Settings] | None = None,
        origins: Sequence[str] = (),
    ) -> System:
        """CTranslate2 with the winner of a sweep at `load`; `finalists` skip the first round.

        `origins` are the sweeps that the finalists come from, for the record.
        """
        rounds = len(self.plan.sweep_at(load).rounds)
        record, (best, *_) = self._rounds(name, load, rate, finalists, rounds)
        if record:
            self._store_sweep(name, record, best, origins)
        return System(PEER, dict(best))

    def _rounds(
        self,
        name: str,
        load: Load,
        rate: float,
        finalists: Sequence[Settings] | None,
        num_rounds: int,
    ) -> tuple[list[list[dict[str, Any]]], list[Settings]]:
        """The record of each round, and the settings that go on after the last."""
        sweep = self.plan.sweep_at(load)
        candidates = list(finalists or sweep.candidates(load.concurrency))
        record: list[list[dict[str, Any]]] = []
        if len(sweep.settings) == 1:
            return record, candidates
        first = 1 if finalists and len(sweep.rounds) > 1 else 0
        for number in range(first, num_rounds):
            one = sweep.rounds[number]
            answer = self._answer_seconds(load)
            seconds = max(self.plan.round_seconds(number, load, rate), (number + 1) * answer)
            run = load.plan("", seconds, max(one.warmup, answer), rate)
            # The first round is coarse; a plan in a hurry makes none of its runs again.
            once = self.plan.takes_over and number < len(sweep.rounds) - 1
            tries = 1 if once else self.plan.tries
            found: list[tuple[Results, Settings]] = []
            for settings in candidates:
                place = sweep.settings.index(dict(settings))
                where = f"round-{number + 1}/{place:02d}"
                directory = self.output / SWEEP / self.name / name / where
                system = System(PEER, dict(settings))
                results = self._run(system, load, run, directory, tries)
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
