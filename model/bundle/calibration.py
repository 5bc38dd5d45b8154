"""Calibration: from a translation's mean log-probability to its expected quality.

A model's probabilities rank its translations, but their scale is the model's own. A table of a few
points, measured on sentences with references (`bench.calibration`), maps them to what they were
worth: chrF (Popović, 2015), from 0 to 1. Between two points the map is linear.
"""

from __future__ import annotations

import bisect
import itertools
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_MAX_POINTS = 1024
_MAX_BINS = 20  # of measured sentences


class CalibrationError(ValueError):
    """A calibration can't be used; the message says which field and why."""


@dataclass(frozen=True)
class Calibration:
    """The map for one direction of a model.

    Attributes:
        source, target: BCP-47 codes of the measured direction.
        scores: mean log-probabilities of a token, end-of-sentence included; ascending.
        expected: chrF at each of them, 0 to 1; never falling.
        num_sentences: number of measured sentences.

    Raises:
        CalibrationError: it is not such a map.
    """

    source: str
    target: str
    scores: tuple[float, ...]
    expected: tuple[float, ...]
    num_sentences: int = 0

    def __post_init__(self) -> None:
        if not 1 <= len(self.scores) <= _MAX_POINTS or len(self.scores) != len(self.expected):
            raise CalibrationError(f"scores and expected don't have 1 to {_MAX_POINTS} points each")
        if any(not a < b for a, b in itertools.pairwise(self.scores)):
            raise CalibrationError("scores is not ascending")
        if any(not a <= b for a, b in itertools.pairwise(self.expected)):
            raise CalibrationError("expected falls")
        if not all(0.0 <= value <= 1.0 for value in self.expected):
            raise CalibrationError("expected is not between 0 and 1")
        if not all(map(math.isfinite, self.scores)):
            raise CalibrationError("scores is not finite")

    @classmethod
    def parse(cls, content: bytes) -> Calibration:
        """Read what `write` wrote.

        Raises:
            CalibrationError: it is no calibration.
        """
        try:
            fields: dict[str, Any] = json.loads(content.decode("utf-8"))
            return cls(
                str(fields["source"]),
                str(fields["target"]),
                tuple(map(float, fields["scores"])),
                tuple(map(float, fields["expected"])),
                int(fields.get("num_sentences", 0)),
            )
        except CalibrationError:
            raise
        except KeyError as exc:
            raise CalibrationError(f"the field {exc.args[0]} is missing") from exc
        except (ValueError, TypeError, AttributeError, RecursionError, OverflowError) as exc:
            raise CalibrationError(f"it is no calibration: {exc}") from exc

    def write(self, file: Path) -> None:
        """Write it as JSON."""
        file.write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")

    def confidence(self, score: float) -> float:
        """The expected chrF of a translation with this mean log-probability, 0 to 1."""
        right = bisect.bisect_left(self.scores, score)
        if right == 0:
            return self.expected[0]
        if right == len(self.scores):
            return self.expected[-1]
        low, high = self.scores[right - 1 : right + 1]
        below, above = self.expected[right - 1 : right + 1]
        # Rounded, the sum can be a bit more than `above`.
        return min(above, below + (above - below) * (score - low) / (high - low))


def fit(source: str, target: str, scores: Sequence[float], values: Sequence[float]) -> Calibration:
    """The calibration of measured sentences.

    Sentences are put into bins of equal number, two or more, by their score. Neighbouring bins
    whose means are in the wrong order are pooled (isotonic regression; Barlow et al., 1972). Each
    bin is a point.

    Args:
        source: BCP-47 code of the source language.
        target: BCP-47 code of the target language.
        scores: mean log-probability of each sentence's translation.
        values: chrF of each translation, 0 to 1.

    Raises:
        CalibrationError: there is no sentence.
    """
    pairs = sorted(zip(scores, values, strict=True))
    if not pairs:
        raise CalibrationError("there is no sentence to measure")
    count = max(1, min(_MAX_BINS, len(pairs) // 2))
    edges = [len(pairs) * index // count for index in range(count + 1)]
    pools: list[Sequence[tuple[float, float]]] = []
    for start, end in itertools.pairwise(edges):
        pools.append(pairs[start:end])
        while len(pools) > 1 and any(map(float.__ge__, _mean(pools[-2]), _mean(pools[-1]))):
            pools[-2:] = [[*pools[-2], *pools[-1]]]
    points = [_mean(pool) for pool in pools]
    return Calibration(
        source, target, tuple(x for x, _ in points), tuple(y for _, y in points), len(pairs)
    )


def _mean(pool: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The mean score and the mean value, to four places."""
    xs, ys = zip(*pool, strict=True)
    return round(statistics.fmean(xs), 4), round(statistics.fmean(ys), 4)
