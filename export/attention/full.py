"""Full attention: every position sees every other of its own source."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from export.graph_builder import MICROSOFT, GraphBuilder
from export.layers import Layers
from export.packing import Packing


class FullAttentionGraph:
    """Adds full self-attention to an encoder graph."""

    def __init__(self, layers: Layers, packing: Packing) -> None:
        self._layers = layers
        self._packing = packing
        self._attend = padded_attention(layers, packing, packing)

    def attend(self, states: str, block: str) -> str:
        """Weighted values [B, S, D], not yet projected, of the encoder's states [N, D]."""
        layers = self._layers
        packed = layers.attention_input(states, block, "query", "key", "value")  # [N, 3D]
        padded = self._packing.pad(layers.graph, packed)  # [B, S, 3D]
        return self._attend(padded, layers.config.num_heads)


def padded_attention(layers: Layers, packing: Packing, rows: Packing) -> Callable[[str, int], str]:
    """Full attention of padded queries, keys and values, side by side in [B, S, 3W].

    Args:
        rows: places of the sources, or of the parts of sources, that attend.
    """
    graph = layers.graph
    if layers.arithmetic.dtype != "float16" and packing.tokens_at:
        return lambda qkv, num_heads: _attend_by_length(graph, rows, qkv, num_heads)
    places = _places(graph, rows)
    return lambda qkv, num_heads: _attend_on_gpu(graph, places, qkv, num_heads)


def _attend_by_length(graph: GraphBuilder, packing: Packing, qkv: str, num_heads: int) -> str:
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


def _attend_on_gpu(graph: GraphBuilder, places: str, qkv: str, num_heads: int) -> str:
    """Attention for GPUs, where GroupQueryAttention is always causal."""
    query_key_value = graph.split(qkv, 3, axis=2)
    return graph.op(
        "MultiHeadAttention",
        *query_key_value,
        *("", places),
        domain=MICROSOFT,
        num_heads=num_heads,
    )


def _places(graph: GraphBuilder, packing: Packing) -> str:
    """int32 [3B + 2]: lengths of the rows, then where they begin, twice.

    Of the forms of a mask, this is the one for which a GPU has a fused kernel.
    """
    with graph.scope("places"):
        zero, one = graph.constant(0, np.int32), graph.constant(1, np.int32)
        lengths = graph.op("Add", packing.last_positions, one)
        # Of numbers on the host: a copy of one to a GPU would block.
        count = graph.cast(graph.op("Squeeze", graph.op("Shape", lengths)), "int32")
        end = graph.op("Mul", graph.op("Add", count, one), packing.padded_width)
        starts = graph.op("Range", zero, end, packing.padded_width)  # [B + 1]
        return graph.op("Concat", lengths, starts, starts, axis=0)
