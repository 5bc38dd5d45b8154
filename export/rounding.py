"""What rounding a network to 8 bits alone changes: a measure of what int8 can do for it."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from export.int8_arithmetic import quantize_rows
from export.parity_check import Tolerance
from export.torch_outputs import ForcedTranslation, torch_outputs
from model.transformer import Transformer

# An int8 bundle differs by 1.2 to 1.8 times as much on average: it rounds activations, too. So the
# included model and random ones of five architectures, whose differences span 0.03 to 0.5.
_FACTOR = 2.25
# Beyond this mean difference, of rounding the weights alone, int8 is no precision for a network:
# twelve times that of the included model.
_MOST = 0.2


@dataclass(frozen=True)
class RoundingDifferences:
    """How the network with rounded weights differs from itself, as in `Tolerance`.

    Attributes:
        mean, largest: of the log-probabilities of its best tokens.
        gap: the largest by which a token that it prefers is worse in the exact network.
        identical: share of sentences in which it prefers the same tokens everywhere.
    """

    mean: float
    largest: float
    gap: float
    identical: float

    @property
    def is_bearable(self) -> bool:
        """Whether 8 bits are enough for the network at all."""
        return self.mean <= _MOST

    def widened(self, tolerance: Tolerance) -> Tolerance:
        """The tolerance for a network of which rounding changes more than usual."""
        return dataclasses.replace(
            tolerance,
            mean=max(tolerance.mean, _FACTOR * self.mean),
            largest=max(tolerance.largest, _FACTOR * self.largest),
            tie=max(tolerance.tie, _FACTOR * self.gap),
            identical=min(tolerance.identical, self.identical / 2),
        )


def rounding_differences(
    model: Transformer, batches: Sequence[Sequence[ForcedTranslation]], num_best: int
) -> RoundingDifferences:
    """Force translations through the network and through one with rounded matrices.

    Args:
        model: in evaluation mode.
        batches: the translations.
        num_best: tokens of each position to compare.
    """
    rounded = _rounded(model)
    differences, gaps = [], []
    for batch in batches:
        both = zip(torch_outputs(model, batch, 0), torch_outputs(rounded, batch, 0), strict=True)
        for exact, found in both:
            best = np.argsort(-found.log_probabilities, axis=1, kind="stable")[:, :num_best]
            theirs = np.take_along_axis(found.log_probabilities, best, axis=1)
            ours = np.take_along_axis(exact.log_probabilities, best, axis=1)
            differences.append(np.abs(theirs - ours).ravel())
            gaps.append(float((exact.log_probabilities.max(axis=1) - ours[:, 0]).max()))
    every = np.concatenate(differences)
    same = sum(gap == 0.0 for gap in gaps) / len(gaps)
    return RoundingDifferences(float(every.mean()), float(every.max()), max(gaps), same)


def _rounded(model: Transformer) -> Transformer:
    copied = copy.deepcopy(model)
    with torch.no_grad():
        for name, parameter in copied.named_parameters():
            if parameter.dim() == 2 and "positions" not in name:
                values, scales = quantize_rows(parameter.numpy())
                parameter.copy_(torch.from_numpy(values * scales[:, None]))
    return copied
