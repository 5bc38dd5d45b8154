from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from bench.load.compare import Difference, Measured, compare, different_loads, read_side
from bench.load.compare_report import print_comparison, row
from bench.load.errors import ResultsError
from bench.load.html_report import render
from bench.load.results import Results, ResultsWriter
from bench.load.tables import latencies
from bench.load.terminal import print_results
from tests.unit.bench.samples import open_run


def queue(seed: int, service: float, rate: float = 50.0, seconds: float = 60.0) -> Results:
    """Latencies of a queue with random arrivals and service times: neighbours resemble each other.

    Lindley's recursion: waiting[n+1] = max(0, waiting[n] + service[n] - gap[n]).
    """
    generator = np.random.default_rng(seed)
    count = round(rate * seconds)
    gaps = generator.exponential(1 / rate, count)
    services = generator.exponential(service, count)
    waiting, latencies = 0.0, []
    for gap, needed in zip(gaps, services, strict=True):
        waiting = max(0.0, waiting - gap)
        latencies.append(waiting + needed)
        waiting += needed
    return Results(open_run(latencies, rate))


def differences(a: Results, b: Results, num_replicates: int = 200) -> dict[str, Difference]:
    made = compare([Measured.of(a)], [Measured.of(b)], num_replicates=num_replicates)
    return {one.name: one for one in made}


def test_a_server_that_is_half_as_fast_again_differs() -> None:
    found = differences(queue(1, 0.008), queue(2, 0.012))
    for name in ("latency, mean", "latency, p50", "latency, p90", "latency, p99"):
        assert found[name].beyond_noise, name
        assert found[name].low > 0
        assert found[name].b > 1.2 * found[name].a


def test_equal_servers_rarely_differ() -> None:
    """A 95 % interval is wrong one time in twenty; one that ignored the queue, far more often."""
    wrong = 0
    for seed in range(12):
        found = differences(queue(100 + seed, 0.012), queue(200 + seed, 0.012), 100)
        wrong += found["latency, p50"].beyond_noise
    assert wrong <= 3


def test_the_interval_is_much_wider_than_independent_samples_would_have_it() -> None:
    results = queue(3, 0.014)
    found = differences(results, results)["latency, mean"]
    latencies = Measured.of(results).latencies
    naive = 2 * 1.96 * math.sqrt(2) * latencies.std() / math.sqrt(len(latencies))
    assert found.high - found.low > 1.5 * naive
    assert not found.beyond_noise


def test_swapping_the_sides_swaps_the_signs() -> None:
    a, b = queue(4, 0.008), queue(5, 0.012)
    there, back = differences(a, b)["latency, p90"], differences(b, a)["latency, p90"]
    assert (there.a, there.b) == (back.b, back.a)
    assert there.low > 0 > back.high


def test_little_data_says_nothing() -> None:
    found = differences(queue(6, 0.008, seconds=5), queue(7, 0.08, seconds=5))
    assert not any(one.beyond_noise for one in found.values())
    assert not found["latency, p99"].enough


def test_what_was_not_answered_is_compared_too() -> None:
    good = queue(8, 0.008)
    samples = [
        dataclasses.replace(s, reply=dataclasses.replace(s.reply, code="RESOURCE_EXHAUSTED"))
        if s.number % 4 == 0
        else s
        for s in good.run.samples
    ]
    bad = Results(dataclasses.replace(good.run, samples=samples))
    found = differences(good, bad)
    assert found["share not answered"].beyond_noise
    assert found["share not answered"].b == pytest.approx(0.25)
    assert found["answered, by due time, /s"].beyond_noise
    assert not found["latency, p50"].beyond_noise


def test_runs_that_differ_from_each_other_widen_the_interval() -> None:
    """Three fast and slow runs a side: the machine's mood is noise as well."""
    a = [
        Measured.of(queue(seed, service)) for seed, service in ((1, 0.008), (2, 0.010), (3, 0.012))
    ]
    b = [
        Measured.of(queue(seed, service)) for seed, service in ((4, 0.009), (5, 0.011), (6, 0.012))
    ]
    by_name = {one.name: one for one in compare(a, b, num_replicates=200)}
    assert not by_name["latency, p50"].beyond_noise


def store(directory: Path, results: Results) -> None:
    writer = ResultsWriter(directory, results.run.plan, results.slo, results.about)
    writer.finish(results, render(results))


def test_percentiles_are_those_of_the_runs_own_reports() -> None:
    results = queue(1, 0.015, seconds=23)
    found, latency = differences(results, results), results.summary().latency
    for percentile in (50, 90, 95):
        said = latency.at(percentile)
        assert found[f"latency, p{percentile}"].a == pytest.approx(said, rel=2e-3)


def test_the_tables_fit_80_columns(tmp_path: Path) -> None:
    store(tmp_path / "a", queue(1, 0.015))
    store(tmp_path / "b", queue(2, 0.018))
    console = Console(record=True, width=80)
    compared = print_comparison(console, tmp_path / "a", tmp_path / "b")
    results = read_side(tmp_path / "a")[0]
    print_results(console, results)
    words = " ".join(console.export_text().split())
    for one in compared:
        assert " ".join(" ".join(row(one)).split()) in words
    for cells in latencies(results.summary()):
        assert " ".join(cells) in words
    assert "…" not in words.replace(" … ", "")


def test_directories_of_runs(tmp_path: Path) -> None:
    store(tmp_path / "a", queue(1, 0.008, seconds=20))
    store(tmp_path / "b" / "1", queue(2, 0.012, seconds=20))
    store(tmp_path / "b" / "2", queue(3, 0.012, seconds=20))
    assert [len(read_side(tmp_path / name)) for name in "ab"] == [1, 2]
    with pytest.raises(ResultsError, match="holds no run"):
        read_side(tmp_path / "c")
    console = Console(record=True, width=120)
    print_comparison(console, tmp_path / "a", tmp_path / "b")
    text = console.export_text()
    assert "differ" in text
    assert "fewer than three runs" in text


def test_unequal_loads_are_named() -> None:
    a, b = queue(1, 0.008), queue(2, 0.008, rate=25.0)
    assert different_loads(a, a) == []
    assert any("rate" in name for name in different_loads(a, b))
    other = Results(a.run, about={"source": {"sha256": "other"}})
    assert different_loads(a, other) == ["the texts"]
