"""Attention among similar queries, found by locality-sensitive hashing.

"Reformer: The Efficient Transformer" (Kitaev et al., 2020, section 2). Queries are keys, too
("shared-QK"), so a position sees those with a query like its own. A hash function gives similar
vectors the same bucket with a high probability. The positions are sorted by bucket and cut into
chunks; a position sees those of its own bucket in its own chunk and the two beside it. Several
rounds, each with a hash function of its own, make it unlikely that two similar ones never meet.

The paper's decoder looks at its own chunk and the one before; an encoder looks to both sides. The
hash functions are drawn once and belong to the weights: the same input has the same buckets.
"""

from __future__ import annotations

import torch
from torch import Tensor

from model.bundle.config import ModelConfig
from model.network.attention.conventions import NORM_EPSILON
from model.network.attention.multi_head import MultiHeadAttention


def keys_of(query: Tensor) -> Tensor:
    """The keys that belong to queries [..., K]: the same direction, and length sqrt(K).

    Divided by sqrt(K) in the attention's scores, their length is one (section 2, "shared-QK").
    """
    return query * torch.rsqrt(query.square().mean(dim=-1, keepdim=True) + NORM_EPSILON)


def draw_rotations(num_rounds: int, num_heads: int, head_dim: int, num_buckets: int) -> Tensor:
    """Random hash functions [R, H, K, num_buckets / 2], a rotation and projection for each head."""
    return torch.randn(num_rounds, num_heads, head_dim, num_buckets // 2)


def hash_buckets(query: Tensor, rotations: Tensor) -> Tensor:
    """The bucket of every query, from angles alone: h(x) = argmax [x R; -x R].

    Args:
        query: [B, H, S, K].
        rotations: [R, H, K, num_buckets / 2].

    Returns:
        int64 [B, R, H, S], from 0 to num_buckets - 1.
    """
    turned = torch.einsum("bhsk,rhkn->brhsn", query, rotations)
    return torch.cat((turned, -turned), dim=-1).argmax(dim=-1)


def sorted_chunks(buckets: Tensor, valid: Tensor, chunk: int) -> Tensor:
    """The chunk of every position when they are sorted by bucket, then by position.

    Args:
        buckets: [B, R, H, S].
        valid: boolean [B, S], False at padding, which is sorted behind all tokens: it moves none.
        chunk: positions in a chunk.

    Returns:
        int64 [B, R, H, S].
    """
    length = buckets.size(-1)
    behind = buckets.amax() + 1
    order = torch.where(valid[:, None, None], buckets, behind) * length
    order = order + torch.arange(length, device=buckets.device)
    return order.argsort(dim=-1).argsort(dim=-1) // chunk


def lsh_mask(buckets: Tensor, valid: Tensor, chunk: int) -> Tensor:
    """Boolean mask [B, H, S, S], row sees column.

    A position sees those that, in at least one round, have the same bucket and are in the same
    chunk or one beside it. A position does not see itself, whose key is most like its query,
    unless it sees no other.
    """
    chunks = sorted_chunks(buckets, valid, chunk)  # [B, R, H, S]
    seen = torch.zeros(1, dtype=torch.bool, device=buckets.device)
    for bucket, place in zip(buckets.unbind(1), chunks.unbind(1), strict=True):  # [B, H, S]
        same_bucket = bucket[..., :, None] == bucket[..., None, :]
        side_by_side = (place[..., :, None] - place[..., None, :]).abs() <= 1
        seen = seen | (same_bucket & side_by_side)
    itself = torch.eye(buckets.size(-1), dtype=torch.bool, device=buckets.device)
    others = seen & valid[:, None, None] & ~itself
    return others | (itself & ~others.any(dim=-1, keepdim=True))


class HashedAttention(MultiHeadAttention):
    """Self-attention among similar queries, which are the keys, too."""

    rotations: Tensor  # [R, H, K, buckets / 2], stored with the weights

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        del self.key
        self.chunk = config.attention_window
        rounds, buckets = config.attention_rounds, config.attention_buckets
        rotations = draw_rotations(rounds, config.num_heads, config.head_dim, buckets)
        self.register_buffer("rotations", rotations)

    def keys_values(self, states: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Keys and values [B, H, S, K]."""
        return keys_of(self._split(self.query(states))), self._split(self.value(states))

    def visible(self, query: Tensor, mask: Tensor | None) -> Tensor | None:
        """Boolean mask [B, H, S, S] of the tokens in a query's bucket and nearby chunks."""
        batch, _, length, _ = query.shape
        valid = query.new_ones(batch, length, dtype=torch.bool)
        if mask is not None:
            valid = valid & mask[:, 0, 0]
        return lsh_mask(hash_buckets(query, self.rotations), valid, self.chunk)
