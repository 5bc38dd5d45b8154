"""Local attention: a position sees its neighbours, up to a fixed distance.

"Blockwise Self-Attention for Long Document Understanding" (Qiu et al., 2020, section 3.1) lets a
block of positions see a block. The form here, a band around the diagonal ("sliding window":
"Longformer", Beltagy et al., 2020, section 3.1), has no seams between blocks. A layer sees `window`
positions to each side, L layers see L * window.
"""

from __future__ import annotations

import torch
from torch import Tensor

from model.bundle.config import ModelConfig
from model.network.attention.multi_head import MultiHeadAttention


def local_mask(length: int, window: int, device: torch.device | None = None) -> Tensor:
    """Boolean mask [length, length], row sees column: |i - j| <= window."""
    position = torch.arange(length, device=device)
    return (position[:, None] - position).abs() <= window


class LocalAttention(MultiHeadAttention):
    """Self-attention within a distance."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.window = config.attention_window

    def visible(self, query: Tensor, mask: Tensor | None) -> Tensor | None:
        """Boolean mask [B, 1, S, S] of the tokens within the distance."""
        near = local_mask(query.size(2), self.window, query.device)
        return near if mask is None else mask & near
