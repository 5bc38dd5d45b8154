"""Scaled dot-product attention and multi-head attention (Vaswani et al., 2017, section 3.2).

Shapes are those of `model.network.transformer`.
"""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.bundle.config import ModelConfig

# --- 3.2.1 Scaled dot-product attention -----------------------------------------------------------


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, dropout: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Equation 1: softmax(Q K^T / sqrt(d_k)) V, with the weights that it computed.

    Args:
        query: [..., T, K].
        key: [..., S, K].
        value: [..., S, W]; W may differ from K.
        mask: boolean, broadcastable to [..., T, S]; False forbids looking there. A query that may
            look nowhere gets weights and an output of zero, not NaN.
        dropout: probability of dropping a weight.

    Returns:
        The output [..., T, W] and the weights [..., T, S] (before dropout); each row of them sums
        to one.
    """
    scores = (query / math.sqrt(query.size(-1))) @ key.transpose(-2, -1)  # [..., T, S]
    if mask is None:
        weights = scores.softmax(dim=-1)
    else:
        # The paper's -inf would make softmax divide zero by zero where a row is all padding.
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        weights = scores.softmax(dim=-1).masked_fill(~mask, 0.0)
    return F.dropout(weights, dropout, training=dropout > 0.0) @ value, weights


def causal_mask(length: int, device: torch.device | None = None) -> Tensor:
    """Boolean mask [length, length], row sees column: the lower triangle (section 3.2.3)."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


# --- 3.2.2 Multi-head attention -------------------------------------------------------------------


class MultiHeadAttention(nn.Module):
    """Several attentions side by side, each on its own projection of D to K = D / H dimensions."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        self.dropout = config.attention_dropout
        self.query = nn.Linear(config.d_model, config.d_model)
        self.key = nn.Linear(config.d_model, config.d_model)
        self.value = nn.Linear(config.d_model, config.d_model)
        self.output = nn.Linear(config.d_model, config.d_model)

    def keys_values(self, states: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Keys and values [B, H, S, K] of states [B, S, D], for queries to attend to.

        `mask` is that of `forward`; without it, every position counts.
        """
        return self._split(self.key(states)), self._split(self.value(states))

    def forward(
        self,
        states: Tensor,  # [B, T, D]: the queries
        keys_values: tuple[Tensor, Tensor],  # from keys_values()
        mask: Tensor | None = None,  # broadcastable to [B, H, T, S]
        causal: bool = False,
        record: list[Tensor] | None = None,
    ) -> Tensor:
        """Attends from `states`; appends the weights [B, H, T, S] to `record` if there is one."""
        query = self._split(self.query(states))  # [B, H, T, K]
        key, value = keys_values  # [B, H, S, K]
        mask = self.visible(query, mask)
        dropout = self.dropout if self.training else 0.0
        # Fused, the same function is faster, but keeps its weights to itself. On a CPU in half
        # precision it takes twice as long as here (15 to 150 tokens, an Intel Xeon with AMX).
        narrow_on_cpu = query.dtype == torch.bfloat16 and query.device.type == "cpu"
        if record is None and not narrow_on_cpu:
            mixed = F.scaled_dot_product_attention(query, key, value, mask, dropout, causal)
        else:
            if causal:
                mask = causal_mask(states.size(1), states.device)
            mixed, weights = scaled_dot_product_attention(query, key, value, mask, dropout)
            if record is not None:
                record.append(weights)
        joined = mixed.transpose(1, 2).flatten(start_dim=2)  # [B, T, D]
        return cast(Tensor, self.output(joined))

    def visible(self, query: Tensor, mask: Tensor | None) -> Tensor | None:
        """Boolean mask of the positions that queries [B, H, T, K] see: here, all tokens."""
        return mask

    def _split(self, states: Tensor) -> Tensor:
        batch, length, width = states.shape
        heads = states.view(batch, length, self.num_heads, width // self.num_heads)
        return heads.transpose(1, 2)  # [B, H, S, K]
