from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.benchmark import Measurement, run_measurements
from bench.engine.run import choose
from bench.load.errors import LoadError
from bench.load.results import Results, ResultsWriter
from bench.load.sample import ReplySample
from bench.load.scrape import Snapshot
from bench.load.statistics import Run
from bench.load.units import Slo
from bench.suite import engine_table as table
from bench.suite.cells import read_runs
from tests.unit.bench.samples import open_run


def write(directory: Path, run: Run, about: dict[str, Any], memory: float, slo: Slo | None) -> None:
    values = {"process_resident_memory_bytes": memory, "process_cpu_seconds_total": 0.0}
    values |= {"dragoman_target_tokens_total": 0.0}
    grown = {"process_cpu_seconds_total": 2 * run.seconds, "dragoman_target_tokens_total": 1e5}
    snapshots = [
        Snapshot(0.0, values, {}, {}),
        Snapshot(run.seconds, {**values, **grown}, {}, {}),
    ]
    facts = {
        "processor": "a processor", "cpus": 2, "operating_system": "Linux", "python": "3",
        "started_at": "today", "load_average": 0.0, **about,
    }  # fmt: skip
    results = Results(run, slo, snapshots, facts)
    writer = ResultsWriter(directory, run.plan, slo, facts)
    writer.finish(results, report="")


@dataclasses.dataclass
class Report:
    """A report in the making."""

    path: Path

    def add(
        self,
        load: str,
        system: str,
        latencies: Sequence[float],
        *,
        model: str = "base",
        repetition: int = 0,
        memory: float = 1e8,
        rate: float = 100.0,
        num_refused: int = 0,
        **fields: Any,
    ) -> None:
        about = {
            "model": model, "precision": "int8", "load": load,
            "system": {"name": system, "settings": {}},
        }  # fmt: skip
        where = f"runs/{model}-int8/{load}/{system}/{repetition}"
        run = open_run(latencies, rate, **fields)
        refused = [
            dataclasses.replace(one, ended=one.sent, reply=ReplySample(code="RESOURCE_EXHAUSTED"))
            for one in run.samples[:num_refused]
        ]
        run = dataclasses.replace(run, samples=[*refused, *run.samples[num_refused:]])
        write(self.path / where, run, about, memory, None)

    def add_trial(self, system: str, rate: float, latency: float) -> None:
        run = open_run([latency] * 1200, rate)
        where = f"capacity/base-int8/{system}/trials/01-{rate:g}"
        write(self.path / where, run, {}, 1e8, Slo(99.0, 0.5))
        self.end_search(system)

    def end_search(self, system: str, early: str = "") -> None:
        file = self.path / "capacity/base-int8" / system / "capacity.json"
        file.write_text(json.dumps({"ended_early": early}))

    def add_in_process(self, engine: float, bare: float, tokens: int) -> None:
        block = {"steps": 100}
        steps = {
            "1": {"engine": [{**block, "seconds": 1.0}], "bare": [{**block, "seconds": 1.0}]},
            "64": {"engine": [{**block, "seconds": engine}], "bare": [{**block, "seconds": bare}]},
        }
        closed = {"users": 64, "tokens": tokens, "cpu_seconds": 20.0, "seconds": 10.0}
        file = self.path / "runs" / "base-int8" / table.IN_PROCESS / "0.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"steps": steps, "closed": closed}))

    def rows(self) -> list[table.Row]:
        return table.rows(self.path, read_runs(self.path))


@pytest.fixture
def report(written: Report, tmp_path: Path) -> Report:
    """A copy, to add runs to."""
    return Report(shutil.copytree(written.path, tmp_path / "report"))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Ours is twice as fast wherever there is a choice."""
    made = Report(tmp_path_factory.mktemp("engine"))
    for load in ("closed-1", "closed-8", "closed-16-beam4"):
        made.add(load, "dragoman", [0.1] * 400)
        made.add(load, "ctranslate2", [0.2] * 200, rate=50.0)
    for load, repetition in (("closed-64", 0), *(("open-80pct", n) for n in range(3))):
        made.add(load, "dragoman", [0.1] * 800, repetition=repetition)
        made.add(load, "ctranslate2", [0.2] * 400, repetition=repetition, memory=2e8, rate=50.0)
    for load in ("closed-1", "closed-8", "closed-64"):
        made.add(load, "dragoman", [0.1] * 400, model="opus")
        made.add(load, "ctranslate2", [0.2] * 200, model="opus", rate=50.0)
        made.add(load, "dragoman", [0.1] * 400, model="shipped")
        made.add(load, "ctranslate2", [0.2] * 200, model="shipped", rate=50.0)
    made.add("open-65pct", "dragoman", [0.1] * 1000, model="shipped")
    made.add("open-65pct", "ctranslate2", [0.2] * 1000, model="shipped")
    made.add_trial("dragoman", 40.0, 0.1)
    made.add_trial("dragoman", 60.0, 0.9)
    made.add_trial("ctranslate2", 20.0, 0.1)
    made.add_in_process(engine=2.0, bare=1.9, tokens=110_000)
    return made


LATENCY, RATE = pytest.approx(0.5, rel=0.01), pytest.approx(2.0, rel=0.05)
GREEDY = [LATENCY, RATE, RATE]


def test_every_row_is_the_ratio_of_what_was_measured(report: Report) -> None:
    rows = report.rows()
    assert [row.ratio for row in rows] == [
        *GREEDY,
        None,  # a p99 takes 1,000 samples
        RATE,  # beams
        LATENCY,  # p99 of the open loop
        RATE,  # capacity: what broke its promise does not count
        *GREEDY,
        None,
        LATENCY,  # median and p99 of the included model's open loop
        LATENCY,
        pytest.approx(0.95),  # the worst of the numbers of rows
        # 100,000 tokens in twice the run's seconds of CPU, against 5,500 for each.
        pytest.approx(100_000 / 16 / 5_500),
        LATENCY,  # memory
        *GREEDY,
        None,
    ]
    assert [row.verdict for row in rows[:3]] == ["**floor missed**", "floor held", "aim reached"]
    assert not table.floors_held(rows)


def test_the_p99_of_a_closed_loop_has_a_line(report: Report) -> None:
    for repetition in range(1, 5):
        report.add("closed-64", "dragoman", [0.1] * 800, model="opus", repetition=repetition)
        report.add("closed-64", "ctranslate2", [0.2] * 400, model="opus", repetition=repetition)
    assert report.rows()[-1].ratio == LATENCY


def test_floors_and_aims() -> None:
    more = table.Row("", 1.1, 1.5)
    less = table.Row("", 0.4, 0.2, more_is_better=False)
    for row, ratio, verdict in (
        (more, 1.09, "**floor missed**"), (more, 1.1, "floor held"), (more, 1.5, "aim reached"),
        (less, 0.41, "**floor missed**"), (less, 0.4, "floor held"), (less, 0.2, "aim reached"),
        (more, None, "not measured"), (less, None, "not measured"),
    ):  # fmt: skip
        assert dataclasses.replace(row, ratio=ratio).verdict == verdict
    good = dataclasses.replace(more, ratio=1.2)
    assert table.floors_held([good, dataclasses.replace(less, ratio=0.3)])
    assert not table.floors_held([good, less])


def test_what_was_not_measured_has_a_line_all_the_same(tmp_path: Path) -> None:
    rows = Report(tmp_path).rows()
    assert len(rows) == 20
    assert {row.verdict for row in rows} == {"not measured"}


def test_one_client_is_compared_on_the_same_texts(tmp_path: Path) -> None:
    """The faster system gets further, to texts that the other never saw."""
    report = Report(tmp_path)
    report.add("closed-1", "dragoman", [0.1] * 50 + [9.0] * 150)
    report.add("closed-1", "ctranslate2", [0.4] * 50)
    assert report.rows()[0].ratio == pytest.approx(0.25)


def test_who_refuses_what_would_be_late_has_no_better_p99(tmp_path: Path) -> None:
    """Ours refuses the slow ones; of those that it answers, the p99 would be 100 ms."""
    report = Report(tmp_path)
    latencies = [0.9] * 16 + [0.2] * 14 + [0.1] * 1970
    report.add("open-80pct", "dragoman", latencies, num_refused=16)
    report.add("open-80pct", "ctranslate2", latencies)
    row = report.rows()[5]
    assert row.ratio == pytest.approx(1.0, rel=0.01)
    assert row.ours == "200 ms (16 failed)"
    assert row.theirs == "200 ms"


@pytest.mark.parametrize("whose", ["dragoman", "ctranslate2"])
def test_an_infinite_p99_has_no_ratio_and_a_reason(tmp_path: Path, whose: str) -> None:
    report = Report(tmp_path)
    for system in ("dragoman", "ctranslate2"):
        report.add("open-80pct", system, [0.1] * 1000, num_refused=11 if system == whose else 0)
    row = report.rows()[5]
    assert row.ratio is None
    assert "∞ (11 failed)" in (row.ours, row.theirs)
    assert row.verdict.startswith("no ratio: 1.1% of")
    assert not table.floors_held([row])


@pytest.mark.parametrize(("num_refused", "has_ratio"), [(5, True), (6, False)])
def test_throughput_of_many_errors_has_no_ratio(
    tmp_path: Path, num_refused: int, has_ratio: bool
) -> None:
    report = Report(tmp_path)
    report.add("closed-8", "dragoman", [0.1] * 500, num_refused=num_refused)
    report.add("closed-8", "ctranslate2", [0.2] * 500)
    row = report.rows()[1]
    assert (row.ratio is not None) is has_ratio
    assert f"({num_refused} failed)" in row.ours
    assert "failed" not in row.theirs
    assert ("1.2% of ours failed" in row.verdict) is not has_ratio


def test_a_run_that_is_not_valid_has_no_ratio(report: Report) -> None:
    report.add("closed-64", "ctranslate2", [0.2] * 400, repetition=3, broken_off="the server went")
    rows = report.rows()
    row = rows[2]
    assert row.ratio is None
    assert "a run of CTranslate2's is not valid: broken off" in row.verdict
    assert not table.floors_held([row])
    assert rows[1].ratio is not None


@pytest.mark.parametrize("system", ["dragoman", "ctranslate2"])
def test_a_capacity_whose_search_ended_early_has_no_ratio(report: Report, system: str) -> None:
    report.end_search(system, "three trials were not valid")
    row = report.rows()[6]
    assert row.ratio is None
    assert "ended early: three trials were not valid" in row.verdict


def test_a_measurement_that_fails_does_not_keep_the_others_from_being_made() -> None:
    measured = []

    def fail() -> None:
        raise LoadError("no server")

    parts = [Measurement("a", fail), Measurement("b", lambda: measured.append("b"))]
    assert run_measurements(parts) == ["a: no server"]
    assert measured == ["b"]
    assert choose(parts, "") == parts
    assert choose(parts, "b") == parts[1:]
    with pytest.raises(LoadError, match="'c'; there are a, b"):
        choose(parts, "b,c")
