"""The figure by which a sweep's settings are compared."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from bench.load.statistics import Run, Summary, summarise
from bench.load.units import min_samples
from bench.suite.points import Load


class Yardstick(enum.Enum):
    """The figures by which settings are compared, best first for an open loop."""

    TOKENS = "tokens a second"
    P99 = "p99"
    P95 = "p95"
    P90 = "p90"
    MEAN = "mean latency: too few samples for a p90"

    def __str__(self) -> str:
        return self.value


_PERCENTILES = {Yardstick.P99: 99.0, Yardstick.P95: 95.0, Yardstick.P90: 90.0}


def yardstick(summaries: Sequence[Summary], load: Load) -> Yardstick:
    """The figure to compare the runs of a round by.

    An open loop's tables compare the p99, so its settings are compared by the highest percentile
    up to that for which every run has enough samples. Runs without an answer or with an error lose
    by any figure.
    """
    if load.concurrency is not None:
        return Yardstick.TOKENS
    counts = [one.latency.count for one in summaries if one.num_ok and not one.num_errors]
    least = min(counts, default=0)
    enough = (one for one, percentile in _PERCENTILES.items() if least >= min_samples(percentile))
    return next(enough, Yardstick.MEAN)


def score(run: Run, load: Load, by: Yardstick) -> float:
    """The score of a run; higher is better. An error is worse than any delay.

    Tokens a second, or the negative latency. In a closed loop whose users never pause, throughput
    follows from latency (Little's law). Counting answers would depend on how many batches happened
    to end in so short a time.
    """
    summary = summarise(run)
    if summary.num_errors:
        return float("-inf")
    if load.concurrency is not None:
        answered = [one for one in run.measured() if one.ok]
        waited = sum(one.latency for one in answered)
        tokens = sum(one.reply.target_tokens for one in answered)
        return load.concurrency * tokens / waited if waited else 0.0
    latency = summary.latency
    found = latency.mean if by is Yardstick.MEAN else latency.at(_PERCENTILES[by])
    return -(found or float("inf"))
