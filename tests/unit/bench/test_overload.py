"""The check of a server under more load than it carries, on runs made up here."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from bench.load.results import Results
from bench.load.sample import RequestSample
from bench.load.scrape import Snapshot
from bench.suite.cells import Cell, memory_growth, recovery_seconds
from bench.suite.overload import criteria, judge, touch_rows
from tests.load.fake_server import FakeServer
from tests.unit.bench.samples import open_run, sample


def results(latency: float, extra: Sequence[RequestSample] = (), growth: float = 0.0) -> Results:
    run = open_run([latency] * 2000)
    run = dataclasses.replace(run, samples=[*run.samples, *extra])
    snapshots = [
        Snapshot(float(s), {"process_resident_memory_bytes": 1e8 * (1 + growth * s)}, {}, {})
        for s in range(21)
    ]
    return Results(run, snapshots=snapshots)


def cell(
    load: str, latency: float, extra: Sequence[RequestSample] = (), growth: float = 0.0
) -> Cell:
    return Cell.of(load, "dragoman", [results(latency, extra, growth)])


def refused(code: str = "RESOURCE_EXHAUSTED", hint: float | None = 0.5) -> list[RequestSample]:
    return [sample(5000 + n, 5.0, 0.001, code=code, retry_after=hint) for n in range(100)]


CALM = cell("own-80pct", 0.4)


def broken(over: Cell) -> list[str]:
    return [one.what for one in judge(CALM, over) if one.kept is False]


def test_a_server_that_refuses_what_it_cannot_do_passes() -> None:
    assert broken(cell("own-150pct", 0.7, refused())) == []


def test_one_that_does_not_is_told_by_name() -> None:
    assert len(broken(cell("own-150pct", 0.7))) == 2  # nothing refused, so no hint either
    (p99,) = broken(cell("own-150pct", 0.9, refused()))
    assert "p99" in p99
    (code,) = broken(cell("own-150pct", 0.7, [*refused(), *refused("INTERNAL")]))
    assert "nothing else fails" in code
    (hint,) = broken(cell("own-150pct", 0.7, refused(hint=None)))
    assert "try again" in hint
    (memory,) = broken(cell("own-150pct", 0.7, refused(), growth=0.01))
    assert "memory" in memory
    late = [sample(9000, 19.9, 3.0, queue_seconds=1.5)]
    (recovery,) = broken(cell("own-150pct", 0.7, [*refused(), *late]))
    assert "waits" in recovery


def test_too_few_samples_are_no_verdict() -> None:
    few = Cell.of("own-80pct", "dragoman", [Results(open_run([0.4] * 900))])
    p99 = judge(few, cell("own-150pct", 0.7, refused()))[2]
    assert p99.kept is None
    assert str(p99).startswith("not known")


def test_figures_by_hand() -> None:
    run = results(0.7, [sample(9000, 19.9, 3.0, queue_seconds=0.6)], growth=0.01)
    assert abs(recovery_seconds(run) - 0.5) < 1e-9
    growth = memory_growth(run)
    assert growth is not None
    assert 0.09 < growth < 0.11


def test_only_loads_beyond_our_own_throughput_are_judged() -> None:
    over = cell("own-150pct", 0.7, refused())
    assert criteria([CALM]) == []
    assert criteria([over]) == []
    assert len(criteria([CALM, over])) == 5
    assert criteria([cell("open-80pct", 0.4), cell("open-150pct", 0.7)]) == []


def test_rows_are_touched_by_the_longest_texts() -> None:
    fake = FakeServer(lambda *_: None)
    try:
        touch_rows(fake.address, ["a", "longest", "bb", "longer"], 2)
    finally:
        fake.server.stop(None)
    assert sorted(fake.texts) == [["longer"], ["longest"]]
