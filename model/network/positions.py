"""Sinusoidal positions (Vaswani et al., 2017, section 3.5)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

# --- 3.4 and 3.5 Embeddings and positions ---------------------------------------------------------


def sinusoidal_positions(length: int, d_model: int) -> Tensor:
    """Section 3.5: sin(pos / 10000^(2i/D)) in column 2i, its cosine in column 2i+1.

    Returns:
        [length, d_model], float32. Computed in double precision, since in single precision the
        angles of far positions are off in the fourth digit.
    """
    position = torch.arange(length, dtype=torch.float64).unsqueeze(1)  # [length, 1]
    column = torch.arange(0, d_model, 2, dtype=torch.float64)  # [D / 2]: the paper's 2i
    angle = position / 10_000 ** (column / d_model)  # [length, D / 2]
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(start_dim=1).float()


def marian_positions(length: int, d_model: int) -> Tensor:
    """Marian's table [length, d_model]: sines, then cosines, of pos * 10000^(-i / (D/2 - 1)).

    See `SinusoidalPositionEmbeddings` in Marian's graph/node_initializers.cpp.
    """
    half = d_model // 2
    column = torch.arange(half, dtype=torch.float64)
    frequency = torch.exp(column * (-math.log(10_000) / max(half - 1, 1)))
    angle = torch.arange(length, dtype=torch.float64).unsqueeze(1) * frequency  # [length, D / 2]
    return torch.cat((angle.sin(), angle.cos()), dim=1).float()
