"""Parsing and formatting of durations and latency targets: 500ms, 60s, p99=500ms."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bench.load.errors import PlanError

_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(us|ms|s|m|h|)")
_SLO = re.compile(r"p(\d{1,2}(?:\.\d+)?)\s*=\s*(.+)")


def parse_duration(text: str, name: str) -> float:
    """Seconds of a duration such as 500ms, 60s or 1.5m; a bare number is seconds.

    Args:
        name: the argument's name, for the message.

    Raises:
        PlanError: it is no duration.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise PlanError(f"{name}: {text!r} is not a duration such as 500ms, 60s or 2m")
    return float(match[1]) * _UNITS[match[2]]


@dataclass(frozen=True)
class Slo:
    """A latency target: this share of the requests is answered within this many seconds.

    Attributes:
        percentile: a number in (0, 100), such as 99.
        seconds: the bound.
    """

    percentile: float
    seconds: float

    def __str__(self) -> str:
        return f"p{self.percentile:g}={format_seconds(self.seconds)}"

    @property
    def min_samples(self) -> int:
        """Number of answers needed to say whether the target was met."""
        return min_samples(self.percentile)


def parse_slo(text: str) -> Slo:
    """Parse a latency target such as p99=500ms.

    Raises:
        PlanError: it is not a latency target.
    """
    match = _SLO.fullmatch(text.strip())
    if match is None:
        raise PlanError(f"--slo: {text!r} is not a promise such as p99=500ms")
    slo = Slo(float(match[1]), parse_duration(match[2], "--slo"))
    if slo.percentile <= 0 or slo.seconds <= 0:
        raise PlanError(f"--slo: {text!r} promises nothing: both numbers must be above 0")
    return slo


def min_samples(percentile: float) -> int:
    """Samples from which on a percentile is printed: 10 / (1 - p).

    With fewer, under ten samples lie above it, and it says more about chance than about the server.
    """
    return round(10 / (1 - percentile / 100))


def format_seconds(seconds: float) -> str:
    """Three significant digits and the unit that suits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if abs(seconds) >= size:
            return f"{_three_digits(seconds / size)} {unit}"
    return f"{_three_digits(seconds / 1e-6)} us" if seconds else "0 s"


def _three_digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
