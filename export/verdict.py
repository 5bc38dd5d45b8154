"""What the comparison of a bundle with its checkpoint proves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from export.confidence import share_bounds
from export.errors import ExportError
from export.probe import Found
from export.reference import Expected, Forced

_GROSS = 2.0  # times a tolerance: no sentence may be as far off, however many there are

_MOSTLY = 0.75  # of the sentences that differ: then it is the checkpoint that is unsure


@dataclass(frozen=True)
class Tolerance:
    """How far a precision may be from the checkpoint.

    Attributes:
        largest: of any log-probability among a position's best tokens.
        mean: of their mean absolute difference over everything.
        tie: two tokens whose log-probabilities in the checkpoint differ by less may change places.
        identical: share of the sentences that have to be translated without even that.
        noise: what rounding explains of the difference between two tokens' log-probabilities.
        disagreeing: share of the sentences that may break `largest` or `tie`. The largest of many
            differences grows with their number, also where nothing is wrong.
    """

    largest: float
    mean: float
    tie: float
    identical: float
    noise: float = 0.0
    disagreeing: float = 0.0


TOLERANCES = {
    "fp32": Tolerance(largest=1e-3, mean=1e-4, tie=1e-4, identical=0.9, noise=2e-5),
    "fp16": Tolerance(largest=0.1, mean=0.01, tie=0.05, identical=0.75, noise=0.01),
    # Measured on trained models of the preset `small`: sound bundles differ by up to 0.026 on
    # average and 0.23 at most, prefer no token that is 0.04 worse, and 9 to 11 of 12 sentences are
    # identical. Noise of 3 % on every weight matrix makes that 0.05 to 0.068, up to 0.9, 0.12 to
    # 0.35, and 6 to 9. Over 300 sentences of 17 tokens the model that ships differs by 0.026 on
    # average and 0.47 at most; 76 % are identical, and of the 71 others 69 begin to differ where
    # the checkpoint is sure by less than 0.1. In one the bundle prefers a token that is 0.25 worse:
    # one too many of the built-in sentences, and not of a hundred.
    "int8": Tolerance(largest=0.5, mean=0.04, tie=0.2, identical=0.5, noise=0.1, disagreeing=0.01),
}


@dataclass(frozen=True)
class Proof:
    """What the comparison found.

    Attributes:
        num_sentences: compared.
        num_identical: sentences whose greedy translations are equal, token by token.
        num_ties: of the others those where the checkpoint's best token and its second best are
            within the noise at the first difference.
        num_disagreeing: those that break a tolerance.
        num_tokens: target positions compared.
        num_unsure: positions at which the two are.
        largest_difference, mean_difference: of log-probabilities.
        noise: of the precision, in nats, see `Tolerance`.
    """

    num_sentences: int
    num_identical: int
    num_ties: int
    num_disagreeing: int
    num_tokens: int
    num_unsure: int
    largest_difference: float
    mean_difference: float
    noise: float


@dataclass(frozen=True)
class Comparison:
    """One sentence, T target tokens.

    Attributes:
        differences: [T, k] of log-probabilities, absolute.
        gaps: [T] how much less the checkpoint likes the bundle's best token than its own.
        margins: [T] how much less the checkpoint likes its second best token than its best.
        score_difference: the largest of the scoring graph's log-probabilities.
        attention_difference: the mean of its attention weights.
    """

    differences: npt.NDArray[np.float64]
    gaps: npt.NDArray[np.float64]
    margins: npt.NDArray[np.float64]
    score_difference: float
    attention_difference: float


def compare(forced: Forced, expected: Expected, found: Found) -> Comparison:
    """The bundle and the checkpoint on one sentence."""
    log_probabilities = expected.log_probabilities  # [T, V]
    best_two = np.partition(log_probabilities, -2, axis=1)[:, -2:]
    same = np.take_along_axis(log_probabilities, found.top_ids, axis=1)
    chosen = log_probabilities[range(len(forced.target_ids)), list(forced.target_ids)]
    return Comparison(
        np.abs(found.top_log_probabilities - same),
        best_two[:, 1] - same[:, 0],
        best_two[:, 1] - best_two[:, 0],
        float(np.abs(found.scores - chosen).max()),
        float(np.abs(found.attention - expected.attention).mean()),
    )


class Verdict:
    """Collects comparisons, and ends with a proof or an error.

    Args:
        tolerance: what is allowed.
        precision: of the bundle, for messages.
        num_sentences: how many comparisons there will be.
    """

    def __init__(self, tolerance: Tolerance, precision: str, num_sentences: int) -> None:
        self._tolerance = tolerance
        self._precision = precision
        self._num_sentences = num_sentences
        self._num_identical = self._num_ties = self._num_disagreeing = 0
        self._num_tokens = self._num_unsure = self._num_differences = 0
        self._largest = self._sum = 0.0

    def add(self, sentence: str, compared: Comparison) -> None:
        """Take in one sentence.

        Raises:
            ExportError: it is far off, or one too many that is off.
        """
        noise = self._tolerance.noise
        different = np.flatnonzero(compared.gaps)
        self._num_identical += not len(different)
        self._num_ties += bool(len(different) and compared.margins[different[0]] <= noise)
        self._num_tokens += len(compared.gaps)
        self._num_unsure += int((compared.margins <= noise).sum())
        self._num_differences += compared.differences.size
        self._sum += float(compared.differences.sum())
        self._largest = max(self._largest, float(compared.differences.max()))
        excess, complaint = max(self._complaints(compared))
        if excess <= 1.0:
            return
        self._num_disagreeing += 1
        share, _ = share_bounds(self._num_disagreeing, self._num_sentences)
        if excess > _GROSS or share > self._tolerance.disagreeing:
            before = self._num_disagreeing - 1
            others = f", after {before} others that disagreed" if before else ""
            raise ExportError(f"on {sentence!r} {complaint}{others}: {self._remedy()}")

    def _complaints(self, compared: Comparison) -> list[tuple[float, str]]:
        """By how much each tolerance is broken (above 1), and what to say of it."""
        tolerance, name = self._tolerance, f"the {self._precision} bundle"
        largest, gap = compared.differences.max(), compared.gaps.max()
        score, attention = compared.score_difference, compared.attention_difference
        return [
            (
                _ratio(largest, tolerance.largest),
                f"a log-probability of {name} differs from the checkpoint's by {largest:.3g}, "
                f"allowed are {tolerance.largest:g}",
            ),
            (
                _ratio(gap, tolerance.tie),
                f"{name} prefers another token at position {int(compared.gaps.argmax())} than the "
                f"checkpoint, where they are {gap:.3g} apart; up to {tolerance.tie:g} would pass "
                f"as a tie",
            ),
            (
                max(_ratio(score, tolerance.largest), _ratio(attention, tolerance.mean)),
                f"{name}'s scoring graph differs from the checkpoint by {score:.3g} in a "
                f"log-probability and {attention:.3g} in the mean attention weight, allowed are "
                f"{tolerance.largest:g} and {tolerance.mean:g}",
            ),
        ]

    def _remedy(self) -> str:
        return "use another precision, or report a defect if this is fp32"

    def proof(self) -> Proof:
        """What was found, once every sentence was added.

        Raises:
            ExportError: the sentences together differ by more than the tolerance.
        """
        mean = self._sum / self._num_differences
        if not mean <= self._tolerance.mean:
            raise ExportError(
                f"the {self._precision} bundle's log-probabilities differ from the checkpoint's "
                f"by {mean:.3g} on average, allowed are {self._tolerance.mean:g}: {self._remedy()}"
            )
        self._check_identical()
        return Proof(
            self._num_sentences,
            self._num_identical,
            self._num_ties,
            self._num_disagreeing,
            self._num_tokens,
            self._num_unsure,
            self._largest,
            mean,
            self._tolerance.noise,
        )

    def _check_identical(self) -> None:
        total, identical = self._num_sentences, self._num_identical
        required = int(self._tolerance.identical * total)
        if identical >= required:
            return
        others, (_, most) = total - identical, share_bounds(identical, total)
        reasons = [
            f"the {self._precision} bundle translates only {identical} of {total} sentences token "
            f"by token like the checkpoint, required are {required}"
        ]
        if self._num_ties >= _MOSTLY * others:
            reasons.append(
                f"{self._num_ties} of the {others} others begin to differ where the checkpoint "
                f"holds its two best tokens for equal within {self._tolerance.noise:g} nats, as it "
                f"does at {self._num_unsure / self._num_tokens:.0%} of all positions: it is "
                f"unsure, which is no defect of the bundle. Train longer, or use fp32"
            )
        else:
            reasons.append(
                f"{others - self._num_ties} of the {others} others begin to differ where the "
                f"checkpoint is surer than by {self._tolerance.noise:g} nats: {self._remedy()}"
            )
        if most >= self._tolerance.identical:
            reasons.append(
                f"{total} sentences are too few to be certain: up to {most:.0%} of all could be "
                f"identical. Give more with --sentences"
            )
        raise ExportError("; ".join(reasons))


def _ratio(value: float, limit: float) -> float:
    """`value / limit`; infinite where `value` is not a number, so that it fails."""
    return float(value) / limit if value == value else float("inf")
