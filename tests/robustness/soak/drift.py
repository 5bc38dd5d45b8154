"""Drift of a series: means and trends with their intervals, and growth between quarters."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

MIN_POINTS = 8

# Quantiles of Student's t, 97.5 %, by degrees of freedom; between them the smaller number counts.
_T = {1: 12.71, 2: 4.303, 4: 2.776, 6: 2.447, 8: 2.306, 10: 2.228, 15: 2.131, 20: 2.086, 30: 2.042}
_MOST_CORRELATED = 0.95


@dataclass(frozen=True)
class Trend:
    """A straight line through a series.

    Attributes:
        mean: mean of the series.
        slope: change in a second.
        low, high: 95 % interval of the slope.
        seconds: time between the first point and the last.
    """

    mean: float
    slope: float
    low: float
    high: float
    seconds: float

    def share(self, slope: float) -> float:
        """A slope as the change over the whole time, as a fraction of the mean."""
        return slope * self.seconds / self.mean if self.mean else 0.0

    def stays(self, tolerated: float) -> bool:
        """Whether the series surely grew by no more than this fraction of its mean.

        False if the interval is too wide to tell.
        """
        return self.share(self.high) <= tolerated

    def rises(self, tolerated: float) -> bool:
        """Whether the series surely grew by more than this fraction of its mean."""
        return self.share(self.low) > tolerated


@dataclass(frozen=True)
class Interval:
    """A mean and its 95 % interval."""

    mean: float
    low: float
    high: float


def interval(values: Sequence[float]) -> Interval | None:
    """The interval of a mean of independent values, by Student's t; None from fewer than two."""
    count = len(values)
    if count < 2:
        return None
    mean = statistics.mean(values)
    margin = _student(count - 1) * statistics.stdev(values) / math.sqrt(count)
    return Interval(mean, mean - margin, mean + margin)


def trend(seconds: Sequence[float], values: Sequence[float]) -> Trend | None:
    """A least-squares line; None from fewer than `MIN_POINTS` points.

    Neighbouring points are correlated, so the series holds less information than its length
    suggests; the interval is wider by the lag-1 autocorrelation of the residuals (as for an AR(1)
    process: Santer et al., 2000, "Statistical significance of trends", equation 6).
    """
    count = len(values)
    if count < MIN_POINTS:
        return None
    times, series = np.asarray(seconds, float), np.asarray(values, float)
    centred = times - times.mean()
    spread = float(centred @ centred)
    slope = float(centred @ (series - series.mean())) / spread
    residuals = series - series.mean() - slope * centred
    correlation = min(_MOST_CORRELATED, max(0.0, _lag_one(residuals)))
    effective = max(3.0, count * (1 - correlation) / (1 + correlation))
    variance = float(residuals @ residuals) / (effective - 2)
    margin = _student(effective - 2) * math.sqrt(variance / spread)
    return Trend(
        float(series.mean()), slope, slope - margin, slope + margin, float(times[-1] - times[0])
    )


def quarters(values: Sequence[float]) -> float | None:
    """The fraction by which the last quarter's median is above the first's.

    It detects steps, which a trend alone hardly shows. None for fewer than `MIN_POINTS` points, or
    if the first quarter's median is zero.
    """
    if len(values) < MIN_POINTS:
        return None
    count = len(values) // 4
    first, last = (statistics.median(part) for part in (values[:count], values[-count:]))
    return last / first - 1 if first else None


def _lag_one(residuals: Array) -> float:
    power = float(residuals @ residuals)
    return float(residuals[:-1] @ residuals[1:]) / power if power else 0.0


def _student(degrees: float) -> float:
    return next((value for limit, value in reversed(_T.items()) if degrees >= limit), _T[1])
