"""Local attention in blocks; the reference is `model.network.attention.local`."""

from __future__ import annotations

import numpy as np

from export.attention.blocks import Blocks
from export.attention.heads import only_visible, scaled_scores, weighted_values
from export.layers import Layers
from export.packing import Packing


class LocalAttentionGraph:
    """Adds self-attention within a distance to an encoder graph.

    A block is as long as the distance, so that all that its positions see is in three blocks.
    """

    def __init__(self, layers: Layers, packing: Packing) -> None:
        self._layers = layers
        self._packing = packing
        graph, window = layers.graph, layers.config.attention_window
        with graph.scope("blocks"):
            self._blocks = Blocks(graph, packing, window)
            query, key = np.arange(window)[:, None] + window, np.arange(3 * window)
            near = graph.constant(np.abs(query - key) <= window)  # [size, 3 * size]
            self._visible = graph.op("And", near, self._blocks.visible)

    def attend(self, states: str, block: str) -> str:
        """Weighted values [B, S, D], not yet projected, of the encoder's states [N, D]."""
        layers, graph = self._layers, self._layers.graph
        packed = layers.attention_input(states, block, "query", "key", "value")  # [N, 3D]
        padded = self._packing.pad(graph, packed)  # [B, S, 3D]
        query, key, value = graph.split(padded, 3, axis=2)  # fmt: skip
        return self.attend_heads(query, key, value, layers.config.num_heads)

    def attend_heads(self, query: str, key: str, value: str, num_heads: int) -> str:
        """Attention over some heads' queries, keys and values [B, S, num_heads * K]."""
        layers, blocks, width = self._layers, self._blocks, self._layers.config.head_dim
        scores = scaled_scores(
            layers, blocks.queries(query, num_heads, width), blocks.keys(key, num_heads, width), 5
        )  # [B, H, n, size, 3 * size]
        scores = only_visible(layers.graph, scores, self._visible)
        mixed = weighted_values(layers, scores, blocks.keys(value, num_heads, width))
        return blocks.join(mixed, num_heads * width)
