"""Runs for tests, without a server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.load.plan import LoadPlan
from bench.load.sample import ReplySample, RequestSample
from bench.load.statistics import Run


def sample(number: int, scheduled: float, latency: float, **reply: Any) -> RequestSample:
    return RequestSample(number, scheduled, scheduled, scheduled + latency, ReplySample(**reply))


def open_run(latencies: Sequence[float], rate: float = 100.0, **fields: Any) -> Run:
    """A run at a constant rate with these latencies and no warm-up."""
    seconds = len(latencies) / rate
    plan = LoadPlan("server:1", rate=rate, arrivals="constant", duration=seconds, warmup=0)
    samples = [
        sample(n, n / rate, latency, target_tokens=10) for n, latency in enumerate(latencies)
    ]
    values: dict[str, Any] = {"lags": [], "seconds": seconds, "num_scheduled": len(latencies)}
    return Run(plan=plan, samples=samples, **{**values, **fields})
