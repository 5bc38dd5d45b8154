"""By what figure a sweep's settings are compared."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from bench.load.statistics import Run, Summary, summarise
from bench.load.units import min_samples
from bench.suite.points import Load


class Yardstick(enum.Enum):
    """What settings are compared by, best first for an open loop."""

    TOKENS = "tokens a second"
    P99 = "p99"
    P95 = "p95"
    P90 = "p90"
    MEAN = "mean latency: too few samples for a p90"

    def __str__(self) -> str:
        return self.value


_PERCENTILES = {Yardstick.P99: 99.0, Yardstick.P95: 95.0, Yardstick.P90: 90.0}


def yardstick(summaries: Sequence[Summary], load: Load) -> Yardstick:
    """What the runs of a round at one load are compared by.

    An open loop's tables compare the p99, so its settings are compared by the highest percentile
    up to that which the samples of each can tell; those without an answer, or with an error, lose
    by any.
    """
    if load.concurrency is not None:
        return Yardstick.TOKENS
    counts = [one.latency.count for one in summaries if one.num_ok and not one.num_errors]
    least = min(counts, default=0)
    enough = (one for one, percentile in _PERCENTILES.items() if least >= min_samples(percentile))
    return next(enough, Yardstick.MEAN)


def score(run: Run, load: Load, by: Yardstick) -> float:
    """How well a load is served; higher is better. An error is worse than any delay.

    Tokens a second, or how short the latency is. In a closed loop whose users never pause, the
    former follow from the latter (Little's law); to count what was answered in so short a time
    would tell how many batches happened to end in it.
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
