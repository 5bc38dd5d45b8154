"""Strided attention: half of the heads look nearby, half look far, with gaps.

"Generating Long Sequences with Sparse Transformers" (Child et al., 2019, section 4.3) has two
patterns, the last l positions and every l-th position, of which two steps connect any two
positions; with l near the root of the length they cost n * sqrt(n). Of the ways to combine them
(section 5.1) this is the last, different heads. Both patterns look to both sides, since an encoder
may.
"""

from __future__ import annotations

import torch
from torch import Tensor

from model.bundle.config import ModelConfig
from model.network.attention.conventions import num_local_heads
from model.network.attention.local import local_mask
from model.network.attention.multi_head import MultiHeadAttention


def strided_mask(
    length: int, stride: int, num_heads: int, device: torch.device | None = None
) -> Tensor:
    """Boolean mask [num_heads, length, length], row sees column.

    |i - j| <= stride in the first half of the heads, i = j modulo stride in the others.
    """
    position = torch.arange(length, device=device)
    far = (position[:, None] - position) % stride == 0
    near = local_mask(length, stride, device)
    nearby = num_local_heads(num_heads)
    return torch.stack([near] * nearby + [far] * (num_heads - nearby))


class StridedAttention(MultiHeadAttention):
    """Self-attention within a distance in half of the heads, at regular gaps in the others."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.stride = config.attention_window

    def visible(self, query: Tensor, mask: Tensor | None) -> Tensor | None:
        """Boolean mask [B, H, S, S] of the tokens within the distance, or at the gaps."""
        seen = strided_mask(query.size(2), self.stride, self.num_heads, query.device)
        return seen if mask is None else mask & seen
