"""Tolerances of the parity check, and the decision whether a bundle passes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from export.errors import ExportError
from export.onnx_outputs import OnnxOutputs
from export.shortlists import ShortlistAgreement
from export.torch_outputs import ForcedTranslation, TorchOutputs

# A difference of this many times the tolerance fails the check even in a single sentence.
_GROSS = 2.0
# If this share of the differing sentences begin to differ at a near tie, the cause is the
# checkpoint.
_MOSTLY = 0.75
_REMEDY = "use --precision fp32, or report a defect if this is fp32"
_DEVIATIONS = 1.645  # 95 % of a normal distribution lie below


@dataclass(frozen=True)
class Tolerance:
    """The accepted differences between a precision and the checkpoint.

    Attributes:
        largest: limit for each log-probability among a position's best tokens.
        mean: limit for the mean absolute difference over all positions.
        tie: tokens may change places if their log-probabilities in the checkpoint differ by less.
        identical: minimal share of sentences with an identical translation.
        noise: difference between two tokens' log-probabilities that rounding explains.
        disagreeing: share of sentences that may exceed `largest` or `tie`. The largest of many
            differences grows with their number, even if the bundle is correct.
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
    # Measured on trained models of the preset `small`: correct bundles differ by up to 0.026 on
    # average and 0.23 at most, prefer no token that is 0.04 worse, and 9 to 11 of 12 sentences are
    # identical. Noise of 3 % on every weight matrix changes that to 0.05 to 0.068, up to 0.9, 0.12
    # to 0.35, and 6 to 9. Over 300 sentences of 17 tokens a model of width 256 differs by 0.026 on
    # average and 0.47 at most; 76 % are identical, and 69 of the 71 others begin to differ where
    # the checkpoint's margin is below 0.1. In one, the bundle prefers a token that is 0.25 worse:
    # too many for the built-in sentences, but not for a hundred.
    "int8": Tolerance(largest=0.5, mean=0.04, tie=0.2, identical=0.5, noise=0.1, disagreeing=0.01),
}


@dataclass(frozen=True)
class ParityReport:
    """Result of a passed parity check.

    Attributes:
        num_identical: sentences with the same greedy translation, token by token.
        num_ties: other sentences in which, at the first difference, the checkpoint's two best
            tokens are within the noise.
        num_disagreeing: sentences that exceed a tolerance.
        num_tokens: compared target positions.
        num_unsure: positions at which the checkpoint's two best tokens are within the noise.
        largest_difference, mean_difference: differences between log-probabilities, in nats.
        noise: the precision's `Tolerance.noise`, in nats.
        rounding_difference: the mean difference that rounding the weights alone makes; None where
            the usual tolerance was enough.
        listed: agreement of translations with a shortlist; None for a bundle without.
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
    rounding_difference: float | None = None
    listed: ShortlistAgreement | None = None


@dataclass(frozen=True)
class SentenceDifferences:
    """Differences between bundle and checkpoint in one sentence of T target tokens.

    Attributes:
        differences: [T, k] absolute differences of log-probabilities.
        gaps: [T] the checkpoint's log-probability of its best token minus that of the bundle's.
        margins: [T] the checkpoint's log-probability of its best token minus that of its second
            best.
        score_difference: largest difference of the scoring graph's log-probabilities.
        attention_difference: mean difference of the scoring graph's attention weights.
    """

    differences: npt.NDArray[np.float64]
    gaps: npt.NDArray[np.float64]
    margins: npt.NDArray[np.float64]
    score_difference: float
    attention_difference: float


def compare(
    forced: ForcedTranslation, expected: TorchOutputs, found: OnnxOutputs
) -> SentenceDifferences:
    """Differences between the outputs for one sentence."""
    log_probabilities = expected.log_probabilities  # [T, V]
    best_two = np.partition(log_probabilities, -2, axis=1)[:, -2:]
    same = np.take_along_axis(log_probabilities, found.top_ids, axis=1)
    chosen = log_probabilities[range(len(forced.target_ids)), list(forced.target_ids)]
    return SentenceDifferences(
        np.abs(found.top_log_probabilities - same),
        best_two[:, 1] - same[:, 0],
        best_two[:, 1] - best_two[:, 0],
        float(np.abs(found.scores - chosen).max()),
        float(np.abs(found.attention - expected.attention).mean()),
    )


class ParityCheck:
    """Collects the differences of all sentences, and ends with a report or an error."""

    def __init__(self, tolerance: Tolerance, precision: str, num_sentences: int) -> None:
        self._tolerance = tolerance
        self._precision = precision
        self._num_sentences = num_sentences
        self._num_identical = self._num_ties = self._num_disagreeing = 0
        self._num_tokens = self._num_unsure = self._num_differences = 0
        self._largest = self._sum = 0.0

    def add(self, sentence: str, compared: SentenceDifferences) -> None:
        """Add one sentence.

        Raises:
            ExportError: it exceeds a tolerance by far, or too many sentences exceed one.
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
        excess, message = max(self._excesses(compared))
        if excess <= 1.0:
            return
        self._num_disagreeing += 1
        share, _ = share_bounds(self._num_disagreeing, self._num_sentences)
        if excess > _GROSS or share > self._tolerance.disagreeing:
            before = self._num_disagreeing - 1
            others = f", after {before} others that disagreed" if before else ""
            raise ExportError(f"on {sentence!r} {message}{others}: {_REMEDY}")

    def _excesses(self, compared: SentenceDifferences) -> list[tuple[float, str]]:
        """Each difference in multiples of its tolerance, with an error message."""
        tolerance, name = self._tolerance, f"the {self._precision} bundle"
        largest, gap = compared.differences.max(), compared.gaps.max()
        score, attention = compared.score_difference, compared.attention_difference
        return [
            (
                _ratio(largest, tolerance.largest),
                f"a log-probability of {name} differs from the checkpoint's by {largest:.3g}, "
                f"more than the allowed {tolerance.largest:g}",
            ),
            (
                _ratio(gap, tolerance.tie),
                f"{name} prefers another token at position {int(compared.gaps.argmax())} than the "
                f"checkpoint, which holds it for {gap:.3g} nats worse; only {tolerance.tie:g} "
                f"would count as a tie",
            ),
            (
                max(_ratio(score, tolerance.largest), _ratio(attention, tolerance.mean)),
                f"{name}'s scoring graph differs from the checkpoint by {score:.3g} in a "
                f"log-probability and {attention:.3g} in the mean attention weight, more than the "
                f"allowed {tolerance.largest:g} and {tolerance.mean:g}",
            ),
        ]

    def report(self) -> ParityReport:
        """The result, after every sentence was added.

        Raises:
            ExportError: the sentences together exceed the tolerance.
        """
        mean = self._sum / self._num_differences
        if not mean <= self._tolerance.mean:
            raise ExportError(
                f"the {self._precision} bundle's log-probabilities differ from the checkpoint's "
                f"by {mean:.3g} on average, more than the allowed {self._tolerance.mean:g}: "
                f"{_REMEDY}"
            )
        self._check_identical()
        return ParityReport(
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
                f"{self._num_ties} of the {others} others begin to differ where the checkpoint's "
                f"two best tokens are within {self._tolerance.noise:g} nats, as they are at "
                f"{self._num_unsure / self._num_tokens:.0%} of all positions: the model is unsure, "
                f"which is no defect of the bundle. Train longer, or use fp32"
            )
        else:
            reasons.append(
                f"{others - self._num_ties} of the {others} others begin to differ where the "
                f"checkpoint is surer than by {self._tolerance.noise:g} nats: {_REMEDY}"
            )
        if most >= self._tolerance.identical:
            reasons.append(
                f"{total} sentences are too few to be certain: up to {most:.0%} of all could be "
                f"identical. Give more with --sentences"
            )
        raise ExportError("; ".join(reasons))


def share_bounds(count: int, total: int) -> tuple[float, float]:
    """Wilson's bounds (1927) of a share, if a sample of `total` contains `count`.

    The share is below the lower bound with a probability of 5 %, and above the upper with 5 %.
    """
    share, weight = count / total, _DEVIATIONS**2 / total
    middle = share + weight / 2
    half = math.sqrt(weight * (share * (1 - share) + weight / 4))
    lower, upper = ((middle + sign * half) / (1 + weight) for sign in (-1, 1))
    return (lower if count else 0.0), (upper if count < total else 1.0)


def _ratio(value: float, limit: float) -> float:
    """`value / limit`; infinite for a `value` that is not a number, so that it fails."""
    return float(value) / limit if value == value else math.inf
