"""What an engine has learnt of its own speed: how long a step takes, and how long answers get.

Everything is learnt online from what the step loop reports, so that no machine and no model has to
be calibrated. Nothing is assumed before it was seen: an engine that knows nothing estimates that it
is infinitely fast, and refuses nobody.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# Of the moving averages: what lies so many (1 / rate) reports back counts for a third.
_RATE = 1 / 128
_MIN_STEPS = 16  # before their mean is believed, where there is another
# Times the average: a longer step was a stall and counts as this long. So much longer than a step,
# the average of the first few was of stalls.
_OUTLIER = 8.0
# Source tokens that a ratio of 1 is believed for before any answer was seen.
_PRIOR_TOKENS = 100.0
# The shortest answers: so many lie below.
_QUANTILE = 0.1
_QUANTILE_STEP = 0.02
# How much of the widest batch's throughput is enough. See `LatencyModel.enough_rows`.
_ENOUGH = 0.95


@dataclass
class _Mean:
    """Of steps of similar width.

    Attributes:
        num_rows, seconds: moving averages.
        num_steps: how many there were; one that only a part of the rows made counts as that part.
    """

    num_rows: float
    seconds: float
    num_steps: float = 1.0


class LatencyModel:
    """Estimates of one engine.

    A step of n rows is taken to last a + b n seconds: weights have to be read however few rows
    there are, and each row adds its arithmetic. Measured, this holds within some 10 % from 1 to 64
    rows. Encoding, which happens in the same turns of the loop and for each row once, is in b.
    Where it happens beside them, it is a limit of its own.

    Args:
        max_rows: rows of the widest step.
    """

    def __init__(self, max_rows: int) -> None:
        self._max_rows = max_rows
        self._was_first = False
        # By powers of two, so that hours at one width don't let the others be forgotten.
        self._means: dict[int, _Mean] = {}
        self._source_tokens = self._steps = _PRIOR_TOKENS
        self._num_sources = 0
        self._mean_source_tokens = 0.0
        self._shortest = 0.0  # share of the expected steps, at the quantile
        self._encode_seconds = 0.0  # of a row, where encodes go beside the steps
        self._num_encodes = 0
        self._line: tuple[float, float] | None = (0.0, 0.0)

    # --- reports ---------------------------------------------------------------------------------

    def stepped(self, num_rows: int, seconds: float, share: float = 1.0) -> None:
        """A turn of the loop, encoding included, took so long.

        Args:
            num_rows: that stepped at that time.
            seconds: that it took.
            share: the part of these rows whose turn it was. The others step at times of their own,
                and report them: weighted so, quick turns of few rows count no more than they bring.
        """
        if not self._was_first:  # it read the weights from the disk: not the engine's pace
            self._was_first = True
            return
        width = num_rows.bit_length()
        mean = self._means.get(width)
        self._line = None
        if mean is None or (
            mean.num_steps < _MIN_STEPS and mean.seconds > _OUTLIER * seconds > 0.0
        ):
            self._means[width] = _Mean(num_rows, seconds, share)
            return
        if mean.seconds > 0.0:
            seconds = min(seconds, _OUTLIER * mean.seconds)
        mean.num_steps += share
        rate = share * max(_RATE, 1 / mean.num_steps)
        mean.num_rows += rate * (num_rows - mean.num_rows)
        mean.seconds += rate * (seconds - mean.seconds)

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
        """A sequence has come to its end by itself, after so many steps."""
        share = num_steps / self.expected_steps(num_source_tokens)
        # Robbins and Monro (1951): in balance where the quantile lies below.
        self._shortest += _QUANTILE_STEP * (_QUANTILE - (share < self._shortest))
        self._shortest = max(0.0, self._shortest)
        self._source_tokens += num_source_tokens - _RATE * self._source_tokens
        self._steps += num_steps - _RATE * self._steps

    # --- estimates -------------------------------------------------------------------------------

    @property
    def mean_steps(self) -> float:
        """Of the sequences that were submitted lately.

        Not the mean of those that have ended: for some time after a start, these are the shortest.
        """
        return self.expected_steps(self._mean_source_tokens)

    def expected_steps(self, num_source_tokens: float) -> float:
        """How many tokens the answer to such a source has, EOS included."""
        return max(1.0, num_source_tokens * self._steps / self._source_tokens)

    def least_steps(self, num_source_tokens: int) -> float:
        """How many it has at least, with few exceptions."""
        return max(1.0, self._shortest * self.expected_steps(num_source_tokens))

    def step_seconds(self, num_rows: int) -> float:
        """How long a step of so many rows takes."""
        start, slope = self._fitted()
        return start + slope * num_rows

    def least_step_seconds(self, num_rows: int) -> float:
        """How long a step of so many rows takes at least.

        Should wider steps have been slow for a while, the line is too high for the narrow ones
        until there are wide ones again. If all were refused by the line, there would never be any.
        """
        seconds = self.step_seconds(num_rows)
        own = self._means.get(num_rows.bit_length())
        if own is None or own.num_steps < _MIN_STEPS:
            return seconds
        return min(seconds, own.seconds)

    def rows_per_second(self) -> float:
        """Tokens that the widest batch brings in a second, over all rows; infinite if unknown."""
        # Each row of it has to be encoded while it steps, where that does not add to the step.
        encodes = self._max_rows * self._encode_seconds / self.mean_steps
        seconds = max(self.step_seconds(self._max_rows), encodes)
        return self._max_rows / seconds if seconds > 0.0 else math.inf

    def sequence_seconds(self) -> float:
        """How long a sequence of mean length runs in the widest batch; 0 if unknown."""
        return self.mean_steps * self.step_seconds(self._max_rows)

    def enough_rows(self) -> int:
        """The fewest rows whose throughput is 95 % of that of the widest batch.

        More rows hardly answer more sequences, they only answer each one later.
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
            self._line = _fit(list(self._means.values()))
        return self._line


def _fit(means: list[_Mean]) -> tuple[float, float]:
    """The line through the widest steps, which matter most, and as near the others as can be."""
    known = [mean for mean in means if mean.num_steps >= _MIN_STEPS] or means
    widest = max(known, key=lambda mean: mean.num_rows)
    products = squares = 0.0
    for mean in known:
        narrower, quicker = widest.num_rows - mean.num_rows, widest.seconds - mean.seconds
        if mean.seconds > 0.0:
            # Errors count relative to the time itself, and more where it was seen often.
            weight = min(mean.num_steps, 1 / _RATE) / mean.seconds**2
            products += weight * narrower * quicker
            squares += weight * narrower**2
    slope = products / squares if squares > 0.0 else 0.0
    # Neither part can be negative.
    slope = min(max(slope, 0.0), widest.seconds / widest.num_rows)
    return widest.seconds - slope * widest.num_rows, slope
