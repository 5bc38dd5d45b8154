"""The kinds of encoder attention by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from export.attention.full import FullAttentionGraph
from export.attention.linformer import LowRankAttentionGraph
from export.attention.local import LocalAttentionGraph
from export.attention.lsh import HashedAttentionGraph
from export.attention.strided import StridedAttentionGraph
from export.layers import Layers
from export.packing import Packing
from model.bundle.config import EncoderAttention


class EncoderAttentionGraph(Protocol):
    """Self-attention of an encoder's layers, in one graph."""

    def attend(self, states: str, block: str) -> str:
        """Add the attention of one layer to the graph.

        Args:
            states: encoder states [N, D].
            block: prefix of the layer's attention weights.

        Returns:
            Weighted values [B, S, D], before the output projection.
        """
        ...


def encoder_attention(layers: Layers, packing: Packing) -> EncoderAttentionGraph:
    """The attention that the model's configuration names."""
    return _KINDS[layers.config.encoder_attention](layers, packing)


_KINDS: dict[EncoderAttention, Callable[[Layers, Packing], EncoderAttentionGraph]] = {
    "full": FullAttentionGraph,
    "local": LocalAttentionGraph,
    "strided": StridedAttentionGraph,
    "lsh": HashedAttentionGraph,
    "linformer": LowRankAttentionGraph,
}
