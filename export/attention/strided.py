"""Strided attention, of blocks and columns; see `model.network.attention.strided`."""

from __future__ import annotations

import numpy as np

from export.attention.full import padded_attention
from export.attention.heads import pad_axis
from export.attention.local import LocalAttentionGraph
from export.graph_builder import GraphBuilder
from export.layers import Layers
from export.packing import Packing
from model.network.attention.conventions import num_local_heads


class StridedAttentionGraph:
    """Adds strided self-attention to an encoder graph.

    Positions i = r modulo the stride see each other in the far heads, for every r. So each source
    becomes as many short ones as the stride says, with full attention among the positions of each.
    """

    def __init__(self, layers: Layers, packing: Packing) -> None:
        self._layers = layers
        self._packing = packing
        self._local = LocalAttentionGraph(layers, packing)
        self._columns = StridedColumns(layers.graph, packing, layers.config.attention_window)
        self._attend_far = padded_attention(layers, packing, self._columns.packing)

    def attend(self, states: str, block: str) -> str:
        """Weighted values [B, S, D], not yet projected, of the encoder's states [N, D]."""
        layers, config = self._layers, self._layers.config
        graph = layers.graph
        packed = layers.attention_input(states, block, "query", "key", "value")  # [N, 3D]
        padded = self._packing.pad(graph, packed)  # [B, S, 3D]
        near = num_local_heads(config.num_heads)
        widths = [near * config.head_dim, (config.num_heads - near) * config.head_dim]
        parts = graph.multi_op("Split", padded, graph.constant(widths * 3, np.int64),
                               outputs=[None] * 6, axis=2)  # fmt: skip
        nearby = self._local.attend_heads(parts[0], parts[2], parts[4], near)
        distant = self._columns.split(graph.op("Concat", *parts[1::2], axis=2), 3 * widths[1])
        mixed = self._attend_far(distant, config.num_heads - near)
        return graph.op("Concat", nearby, self._columns.join(mixed, widths[1]), axis=2)


class StridedColumns:
    """Sources [B, S] as shorter ones [B * stride, ceil(S / stride)], one for each remainder."""

    def __init__(self, graph: GraphBuilder, packing: Packing, stride: int) -> None:
        self._graph = graph
        self._stride = stride
        with graph.scope("columns"):
            self._none = graph.ints(0)
            self._length = graph.op("Shape", packing.mask, start=1, end=2)  # [1]: S
            stride64 = graph.ints(stride)
            self._missing = graph.op("Mod", graph.op("Neg", self._length), stride64)
            total = graph.op("Add", self._length, self._missing)
            width = graph.op("Squeeze", graph.op("Div", total, stride64))
            # Of position p - 1, the last of a source, remainder r has (p - 1 - r) / stride + 1
            # positions. A remainder that has none computes with one of padding, for nothing.
            remainder = graph.constant(np.arange(stride), np.int32)
            last = graph.op("Unsqueeze", packing.last_positions, graph.ints(1))
            rest = graph.op("Max", graph.op("Sub", last, remainder), graph.constant(0, np.int32))
            last_places = graph.op("Div", rest, graph.constant(stride, np.int32))
            self.packing = Packing(
                last_positions=graph.reshape(last_places, -1),
                padded_width=graph.cast(width, "int32"),
            )

    def split(self, states: str, width: int) -> str:
        """[B, S, W] as [B * stride, S', W]."""
        graph, none = self._graph, self._none
        padded = pad_axis(graph, states, [none] * 3, [none, self._missing, none])
        rows = graph.reshape(padded, 0, -1, self._stride, width)  # [B, S', stride, W]
        turned = graph.op("Transpose", rows, perm=[0, 2, 1, 3])
        # Not [-1, 0, W]: 0 would copy the stride's axis.
        length = graph.op("Shape", turned, start=2, end=3)
        shape = graph.op("Concat", graph.ints(-1), length, graph.ints(width), axis=0)
        return graph.op("Reshape", turned, shape)

    def join(self, columns: str, width: int) -> str:
        """[B * stride, S', W] as [B, S, W]."""
        graph = self._graph
        length = graph.op("Shape", columns, start=1, end=2)
        rows = graph.ints(-1, self._stride)
        shape = graph.op("Concat", rows, length, graph.ints(width), axis=0)
        turned = graph.op("Transpose", graph.op("Reshape", columns, shape), perm=[0, 2, 1, 3])
        rows = graph.reshape(turned, 0, -1, width)
        return graph.op("Slice", rows, self._none, self._length, graph.ints(1))
