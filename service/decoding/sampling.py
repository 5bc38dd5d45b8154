"""Sampling: the next token is drawn at random, and the same seed draws the same text."""

from __future__ import annotations

import numpy as np

from service.decoding.row_states import Float64
from service.domain.sampling import Sampling

_MASK = (1 << 64) - 1
_GOLDEN_GAMMA = 0x9E3779B97F4A7C15


def draw(scores: Float64, sampling: Sampling, position: int) -> int:
    """Draw one of the candidates of a row.

    First the best `top_k` are kept, then the fewest of these with probabilities that, at this
    temperature, reach `top_p` together (Holtzman et al., 2020). A draw depends only on the
    arguments.

    Args:
        scores: [m] scores of the candidates, best first.
        sampling: options of sampling, with the seed.
        position: position of the token to draw.

    Returns:
        The index of a candidate.
    """
    kept = scores[: sampling.top_k]
    weights = np.exp((kept - kept[0]) / sampling.temperature)
    cumulative = np.add.accumulate(weights)
    # Includes the first one that reaches top_p.
    count = int(np.searchsorted(cumulative, sampling.top_p * cumulative[-1])) + 1
    cumulative = cumulative[:count]
    assert sampling.seed is not None, "a seed is drawn before the search begins"
    chance = uniform(sampling.seed, position) * cumulative[-1]
    return int(np.searchsorted(cumulative, chance, side="right"))


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1): the one at `position` of SplitMix64's sequence (Steele et al., 2014)."""
    bits = (seed + (position + 1) * _GOLDEN_GAMMA) & _MASK
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & _MASK
    return float((bits ^ (bits >> 31)) >> 11) * 2.0**-53
