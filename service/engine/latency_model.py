"""Latency model: how long a step takes and how long answers get, learnt online.

It learns from what the step loop reports, so no machine and no model has to be calibrated. Before
anything was reported, it estimates that the engine is infinitely fast: nothing is refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# Rate of the moving averages: what lies 1 / rate reports back has a weight of a third.
_RATE = 1 / 128
# Steps of a width before their average is believed, where there is another.
_MIN_STEPS = 16
# Times the average: a longer step was a stall and counts as this long. And if the average of a
# width's first few steps is so much longer than the next step, these were stalls.
_OUTLIER = 8.0
# Weight of the prior, one target token a source token, in source tokens.
_PRIOR_TOKENS = 100.0
# The quantile that stands for the shortest answers, and the step size of its estimate.
_QUANTILE = 0.1
_QUANTILE_STEP = 0.02
# The share of the widest batch's throughput that is enough; see `LatencyModel.enough_rows`.
_ENOUGH = 0.95


@dataclass
class _WidthAverage:
    """Steps of similar width.

    Attributes:
        num_rows, seconds: moving averages.
        num_steps: how many there were; a step of some of the rows counts as their share.
    """

    num_rows: float
    seconds: float
    num_steps: float = 1.0


class LatencyModel:
    """Estimates of one engine.

    A step of n rows takes a + b n seconds: the weights are read once, whatever n, and each row adds
    its arithmetic. Measured, this holds within some 10 % from 1 to 64 rows. Where sources are
    encoded in the iterations that step, once for each row, that is part of b. Where they are
    encoded beside the steps, that is a limit of its own.

    Args:
        max_rows: rows of the widest step.
    """

    def __init__(self, max_rows: int) -> None:
        self._max_rows = max_rows
        self._is_warm = False
        # By powers of two, so that hours at one width don't displace the others.
        self._averages: dict[int, _WidthAverage] = {}
        self._source_tokens = self._steps = _PRIOR_TOKENS
        self._num_sources = 0
        self._mean_source_tokens = 0.0
        self._shortest = 0.0  # the quantile, as a share of the expected steps
        self._encode_seconds = 0.0  # of a row, where sources are encoded beside the steps
        self._num_encodes = 0
        self._line: tuple[float, float] | None = (0.0, 0.0)

    # --- events ----------------------------------------------------------------------------------

    def stepped(self, num_rows: int, seconds: float, share: float = 1.0) -> None:
        """An iteration took so long, encoding included.

        Args:
            num_rows: rows that stepped at that time, in all lanes.
            seconds: its duration.
            share: the part of these rows that it stepped. Other lanes report their own iterations;
                the weight keeps quick iterations of few rows from counting more than they bring.
        """
        if not self._is_warm:  # the first step reads the weights from the disk
            self._is_warm = True
            return
        width = num_rows.bit_length()
        average = self._averages.get(width)
        self._line = None
        if average is None or (
            average.num_steps < _MIN_STEPS and average.seconds > _OUTLIER * seconds > 0.0
        ):
            self._averages[width] = _WidthAverage(num_rows, seconds, share)
            return
        if average.seconds > 0.0:
            seconds = min(seconds, _OUTLIER * average.seconds)
        average.num_steps += share
        rate = share * max(_RATE, 1 / average.num_steps)
        average.num_rows += rate * (num_rows - average.num_rows)
        average.seconds += rate * (seconds - average.seconds)

    def encoded(self, num_rows: int, seconds: float) -> None:
        """An encode beside the steps, for so many rows, took so long."""
        self._num_encodes += 1
        rate = max(_RATE, 1 / self._num_encodes)
        self._encode_seconds += rate * (seconds / num_rows - self._encode_seconds)

    def submitted(self, num_source_tokens: int) -> None:
        """A sequence was submitted."""
        self._num_sources += 1
        rate = max(_RATE, 1 / self._num_sources)
        self._mean_source_tokens += rate * (num_source_tokens - self._mean_source_tokens)

    def finished(self, num_source_tokens: int, num_steps: int) -> None:
        """A sequence ended by itself, after so many steps."""
        share = num_steps / self.expected_steps(num_source_tokens)
        # Stochastic approximation (Robbins and Monro, 1951) of the quantile.
        self._shortest += _QUANTILE_STEP * (_QUANTILE - (share < self._shortest))
        self._shortest = max(0.0, self._shortest)
        self._source_tokens += num_source_tokens - _RATE * self._source_tokens
        self._steps += num_steps - _RATE * self._steps

    # --- estimates -------------------------------------------------------------------------------

    @property
    def mean_steps(self) -> float:
        """Expected steps of the sequences that were submitted lately.

        Not the mean of those that ended: for some time after a start, these are the shortest.
        """
        return self.expected_steps(self._mean_source_tokens)

    def expected_steps(self, num_source_tokens: float) -> float:
        """Expected target tokens of a source of this length, EOS included."""
        return max(1.0, num_source_tokens * self._steps / self._source_tokens)

    def least_steps(self, num_source_tokens: int) -> float:
        """Target tokens that nine of ten such sources reach, EOS included."""
        return max(1.0, self._shortest * self.expected_steps(num_source_tokens))

    def step_seconds(self, num_rows: int) -> float:
        """How long a step of so many rows takes."""
        start, slope = self._fitted()
        return start + slope * num_rows

    def least_step_seconds(self, num_rows: int) -> float:
        """How long a step of so many rows takes at least.

        After wider steps were slow for a while, the line is too high for narrow ones until there
        are wide ones again. There never would be, if requests were refused by the line alone.
        """
        seconds = self.step_seconds(num_rows)
        own = self._averages.get(num_rows.bit_length())
        if own is None or own.num_steps < _MIN_STEPS:
            return seconds
        return min(seconds, own.seconds)

    def rows_per_second(self) -> float:
        """Throughput of the widest batch, in tokens over all rows; infinite if unknown."""
        # Sources that are encoded beside the steps have to keep up with them.
        encodes = self._max_rows * self._encode_seconds / self.mean_steps
        seconds = max(self.step_seconds(self._max_rows), encodes)
        return self._max_rows / seconds if seconds > 0.0 else math.inf

    def sequence_seconds(self) -> float:
        """How long a sequence of mean length runs in the widest batch; 0 if unknown."""
        return self.mean_steps * self.step_seconds(self._max_rows)

    def enough_rows(self) -> int:
        """The fewest rows whose throughput is 95 % of that of the widest batch.

        More rows add latency and hardly any throughput.
        """
        start, slope = self._fitted()
        wanted = _ENOUGH * self._max_rows
        rest = start + slope * self._max_rows - wanted * slope
        if rest <= 0.0:
            return self._max_rows
        # n / (a + b n) >= 0.95 N / (a + b N)
        return min(self._max_rows, max(1, math.ceil(wanted * start / rest)))

    def _fitted(self) -> tuple[float, float]:
        """a and b, by least squares."""
        if self._line is None:
            self._line = _fit(list(self._averages.values()))
        return self._line


def _fit(averages: list[_WidthAverage]) -> tuple[float, float]:
    """The line through the widest steps, which matter most, and as near the others as can be."""
    known = [average for average in averages if average.num_steps >= _MIN_STEPS] or averages
    widest = max(known, key=lambda average: average.num_rows)
    products = squares = 0.0
    for average in known:
        rows = widest.num_rows - average.num_rows
        seconds = widest.seconds - average.seconds
        if average.seconds > 0.0:
            # Errors are relative to the duration, and weigh more where it was seen often.
            weight = min(average.num_steps, 1 / _RATE) / average.seconds**2
            products += weight * rows * seconds
            squares += weight * rows**2
    slope = products / squares if squares > 0.0 else 0.0
    # Neither part can be negative.
    slope = min(max(slope, 0.0), widest.seconds / widest.num_rows)
    return widest.seconds - slope * widest.num_rows, slope
