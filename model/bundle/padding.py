"""Sequences of different lengths as one array."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def pad_right(sequences: Sequence[Sequence[int]], pad_id: int) -> npt.NDArray[np.int64]:
    """[rows, longest] the sequences, filled up with `pad_id`."""
    padded = np.full((len(sequences), max(map(len, sequences))), pad_id, np.int64)
    for row, sequence in enumerate(sequences):
        padded[row, : len(sequence)] = sequence
    return padded
