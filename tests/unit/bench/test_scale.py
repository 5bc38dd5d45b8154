"""The simulation of model processes on more cores, and the report of `make bench-scale`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

from bench.engine.scale_report import files
from bench.engine.scale_simulation import CORES, PROCESSES, SERVER, USERS, Costs, Simulation
from bench.recompute import REPORT_FILE

STEPS, PYTHON = 10, 0.0005
COSTS = Costs(
    step={1: 0.001, 64: 0.0325},  # half a millisecond for each row
    encode={1: 0.001, 8: 0.008},
    parallel=0.5,
    python=PYTHON,
    server=0.001,
    client=0.0,
    steps=[STEPS],
)
SECONDS = 2.0


def of(cores: int, processes: int, users: int = 200, costs: Costs = COSTS) -> Simulation:
    return Simulation(costs, cores, processes, users)


def test_a_single_user_waits_for_nobody() -> None:
    found = of(cores=8, processes=4, users=1).run(SECONDS)
    # The Python code at the end of a sentence delays the next one.
    expected = COSTS.server + COSTS.encode[1] + STEPS * COSTS.step[1] + PYTHON
    assert found.p50 == pytest.approx(expected)
    assert found.rate == pytest.approx(1 / expected, rel=0.05)
    assert found.bottleneck == USERS


def test_the_server_answers_no_more_than_its_process_can() -> None:
    found = of(cores=32, processes=16).run(SECONDS)
    assert found.rate == pytest.approx(1 / COSTS.server, rel=0.05)
    assert found.bottleneck == SERVER


def test_cores_are_the_bottleneck_where_each_has_a_thread() -> None:
    slow = COSTS.times(4.0)
    found = of(cores=4, processes=2, costs=slow).run(5 * SECONDS)
    assert found.bottleneck == CORES
    assert found.busy[CORES] == pytest.approx(1.0, abs=0.02)


def test_many_threads_of_one_process_leave_cores_idle() -> None:
    one, four = (of(cores=8, processes=n, costs=COSTS.times(4.0)).run(5 * SECONDS) for n in (1, 4))
    assert one.bottleneck == PROCESSES
    assert four.rate > 2 * one.rate


def test_threads_beyond_the_cores_make_each_other_slower() -> None:
    costs = dataclasses.replace(COSTS, server=0.0001).times(4.0)
    few, many = (of(cores=2, processes=n, costs=costs).run(5 * SECONDS) for n in (2, 8))
    # With the same work for two cores, more processes only have fewer rows in a step.
    assert many.rate < 1.05 * few.rate


def measured(processes: int, users: int, rates: Sequence[float]) -> list[dict[str, object]]:
    costs = {"server": 1.0, "model": 3.0, "p50": 0.1, "p99": None, "sources": 2.0, "rows": 9.0}
    common = {"processes": processes, "users": users, "client": 0.5, **costs}
    return [{**common, "rate": rate} for rate in rates]


def test_the_report_shows_ratios_memory_and_bottlenecks() -> None:
    here = Simulation(COSTS, 2, 1, 64).run(SECONDS)
    slow, fast = (of(4, n, costs=COSTS.times(4.0)).run(SECONDS) for n in (1, 2))
    summary = {
        "benchmark": "scale",
        "machine": {"processor": "A", "python": "3", "started_at": "2026", "load_average": 0.1},
        "cores": 2,
        "bundle": "a-model",
        "seconds": 6.0,
        "rounds": 2,
        "measured": measured(1, 64, [200, 100]) + measured(2, 64, [220, 100]),
        "memory": [
            {"processes": 2, "total": 160.4, "shared_weights": 26.1, "mapped_weights": 52.2}
        ],
        "costs": dataclasses.asdict(COSTS),
        "simulated_here": [dataclasses.asdict(here)],
        "simulated": [
            {"factor": 1.0, **dataclasses.asdict(one), "bottleneck": one.bottleneck}
            for one in (slow, fast)
        ],
    }
    report = files(summary)[REPORT_FILE]
    assert (
        "| 64 | 2 | 160 | 100 |  | 1.0 | 3.0 | 1.05 (1.00 to 1.10) | 1.00 (1.00 to 1.00) |"
    ) in report
    assert "| 2 | 160 | 26 | 52 |" in report
    assert f"| 64 | 1 | 150 | {here.rate:.0f} |" in report
    assert f"| {slow.bottleneck} |" in report
    assert f"| **{fast.bottleneck}** |" in report
    assert "at most 1000 a second" in report
