"""A soak's samples and scrapes as a series of equal slices of time."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from bench.load.results import Results
from bench.load.statistics import histogram, percentile_of
from bench.load.units import min_samples

_MEMORY = "process_resident_memory_bytes"
_PERCENTILES = (99.0, 95.0, 90.0)


@dataclass(frozen=True)
class TimeSlice:
    """A minute, or a shorter slice of a short soak.

    Attributes:
        begin: start, in seconds from the beginning of the measured time.
        num_ok: number of answered requests that were due in it.
        p50, high: latencies in seconds at the median and at `high_percentile`; None with too few
            samples.
        memory_bytes: median of the resident memory; None without a scrape.
    """

    begin: float
    num_ok: int
    p50: float | None
    high: float | None
    memory_bytes: float | None


def high_percentile(num_samples: float) -> float:
    """The highest percentile for which `num_samples` samples are enough."""
    return next((p for p in _PERCENTILES if num_samples >= min_samples(p)), _PERCENTILES[-1])


def time_slices(results: Results, seconds: float, percentile: float) -> list[TimeSlice]:
    """The whole slices of the measured time, in order."""
    run = results.run
    made = []
    for number in range(int(run.measured_seconds / seconds + 1e-9)):
        begin = number * seconds
        low, high = run.plan.warmup + begin, run.plan.warmup + begin + seconds
        counts = histogram(s.latency for s in run.samples if s.ok and low <= s.scheduled < high)
        memory = [
            snapshot.values[_MEMORY]
            for snapshot in results.snapshots
            if low <= snapshot.seconds < high and _MEMORY in snapshot.values
        ]
        made.append(
            TimeSlice(
                begin,
                counts.get_total_count(),
                percentile_of(counts, 50),
                percentile_of(counts, percentile),
                statistics.median(memory) if memory else None,
            )
        )
    return made


def errors(parts: Sequence[Results]) -> dict[str, int]:
    """Failed requests of all loads, by code."""
    failed = (s.reply.code for results in parts for s in results.run.samples if s.failed)
    return dict(sorted(Counter(failed).items()))
