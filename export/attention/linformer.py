"""Low-rank attention, of an encoder or a decoder; see `model.network.attention.linformer`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from export.attention.heads import (
    join_heads,
    pad_axis,
    scaled_scores,
    split_heads,
    weighted_values,
)
from export.layers import Layers
from export.packing import Packing

# Positions of one matrix product. MatMul adds the terms of a sum in an order that depends on their
# number: sums over a fixed number of positions, then of these sums one after another, give the same
# bits whatever the padding is.
_STEP = 128

Float32 = npt.NDArray[np.float32]


class LowRankAttentionGraph:
    """Adds self-attention to k weighted sums of the positions to an encoder graph."""

    def __init__(self, layers: Layers, packing: Packing) -> None:
        self._layers = layers
        self._packing = packing
        self._projections = PositionProjections(layers, packing)

    def attend(self, states: str, block: str) -> str:
        """Weighted values [B, S, D], not yet projected, of the encoder's states [N, D]."""
        layers, config, graph = self._layers, self._layers.config, self._layers.graph
        packed = layers.attention_input(states, block, "query", "key", "value")  # [N, 3D]
        padded = self._packing.pad(graph, packed)  # [B, S, 3D]
        parts = graph.split(padded, 3, axis=2)
        query, key, value = (
            split_heads(graph, part, config.num_heads, config.head_dim) for part in parts
        )
        key, value = self._projections.project(key, value, block)
        # A product of one row would take another path, with other bits: there are always two.
        none, one = graph.ints(0), graph.ints(1)
        query = pad_axis(graph, query, [none] * 4, [none, none, one, none])
        scores = scaled_scores(layers, query, key, 4)  # [B, H, S + 1, k]
        joined = join_heads(graph, weighted_values(layers, scores, value), config.d_model)
        return graph.op("Slice", joined, none, graph.ints(-1), one)


class PositionProjections:
    """Weighted sums of the positions of keys and values, without those of padding."""

    def __init__(self, layers: Layers, packing: Packing) -> None:
        self._layers = layers
        graph = layers.graph
        with graph.scope("positions"):
            axes = graph.ints(1, 3)
            self._valid = graph.op("Unsqueeze", graph.cast(packing.mask, "bool"), axes)
            length = graph.op("Shape", packing.mask, start=1, end=2)  # [1]: S
            step = graph.ints(_STEP)
            self._missing = graph.op("Mod", graph.op("Neg", length), step)
            self._num_steps = graph.op("Div", graph.op("Add", length, self._missing), step)

    def project(
        self, key: str, value: str, block: str, outputs: Sequence[str | None] = (None, None)
    ) -> tuple[str, str]:
        """Keys and values [B, H, S, K] as [B, H, k, K], under the names of `outputs`."""
        config = self._layers.config
        shape = config.attention_rank, config.num_source_positions
        names = (f"{block}.key_projection", f"{block}.value_projection")
        first, second = (self._layers.weights.get(name, *shape) for name in names)
        return self._sum(key, first, outputs[0]), self._sum(value, second, outputs[1])

    def _sum(self, states: str, projection: Float32, output: str | None) -> str:
        graph, config = self._layers.graph, self._layers.config
        none = graph.ints(0)
        tokens = graph.op("Where", self._valid, states, self._layers.arithmetic.constant(0.0))
        tokens = pad_axis(graph, tokens, [none] * 4, [none, none, self._missing, none])
        shape = [0, config.num_heads, -1, _STEP, config.head_dim]
        tokens = graph.reshape(tokens, *shape)  # [B, H, n, 128, K]
        used = graph.op(
            "Slice", self._layers.arithmetic.constant(_in_steps(projection)), none, self._num_steps,
            none,
        )  # fmt: skip
        sums = graph.op("MatMul", used, tokens)  # [B, H, n, k, K]
        return graph.op("ReduceSum", sums, graph.ints(2), keepdims=0, output=output)


def _in_steps(projection: Float32) -> Float32:
    """[k, longest] as [steps, k, 128], with zeros at the end."""
    rank, longest = projection.shape
    missing = -longest % _STEP
    steps = np.pad(projection, ((0, 0), (0, missing))).reshape(rank, -1, _STEP)
    return np.ascontiguousarray(steps.transpose(1, 0, 2))
