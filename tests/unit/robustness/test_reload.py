"""The report of a load while the model is replaced."""

from __future__ import annotations

from tests.robustness.reload import ReloadBenchmark


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
