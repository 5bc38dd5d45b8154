"""What a share seen in a sample says about the share in all there is."""

from __future__ import annotations

import math

_DEVIATIONS = 1.645  # of a normal distribution: 95 % lie below


def share_bounds(count: int, total: int) -> tuple[float, float]:
    """Wilson's bounds (1927) of a share of which a sample of `total` showed `count`.

    The share is below the first with a probability of 5 %, and above the second likewise.
    """
    share, weight = count / total, _DEVIATIONS**2 / total
    middle = share + weight / 2
    half = math.sqrt(weight * (share * (1 - share) + weight / 4))
    lower, upper = ((middle + sign * half) / (1 + weight) for sign in (-1, 1))
    return (lower if count else 0.0), (upper if count < total else 1.0)
