"""Low-rank attention: keys and values of n positions become k weighted sums of them.

"Linformer: Self-Attention with Linear Complexity" (Wang et al., 2020, section 4): attention weights
are nearly of low rank, so that softmax(Q (E K)^T) (F V) with learned E and F [k, n] loses little
and costs n * k. The heads of a layer share E and F ("headwise sharing"). A text shorter than the
longest uses their first columns.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from model.bundle.config import ModelConfig
from model.network.attention.multi_head import MultiHeadAttention


def project_positions(states: Tensor, projection: Tensor, mask: Tensor | None = None) -> Tensor:
    """k weighted sums of the positions of each head.

    Args:
        states: keys or values [B, H, S, K].
        projection: E or F [k, longest], of which the first S columns count.
        mask: boolean, broadcastable to [B, H, S, 1]; positions with False count as zeros, so that
            padding changes nothing.

    Returns:
        [B, H, k, K].
    """
    if mask is not None:
        states = states.masked_fill(~mask, 0.0)
    return projection[:, : states.size(2)] @ states


class LowRankAttention(MultiHeadAttention):
    """Attention to k weighted sums of the source's positions; self- or cross-attention."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        shape = (config.attention_rank, config.num_source_positions)
        self.key_projection = nn.Parameter(torch.empty(shape))  # E of the paper: [k, longest]
        self.value_projection = nn.Parameter(torch.empty(shape))  # F
        for projection in (self.key_projection, self.value_projection):
            nn.init.xavier_uniform_(projection)

    def keys_values(self, states: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Keys and values [B, H, k, K] of states [B, S, D], without those at padding."""
        key, value = super().keys_values(states)
        valid = None if mask is None else mask.transpose(-2, -1)  # [B, 1, S, 1]
        return (
            project_positions(key, self.key_projection, valid),
            project_positions(value, self.value_projection, valid),
        )

    def visible(self, query: Tensor, mask: Tensor | None) -> Tensor | None:
        """No mask: masked positions are not in the k rows."""
        return None
