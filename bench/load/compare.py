"""Comparison of two runs: whether they differ beyond their noise.

Requests of one moment share a queue, so their latencies are not independent, and the intervals of
an ordinary bootstrap would be too small. Here whole stretches of time are drawn with replacement:
the circular block bootstrap (Politis and Romano, 1992). Where each side has several runs, runs are
drawn first, so that what differs from run to run counts too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.load.errors import ResultsError
from bench.load.results import RUN_FILE, Results, read_results
from bench.load.units import min_samples

Floats = npt.NDArray[np.float64]

CONFIDENCE = 0.95
NUM_REPLICATES = 1000
_NUM_BLOCKS = 20
_MIN_SECONDS = 10.0


@dataclass(frozen=True)
class Measured:
    """A run's measured time, as arrays ordered by time.

    Attributes:
        times: [n] when each request was to be sent, from the beginning of the measured time.
        latencies: [n] in seconds; NaN for requests that were not answered.
        tokens: [n] tokens written.
    """

    seconds: float
    times: Floats
    latencies: Floats
    tokens: Floats

    @classmethod
    def of(cls, results: Results) -> Measured:
        """The arrays of a run."""
        run = results.run
        samples = sorted(run.measured(), key=lambda sample: sample.scheduled)
        return cls(
            run.measured_seconds,
            np.array([s.scheduled - run.plan.warmup for s in samples], np.float64),
            np.array([s.latency if s.ok else math.nan for s in samples], np.float64),
            np.array([s.reply.target_tokens if s.ok else 0 for s in samples], np.float64),
        )


Statistic = Callable[[Floats, Floats, float], float]
"""Figures from latencies (NaN: not answered), tokens, and seconds."""


def _percentile(percentile: float) -> Statistic:
    def of(latencies: Floats, tokens: Floats, seconds: float) -> float:
        answered = latencies[~np.isnan(latencies)]
        if not len(answered):
            return math.nan
        # The rank that the histogram of a run's own report takes, so that both say the same.
        rank = max(1, int(percentile * len(answered) / 100 + 0.5)) - 1
        return float(np.partition(answered, rank)[rank])

    return of


def _mean(latencies: Floats, tokens: Floats, seconds: float) -> float:
    return float(np.nanmean(latencies))


def _answers_per_second(latencies: Floats, tokens: Floats, seconds: float) -> float:
    return float((~np.isnan(latencies)).sum()) / seconds


def _tokens_per_second(latencies: Floats, tokens: Floats, seconds: float) -> float:
    return float(tokens.sum()) / seconds


def _share_not_answered(latencies: Floats, tokens: Floats, seconds: float) -> float:
    return float(np.isnan(latencies).mean())


STATISTICS: dict[str, tuple[Statistic, int]] = {
    "latency, mean": (_mean, 30),
    **{f"latency, p{p:g}": (_percentile(p), min_samples(p)) for p in (50.0, 90.0, 95.0, 99.0)},
    # Not "achieved": that counts answers by when they came. Blocks of time need them by due time.
    "answered, by due time, /s": (_answers_per_second, 30),
    "tokens, by due time, /s": (_tokens_per_second, 30),
    "share not answered": (_share_not_answered, 30),
}
"""The figures to compare, and the answers that each needs."""


@dataclass(frozen=True)
class Difference:
    """One figure of two runs.

    Attributes:
        a, b: its value on either side.
        ratio: b / a; None where a is 0.
        low, high: the interval of b - a that holds the true difference with `CONFIDENCE`.
        beyond_noise: whether that interval excludes 0.
        enough: False if there are too few samples to say; then there is no interval.
    """

    name: str
    a: float
    b: float
    low: float
    high: float
    enough: bool

    @property
    def ratio(self) -> float | None:
        """The ratio of b to a; None where a is 0."""
        return self.b / self.a if self.a else None

    @property
    def beyond_noise(self) -> bool:
        """Whether the sides differ by more than chance explains."""
        return self.enough and not self.low <= 0.0 <= self.high


def read_side(directory: Path) -> list[Results]:
    """A run, or all runs in the directories below.

    Raises:
        ResultsError: there is no run.
    """
    if (directory / RUN_FILE).exists():
        return [read_results(directory)]
    runs = sorted(path.parent for path in directory.glob(f"*/{RUN_FILE}"))
    if not runs:
        raise ResultsError(f"{directory} holds no run of `dragoman load`: no {RUN_FILE}")
    return [read_results(path) for path in runs]


def compare(
    a: Sequence[Measured],
    b: Sequence[Measured],
    *,
    seed: int = 0,
    num_replicates: int = NUM_REPLICATES,
) -> list[Difference]:
    """Compare two sides, each of one or several runs."""
    generator = np.random.default_rng(seed)
    replicates = [
        [_figures(_resample(side, generator)) for _ in range(num_replicates)] for side in (a, b)
    ]
    in_a, in_b = (np.array(values) for values in replicates)
    whole_a, whole_b = _figures(a), _figures(b)
    tail = 100 * (1 - CONFIDENCE) / 2
    differences = []
    for index, (name, (_, least)) in enumerate(STATISTICS.items()):
        low, high = np.nanpercentile(in_b[:, index] - in_a[:, index], [tail, 100 - tail])
        differences.append(
            Difference(
                name,
                whole_a[index],
                whole_b[index],
                float(low),
                float(high),
                all(_is_enough(side, name, least) for side in (a, b)),
            )
        )
    return differences


def _is_enough(side: Sequence[Measured], name: str, least: int) -> bool:
    answered = sum(int((~np.isnan(run.latencies)).sum()) for run in side)
    return answered >= least and sum(run.seconds for run in side) >= _MIN_SECONDS


def _figures(runs: Sequence[Measured]) -> list[float]:
    latencies = np.concatenate([run.latencies for run in runs])
    tokens = np.concatenate([run.tokens for run in runs])
    seconds = sum(run.seconds for run in runs)
    if not len(latencies) or np.isnan(latencies).all():
        return [math.nan] * len(STATISTICS)
    return [statistic(latencies, tokens, seconds) for statistic, _ in STATISTICS.values()]


def _resample(runs: Sequence[Measured], generator: np.random.Generator) -> list[Measured]:
    chosen = generator.integers(0, len(runs), len(runs)) if len(runs) > 1 else [0]
    return [_resample_blocks(runs[index], generator) for index in chosen]


def _resample_blocks(run: Measured, generator: np.random.Generator) -> Measured:
    """A resample of the run: blocks of its time, which may wrap around its end."""
    length = run.seconds / _NUM_BLOCKS
    starts = generator.uniform(0.0, run.seconds, _NUM_BLOCKS)
    pieces = [_between(run, start, start + length) for start in starts]
    kept = np.concatenate(pieces)
    return Measured(run.seconds, run.times[kept], run.latencies[kept], run.tokens[kept])


def _between(run: Measured, start: float, stop: float) -> npt.NDArray[np.intp]:
    first, last = np.searchsorted(run.times, (start, stop))
    inside = np.arange(first, last)
    if stop <= run.seconds:
        return inside
    wrapped = np.arange(np.searchsorted(run.times, stop - run.seconds))
    return np.concatenate((inside, wrapped))


def different_loads(a: Results, b: Results) -> list[str]:
    """The differences in plans or texts that make a comparison of two runs unfair."""
    names = []
    mine, theirs = a.run.plan.to_dict(), b.run.plan.to_dict()
    for name in mine:
        if name not in ("server", "seed", "processes") and mine[name] != theirs[name]:
            names.append(f"{name}: {mine[name]} and {theirs[name]}")
    texts = [results.about.get("source", {}).get("sha256") for results in (a, b)]
    if texts[0] != texts[1]:
        names.append("the texts")
    return names
