"""Full attention: every position sees every other of its own source."""

from __future__ import annotations

from export.graph_builder import MICROSOFT, GraphBuilder
from export.layers import Layers
from export.packing import Packing


class FullAttentionGraph:
    """Adds full self-attention to an encoder graph.

    Args:
        layers: building blocks.
        packing: of the sources.
    """

    def __init__(self, layers: Layers, packing: Packing) -> None:
        self._layers = layers
        self._packing = packing
        self._on_gpu = runs_on_gpu(layers, packing)

    def attend(self, states: str, block: str) -> str:
        """Weighted values [B, S, D], not yet projected, of the encoder's states [N, D]."""
        layers = self._layers
        packed = layers.attention_input(states, block, "query", "key", "value")  # [N, 3D]
        padded = self._packing.pad(layers.graph, packed)  # [B, S, 3D]
        attend = attend_masked if self._on_gpu else attend_by_length
        return attend(layers.graph, self._packing, padded, layers.config.num_heads)


def runs_on_gpu(layers: Layers, packing: Packing) -> bool:
    """Whether the graph is in the form for GPUs."""
    return layers.arithmetic.dtype == "float16" or not packing.tokens_at


def attend_by_length(graph: GraphBuilder, packing: Packing, qkv: str, num_heads: int) -> str:
    """Attention up to each row's own length: no mask, and no padding in any sum."""
    return graph.op(
        "GroupQueryAttention",
        qkv,
        *("", "", "", ""),
        packing.last_positions,
        packing.padded_width,
        domain=MICROSOFT,
        num_heads=num_heads,
        kv_num_heads=num_heads,
        causal=0,
    )


def attend_masked(graph: GraphBuilder, packing: Packing, qkv: str, num_heads: int) -> str:
    """Attention with a mask, for GPUs, where GroupQueryAttention is always causal."""
    query_key_value = graph.multi_op("Split", qkv, outputs=[None] * 3, axis=2, num_outputs=3)
    return graph.op(
        "MultiHeadAttention",
        *query_key_value,
        *("", packing.mask),
        domain=MICROSOFT,
        num_heads=num_heads,
    )
