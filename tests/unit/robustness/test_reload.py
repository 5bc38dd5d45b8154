"""The report of a load while the model is replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.robustness.reload import CallSeconds, ReloadBenchmark, put


def test_calls_during_reloads_stand_apart_and_failures_are_counted() -> None:
    benchmark = ReloadBenchmark(5.0, ["A dog."])
    benchmark.steady.seconds += [0.01] * 99 + [0.5]
    benchmark.during.seconds.append(0.02)
    benchmark.during.failures["UNAVAILABLE"] += 2
    benchmark.reload_seconds.append(1.25)
    *_, steady, during = benchmark.report().splitlines()
    assert steady.startswith("| between reloads | 100 | 10.0 | 10.0 |")
    assert steady.endswith("| 500.0 | none |")
    assert during == "| during a reload | 3 | 20.0 | 20.0 | 20.0 | 20.0 | 2 UNAVAILABLE |"


def test_no_calls_have_no_figures() -> None:
    assert CallSeconds().line("none") == "| none | 0 | - | - | - | - | none |"


@pytest.mark.parametrize("is_there", [False, True])
def test_a_bundle_is_put_in_place_whole(tmp_path: Path, is_there: bool) -> None:
    version, place = tmp_path / "version", tmp_path / "place"
    version.mkdir()
    (version / "bundle.json").write_text("new")
    if is_there:
        place.mkdir()
        (place / "of_the_old_one").write_text("old")
    put(version, place)
    assert [path.name for path in place.iterdir()] == ["bundle.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["place", "version"]
