"""Attention among similar queries in sorted chunks; see `model.network.attention.lsh`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from export.attention.heads import (
    join_heads,
    only_visible,
    pad_axis,
    scaled_scores,
    split_heads,
    weighted_values,
)
from export.layers import Layers
from export.packing import Packing
from model.network.attention.conventions import NORM_EPSILON

# A position that sees itself alone has no other score to compare this with.
_ITSELF = -1e5


@dataclass(frozen=True)
class _Sorted:
    """The order of the positions in every round.

    Attributes:
        buckets: int64 [B, R, H, S'] of each position; those of padding have one of their own.
        ranks: int64 [B, R, H, S'], the place of each position among the sorted ones.
        positions: int64 [B, R, H, S'], the position at each place.
        table_rows: the same as rows of a table [B * H * S', ...].
    """

    buckets: str
    ranks: str
    positions: str
    table_rows: str


class HashedAttentionGraph:
    """Adds self-attention among similar queries to an encoder graph.

    S' is S up to a multiple of the chunk C, and n the number of chunks.
    """

    def __init__(self, layers: Layers, packing: Packing) -> None:
        self._layers = layers
        self._graph = graph = layers.graph
        self._packing = packing
        config = layers.config
        self._rounds, self._chunk = config.attention_rounds, config.attention_window
        with graph.scope("chunks"):
            self._none = none = graph.ints(0)
            self._length = graph.op("Shape", packing.mask, start=1, end=2)  # [1]: S
            chunk = graph.ints(self._chunk)
            self._missing = graph.op("Mod", graph.op("Neg", self._length), chunk)
            self._total = graph.op("Add", self._length, self._missing)  # [1]: S'
            mask = pad_axis(graph, packing.mask, [none] * 2, [none, self._missing])
            valid = graph.cast(mask, "bool")
            self._valid = graph.op("Unsqueeze", valid, graph.ints(1, 2))  # [B, 1, 1, S']
            zero, one = graph.constant(0, np.int64), graph.constant(1, np.int64)
            self._places = graph.op("Range", zero, graph.op("Squeeze", self._total), one)  # [S']
            batch = graph.op("Shape", packing.mask, start=0, end=1)
            self._offsets = self._slices(batch, [-1, 1, config.num_heads, 1], config.num_heads)
            self._round_offsets = self._slices(
                batch, [-1, self._rounds, config.num_heads, 1], self._rounds * config.num_heads
            )

    def attend(self, states: str, block: str) -> str:
        """Weighted values [B, S, D], not yet projected, of the encoder's states [N, D]."""
        layers, config, graph = self._layers, self._layers.config, self._graph
        packed = layers.attention_input(states, block, "query", "value")  # [N, 2D]
        padded = self._packing.pad(graph, packed)  # [B, S, 2D]
        none = self._none
        padded = pad_axis(graph, padded, [none] * 3, [none, self._missing, none])
        parts = graph.split(padded, 2, axis=2)
        query, value = (
            split_heads(graph, part, config.num_heads, config.head_dim) for part in parts
        )  # [B, H, S', K]
        order = self._sort(query, block)
        key = self._keys_of(query)
        queries = self._chunks(self._take(query, order))  # [B, R, H, n, C, K]
        keys, values = (
            self._with_neighbours(self._chunks(self._take(part, order))) for part in (key, value)
        )  # [B, R, H, n, 3C, K]
        scores = self._scores(queries, keys, order)  # [B, R, H, n, C, 3C]
        mixed = weighted_values(layers, scores, values)
        mixed = self._combine(mixed, scores, order)  # [B, H, S', K]
        joined = join_heads(graph, mixed, config.d_model)
        return graph.op("Slice", joined, none, self._length, graph.ints(1))

    def _slices(self, batch: str, shape: list[int], count: int) -> str:
        """The first table row of each of B * count slices of S' rows, in `shape`."""
        graph = self._graph
        number = graph.op("Squeeze", graph.op("Mul", batch, graph.ints(count)))
        zero, one = graph.constant(0, np.int64), graph.constant(1, np.int64)
        offsets = graph.op("Mul", graph.op("Range", zero, number, one), self._total)
        return graph.reshape(offsets, *shape)

    def _sort(self, query: str, block: str) -> _Sorted:
        graph, config = self._graph, self._layers.config
        half = config.attention_buckets // 2
        shape = (self._rounds, config.num_heads, config.head_dim, half)
        rotations = self._layers.arithmetic.constant(
            self._layers.weights.get(f"{block}.rotations", *shape)
        )
        axis = graph.ints(1)
        turned = graph.op("MatMul", graph.op("Unsqueeze", query, axis), rotations)
        both = graph.op("Concat", turned, graph.op("Neg", turned), axis=-1)
        buckets = graph.op("ArgMax", both, axis=-1, keepdims=0)  # [B, R, H, S']
        behind = graph.constant(config.attention_buckets, np.int64)
        buckets = graph.op("Where", self._valid, buckets, behind)
        # All numbers differ, so that any sort gives the same order.
        keys = graph.op("Add", graph.op("Mul", buckets, self._total), self._places)
        positions = self._argsort(keys)
        rows = graph.op("Add", positions, self._offsets)
        return _Sorted(buckets, self._argsort(positions), positions, rows)

    def _argsort(self, numbers: str) -> str:
        outputs = self._graph.multi_op(
            "TopK", numbers, self._total, outputs=[None, None], axis=-1, largest=0, sorted=1
        )
        return outputs[1]

    def _keys_of(self, query: str) -> str:
        """See `model.network.attention.lsh.keys_of`."""
        graph, arithmetic = self._graph, self._layers.arithmetic
        axis = graph.ints(-1)
        squares = graph.op("ReduceMean", graph.op("Mul", query, query), axis, keepdims=1)
        length = graph.op("Sqrt", graph.op("Add", squares, arithmetic.constant(NORM_EPSILON)))
        return graph.op("Div", query, length)

    def _take(self, states: str, order: _Sorted) -> str:
        """[B, H, S', K] in the order of every round: [B, R, H, S', K]."""
        table = self._graph.reshape(states, -1, self._layers.config.head_dim)
        return self._graph.op("Gather", table, order.table_rows, axis=0)

    def _chunks(self, values: str) -> str:
        """[B, R, H, S', K] as [B, R, H, n, C, K]."""
        head_dim = self._layers.config.head_dim
        return self._graph.reshape(values, 0, 0, 0, -1, self._chunk, head_dim)

    def _with_neighbours(self, chunks: str, axes: int = 6, fill: str = "") -> str:
        """[B, R, H, n, C, ...] as [B, R, H, n, 3C, ...]: every chunk between those beside it."""
        graph = self._graph
        around = np.zeros(axes, np.int64)
        around[3] = 1
        pads = graph.constant(np.tile(around, 2))
        padded = graph.op("Pad", chunks, pads, *([fill] if fill else []))
        ends = [(0, -2), (1, -1), (2, np.iinfo(np.int64).max)]
        parts = [
            graph.op("Slice", padded, *(graph.ints(n) for n in (start, end, 3)))
            for start, end in ends
        ]
        return graph.op("Concat", *parts, axis=4)

    def _scores(self, queries: str, keys: str, order: _Sorted) -> str:
        graph = self._graph
        scores = scaled_scores(self._layers, queries, keys, 6)
        itself = self._pairs("Equal", order.positions)
        scores = graph.op("Where", itself, graph.constant(_ITSELF, np.float32), scores)
        own = graph.reshape(order.buckets, -1)
        rows = graph.op("Add", order.positions, self._round_offsets)
        same = self._pairs("Equal", graph.op("Gather", own, rows, axis=0))
        if self._rounds > 1:
            scores = graph.op("Sub", scores, graph.op("Log", self._meetings(order)))
        return only_visible(graph, scores, same)

    def _pairs(self, op_type: str, sorted_values: str) -> str:
        """op(query's value, key's value) for sorted int64 [B, R, H, S']: [B, R, H, n, C, 3C]."""
        graph = self._graph
        chunks = graph.reshape(sorted_values, 0, 0, 0, -1, self._chunk)
        keys = self._with_neighbours(chunks, axes=5, fill=graph.constant(-1, np.int64))
        column, row = graph.ints(5), graph.ints(4)
        return graph.op(
            op_type, graph.op("Unsqueeze", chunks, column), graph.op("Unsqueeze", keys, row)
        )

    def _meetings(self, order: _Sorted) -> str:
        """Number of rounds in which query and key see each other, at least 1 (N in appendix A).

        Without it, a pair that meets in several rounds would count as often.
        """
        graph = self._graph
        chunks = graph.op("Div", order.ranks, graph.constant(self._chunk, np.int64))
        count = ""
        for number in range(self._rounds):
            buckets, places = (
                self._in_every_order(values, number, order) for values in (order.buckets, chunks)
            )
            same = self._pairs("Equal", buckets)
            apart = graph.op("Abs", self._pairs("Sub", places))
            near = graph.op("LessOrEqual", apart, graph.constant(1, np.int64))
            met = graph.cast(graph.op("And", same, near), "float32")
            count = graph.op("Add", count, met) if count else met
        return graph.op("Max", count, graph.constant(1.0, np.float32))

    def _in_every_order(self, values: str, number: int, order: _Sorted) -> str:
        """Values of one round's positions [B, R, H, S'], in the order of every round."""
        graph = self._graph
        one = graph.op("Gather", values, graph.constant(number, np.int64), axis=1)  # [B, H, S']
        flat = graph.reshape(one, -1)
        return graph.op("Gather", flat, order.table_rows, axis=0)

    def _combine(self, mixed: str, scores: str, order: _Sorted) -> str:
        """The rounds' results [B, R, H, n, C, K] in the positions' order, as one [B, H, S', K].

        Each counts as much as the sum of its exponentials, so that the result is one softmax over
        all that a position sees in any round.
        """
        graph, dtype = self._graph, self._layers.arithmetic.dtype
        rows = graph.op("Add", order.ranks, self._round_offsets)  # [B, R, H, S']
        table = graph.reshape(mixed, -1, self._layers.config.head_dim)
        results = graph.op("Gather", table, rows, axis=0)
        axis = graph.ints(1)
        if self._rounds == 1:
            return graph.op("Squeeze", results, axis)
        last = graph.ints(-1)
        sums = graph.op("ReduceLogSumExp", scores, last, keepdims=0)
        sums = graph.op("Gather", graph.reshape(sums, -1), rows, axis=0)
        weights = graph.op("Unsqueeze", graph.op("Softmax", sums, axis=1), last)
        if dtype != "float32":
            weights = graph.cast(weights, dtype)
        return graph.op("ReduceSum", graph.op("Mul", results, weights), axis, keepdims=0)
