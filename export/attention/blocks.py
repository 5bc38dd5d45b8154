"""Padded sources cut into blocks of a fixed size, each with the blocks to its sides.

A block's keys are those of three blocks. So n positions cost n * 3 * size, and every matrix product
and softmax has the same shape whatever the padded length is.
"""

from __future__ import annotations

import numpy as np

from export.attention.heads import pad_axis
from export.graph_builder import GraphBuilder
from export.packing import Packing


class Blocks:
    """The blocks of a batch of sources.

    Args:
        size: positions of a block.

    Attributes:
        visible: boolean [B, 1, n, 1, 3 * size], whether a key of a block and its neighbours is a
            token.
    """

    def __init__(self, graph: GraphBuilder, packing: Packing, size: int) -> None:
        self._graph = graph
        self._size = size
        self._none = graph.ints(0)
        self._one_block = graph.ints(size)
        self._length = graph.op("Shape", packing.mask, start=1, end=2)  # [1]: S
        # Python's modulo: S up to a multiple of the size.
        self._missing = graph.op("Mod", graph.op("Neg", self._length), self._one_block)
        around = graph.op("Add", self._missing, self._one_block)
        mask = pad_axis(graph, packing.mask, [self._none, self._one_block], [self._none, around])
        blocks = graph.reshape(mask, 0, -1, size)
        tokens = graph.cast(self._with_neighbours(blocks, axis=1), "bool")  # [B, n, 3 * size]
        self.visible = graph.op("Unsqueeze", tokens, graph.ints(1, 3))
        self._around = around

    def queries(self, states: str, num_heads: int, head_dim: int) -> str:
        """[B, S, H * K] as [B, H, n, size, K]."""
        return self._cut(states, self._none, self._missing, num_heads, head_dim)

    def keys(self, states: str, num_heads: int, head_dim: int) -> str:
        """[B, S, H * K] as [B, H, n, 3 * size, K]: every block with its neighbours."""
        blocks = self._cut(states, self._one_block, self._around, num_heads, head_dim)
        return self._with_neighbours(blocks, axis=2)

    def join(self, blocks: str, width: int) -> str:
        """[B, H, n, size, K] as [B, S, H * K]; `width` is H * K."""
        graph = self._graph
        rows = graph.op("Transpose", blocks, perm=[0, 2, 3, 1, 4])
        flat = graph.reshape(rows, 0, -1, width)
        return graph.op("Slice", flat, self._none, self._length, graph.ints(1))

    def _cut(self, states: str, before: str, after: str, num_heads: int, head_dim: int) -> str:
        graph, none = self._graph, self._none
        padded = pad_axis(graph, states, [none, before, none], [none, after, none])
        # Pad keeps the first axis, which 0 copies.
        blocks = graph.reshape(padded, 0, -1, self._size, num_heads, head_dim)
        return graph.op("Transpose", blocks, perm=[0, 3, 1, 2, 4])

    def _with_neighbours(self, blocks: str, axis: int) -> str:
        """Blocks 0 .. n + 1 along `axis` as 1 .. n, each between the two beside it."""
        graph = self._graph
        ends = [(0, -2), (1, -1), (2, np.iinfo(np.int64).max)]
        parts = [
            graph.op("Slice", blocks, *(graph.ints(n) for n in (start, end, axis)))
            for start, end in ends
        ]
        return graph.op("Concat", *parts, axis=axis + 1)
