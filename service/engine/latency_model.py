"""Latency model: the duration of a step and the length of answers, learnt online.

It learns from the step loop's reports, so that no machine and no model has to be calibrated. Before
the first report, it assumes that the engine is infinitely fast, so that nothing is refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# Rate of the moving averages: a value from 1 / rate reports ago has about a third of the weight.
_RATE = 1 / 128
# Steps of a width before their average is used, unless no width has as many.
_MIN_STEPS = 16
# A step longer than this many times the average was a stall and is counted as this long. If the
# average of a width's first steps is this many times longer than the next step, they were stalls.
_OUTLIER = 8.0
# Weight of the prior (one target token for each source token), in source tokens.
_PRIOR_TOKENS = 100.0
# The quantile that is taken as the length of the shortest answers, and its estimate's step size.
_QUANTILE = 0.1
_QUANTILE_STEP = 0.02
# The share of the widest batch's throughput that is enough; see `LatencyModel.enough_rows`.
_ENOUGH = 0.95


@dataclass
class _WidthAverage:
    """Steps of similar width.

    Attributes:
        num_rows: moving average of the number of rows.
        seconds: moving average of the duration.
        num_steps: number of steps; a step of some of the rows counts as their fraction.
    """

    num_rows: float
    seconds: float
    num_steps: float = 1.0


@dataclass(frozen=True)
class CompletionEstimate:
    """Estimated time that a busy engine takes for a request, in seconds.

    Attributes:
        least: time that an idle engine would take.
        wait: shortest wait for rows.
        steps: time of the request's steps in the batch that it would join.
    """

    least: float
    wait: float
    steps: float

    def after(self, other: CompletionEstimate) -> CompletionEstimate:
        """The estimate for both requests, one after the other."""
        return CompletionEstimate(
            self.least + other.least, self.wait + other.wait, self.steps + other.steps
        )


class LatencyModel:
    """Latency estimates of one engine.

    A step of n rows takes a + b n seconds: the weights are read once, whatever n, and each row adds
    its arithmetic. In measurements, this held within about 10 % from 1 to 64 rows. The time of
    encodes in stepping iterations, one for each row, is part of b. Encodes on a thread of their own
    are a separate limit.

    Args:
        max_rows: number of rows of the widest step.
    """

    def __init__(self, max_rows: int) -> None:
        self._max_rows = max_rows
        self._is_warm = False
        # One average for each power of two, so that hours at one width don't displace the others.
        self._averages: dict[int, _WidthAverage] = {}
        self._source_tokens = self._steps = _PRIOR_TOKENS
        self._num_sources = 0
        self._mean_source_tokens = 0.0
        self._shortest = 0.0  # the quantile, as a share of the expected steps
        self._encode_seconds = 0.0  # for a row, if sources are encoded beside the steps
        self._num_encodes = 0
        self._line: tuple[float, float] | None = (0.0, 0.0)

    # --- events ----------------------------------------------------------------------------------

    def stepped(self, num_rows: int, seconds: float, share: float = 1.0) -> None:
        """Learn from an iteration.

        Args:
            num_rows: rows that stepped at that time, in all lanes.
            seconds: duration of the iteration, encoding included.
            share: fraction of these rows that belongs to the iteration. Other lanes report their
                own iterations; the weight keeps short iterations of few rows from dominating.
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
        """Learn from an encode beside the steps: its number of rows and its duration."""
        self._num_encodes += 1
        rate = max(_RATE, 1 / self._num_encodes)
        self._encode_seconds += rate * (seconds / num_rows - self._encode_seconds)

    def submitted(self, num_source_tokens: int) -> None:
        """Learn from the source length of a submitted sequence."""
        self._num_sources += 1
        rate = max(_RATE, 1 / self._num_sources)
        self._mean_source_tokens += rate * (num_source_tokens - self._mean_source_tokens)

    def finished(self, num_source_tokens: int, num_steps: int) -> None:
        """Learn from a sequence that ended by itself after `num_steps` steps."""
        share = num_steps / self.expected_steps(num_source_tokens)
        # Stochastic approximation (Robbins and Monro, 1951) of the quantile.
        self._shortest += _QUANTILE_STEP * (_QUANTILE - (share < self._shortest))
        self._shortest = max(0.0, self._shortest)
        self._source_tokens += num_source_tokens - _RATE * self._source_tokens
        self._steps += num_steps - _RATE * self._steps

    # --- estimates -------------------------------------------------------------------------------

    @property
    def mean_steps(self) -> float:
        """Expected number of steps of recently submitted sequences.

        Not the mean of finished sequences: for some time after a start, these are the shortest.
        """
        return self.expected_steps(self._mean_source_tokens)

    def expected_steps(self, num_source_tokens: float) -> float:
        """Expected number of target tokens for a source of this length, EOS included."""
        return max(1.0, num_source_tokens * self._steps / self._source_tokens)

    def least_steps(self, num_source_tokens: int) -> float:
        """Number of target tokens that nine of ten such sources reach, EOS included."""
        return max(1.0, self._shortest * self.expected_steps(num_source_tokens))

    def step_seconds(self, num_rows: int) -> float:
        """Expected duration of a step of `num_rows` rows."""
        start, slope = self._fitted()
        return start + slope * num_rows

    def least_step_seconds(self, num_rows: int) -> float:
        """Lower estimate of the duration of a step of `num_rows` rows.

        After wide steps were slow for a while, the fitted line is too high for narrow steps until
        wide steps correct it. If the line alone decided, requests would be refused and no step
        would become wide again.
        """
        seconds = self.step_seconds(num_rows)
        own = self._averages.get(num_rows.bit_length())
        if own is None or own.num_steps < _MIN_STEPS:
            return seconds
        return min(seconds, own.seconds)

    def rows_per_second(self) -> float:
        """Throughput of the widest batch, in tokens per second; infinite if unknown."""
        # Sources that are encoded beside the steps have to keep up with them.
        encodes = self._max_rows * self._encode_seconds / self.mean_steps
        seconds = max(self.step_seconds(self._max_rows), encodes)
        return self._max_rows / seconds if seconds > 0.0 else math.inf

    def sequence_seconds(self) -> float:
        """Time of a sequence of mean length in the widest batch, in seconds; 0 if unknown."""
        return self.mean_steps * self.step_seconds(self._max_rows)

    def enough_rows(self) -> int:
        """The smallest number of rows that reaches 95 % of the widest batch's throughput.

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
        """The coefficients a and b, fitted by least squares."""
        if self._line is None:
            self._line = _fit(list(self._averages.values()))
        return self._line


def _fit(averages: list[_WidthAverage]) -> tuple[float, float]:
    """Fit a line through the widest steps, which matter most, by least squares to the others."""
    known = [average for average in averages if average.num_steps >= _MIN_STEPS] or averages
    widest = max(known, key=lambda average: average.num_rows)
    products = squares = 0.0
    for average in known:
        rows = widest.num_rows - average.num_rows
        seconds = widest.seconds - average.seconds
        if average.seconds > 0.0:
            # Errors are relative to the duration and weighted by the number of steps.
            weight = min(average.num_steps, 1 / _RATE) / average.seconds**2
            products += weight * rows * seconds
            squares += weight * rows**2
    slope = products / squares if squares > 0.0 else 0.0
    # Neither part can be negative.
    slope = min(max(slope, 0.0), widest.seconds / widest.num_rows)
    return widest.seconds - slope * widest.num_rows, slope
