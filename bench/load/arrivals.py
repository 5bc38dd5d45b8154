"""Arrival times of an open loop, drawn before the run.

The schedule is fixed in advance, so that a slow server cannot slow the arrivals down. Latency
counts from these times: measured from the moment of sending, a stall would hide all the requests
that it kept from being sent ("coordinated omission", Gil Tene, "How NOT to Measure Latency", 2013).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

Arrivals = Literal["poisson", "constant", "gamma"]


def arrival_times(
    kind: Arrivals, rate: float, duration: float, *, seed: int, burstiness: float = 1.0
) -> npt.NDArray[np.float64]:
    """Times of arrival in [0, duration), in seconds, ascending.

    Args:
        kind: "poisson" has exponential gaps (independent users), "constant" equal ones, "gamma"
            gaps of a gamma distribution.
        rate: mean arrivals a second.
        duration: duration in seconds.
        burstiness: for "gamma", the variance of a gap over its squared mean: 1 is Poisson, more is
            burstier, less is more even. (The shape parameter, which vLLM's benchmark calls
            burstiness, is its reciprocal.)
    """
    if kind == "constant":
        return np.arange(int(np.ceil(rate * duration - 1e-9)), dtype=np.float64) / rate
    generator = np.random.default_rng(seed)
    shape = 1.0 if kind == "poisson" else 1.0 / burstiness
    times = np.zeros(0)
    last = 0.0
    while last < duration:
        count = max(64, int(rate * (duration - last) * 1.2))
        gaps = generator.gamma(shape, 1.0 / (rate * shape), count)
        more = last + np.cumsum(gaps)
        times = np.concatenate((times, more))
        last = float(more[-1])
    return times[times < duration]
