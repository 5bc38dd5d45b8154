"""The attention graph: attention weights of every layer for a sentence and its translation.

The graphs that translate fuse attention into operators that keep the weights to themselves. Here it
is made of plain operators, so that the weights are values with names. The rest is the same, from
the same weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx

from export.arithmetic import Linear
from export.attention.heads import (
    join_heads,
    only_visible,
    scaled_scores,
    split_heads,
)
from export.attention.linformer import PositionProjections
from export.attention.lsh import HashedAttentionGraph
from export.graph_builder import GraphBuilder
from export.layers import Layers, decoder_stack, encoder_stack
from export.packing import Packing, leave_padded
from export.precisions import arithmetic_for
from export.recurrence import recurrence_of_all
from export.scoring_graph import output_log_probabilities, shifted
from export.weights import Weights
from model.bundle.config import ModelConfig
from model.network.attention.conventions import num_local_heads


def build_attention(config: ModelConfig, weights: Weights, precision: str) -> onnx.ModelProto:
    """Encoder and decoder over one source and its complete target ("teacher forcing").

    Each kind and layer is an output of its own: a run computes only what its outputs need, with
    `RunOptions.only_execute_path_to_fetches`.

    Inputs:
        source_ids int64 [1, source], source_lengths int32 [1]: one source, end-of-sentence
            included, without padding.
        target_ids int64 [target]: end-of-sentence included and without BOS.
        heads int64 [heads]: the heads to return, in this order.
    Outputs, float32, whose rows sum to one:
        encoder_self_attention_{i} [heads, source, source]: columns are keys; low-rank attention
            has `attention_rank` of them. Not there for attention by hashing, whose weights are
            spread over several rounds.
        decoder_self_attention_{i} [heads, target, target]: of the step that chose the token, over
            what it read: BOS and the tokens before. An SSRU decoder has none.
        cross_attention_{i} [heads, target, source]: of the step that chose the token, over the
            source; low-rank attention has `attention_rank` columns.
    And log_probabilities float32 [target], of each token after those before it.

    Raises:
        ExportError: a weight is missing or has the wrong shape.
    """
    graph = GraphBuilder("attention", weights.shared)
    source_ids = graph.input("source_ids", "int64", [1, "source"])
    lengths = graph.input("source_lengths", "int32", [1])
    target_ids = graph.input("target_ids", "int64", ["target"])
    heads = graph.input("heads", "int64", ["heads"])
    packing, _, positions = leave_padded(graph, source_ids, lengths)
    encoder = Layers(graph, arithmetic_for(precision, graph, source_ids), weights, config)
    states = encoder.embed("source", source_ids, positions)  # [1, S, D]
    memory = encoder_stack(encoder, states, _encoder_attention(encoder, packing, heads))
    read = shifted(graph, target_ids, config.bos_id)  # [T]
    arithmetic = arithmetic_for(precision, graph, read, static_scales=True)
    decoder = Layers(graph, arithmetic, weights, config)
    places = _Places.of(graph, target_ids)
    attention = _DecoderAttention(encoder, decoder, packing, memory, places, heads)
    states = decoder.embed("target", read, places.positions)  # [T, D]
    recurrent = config.decoder == "ssru"
    look_back = recurrence_of_all(decoder) if recurrent else attention.self_attention
    states = decoder_stack(decoder, states, look_back, attention.cross_attention)
    with graph.scope("output"):
        output_log_probabilities(decoder, states, target_ids)
    return graph.build()


@dataclass(frozen=True)
class _Places:
    """Positions int64 [T], and which of them a query sees: boolean [T, T]."""

    positions: str
    causal: str

    @classmethod
    def of(cls, graph: GraphBuilder, ids: str) -> _Places:
        zero, one = graph.constant(0, np.int64), graph.constant(1, np.int64)
        positions = graph.op("Range", zero, graph.op("Squeeze", graph.op("Shape", ids)), one)
        query = graph.op("Unsqueeze", positions, graph.ints(1))
        return cls(positions, graph.op("LessOrEqual", positions, query))


class _ShownAttention:
    """Attention whose weights are outputs of the graph."""

    def __init__(self, layers: Layers, heads: str) -> None:
        self._layers = layers
        self._heads = heads

    def attend(
        self, query: str, key: str, value: str, name: str, columns: str | int, visible: str = ""
    ) -> str:
        """The mixed values [1, T, D], not yet projected.

        Args:
            query: the queries of the rows, [1, H, T, K].
            key: the keys of the columns, [1, H, S, K].
            value: the values of the columns, [1, H, S, K].
            name: the name of the output that gets the weights.
            columns: the number of columns, or the name of that dimension.
            visible: mask of the columns that a row sees, broadcastable to [1, H, T, S]; "" for all.
        """
        graph, dtype = self._layers.graph, self._layers.arithmetic.dtype
        scores = scaled_scores(self._layers, query, key, 4)
        if visible:
            scores = only_visible(graph, scores, visible)
        weights = graph.op("Softmax", scores, axis=-1)
        shown = graph.op("Squeeze", weights, graph.ints(0))
        graph.op("Gather", shown, self._heads, axis=0, output=name)
        rows = "source" if name.startswith("encoder") else "target"
        graph.output(name, "float32", ["heads", rows, columns])
        if dtype != "float32":
            weights = graph.cast(weights, dtype)
        mixed = graph.op("MatMul", weights, value)
        return join_heads(graph, mixed, self._layers.config.d_model)


def _encoder_attention(layers: Layers, packing: Packing, heads: str) -> Callable[[str, int], str]:
    """The attention of the encoder's layers, for `encoder_stack`; an output, except by hashing."""
    shown = _EncoderAttention(layers, packing, heads)
    if layers.config.encoder_attention != "lsh":
        return shown.attend_layer
    hashed = HashedAttentionGraph(layers, packing)
    return lambda states, i: hashed.attend(states, f"encoder.layers.{i}.self_attention")


class _EncoderAttention(_ShownAttention):
    """Self-attention of the encoder, with a mask over all pairs where not all are seen.

    The masks are those of `model.network.attention`.
    """

    def __init__(self, layers: Layers, packing: Packing, heads: str) -> None:
        super().__init__(layers, heads)
        config, graph = layers.config, layers.graph
        self._columns: str | int = "source"
        self._projections: PositionProjections | None = None
        self._visible = ""
        if config.encoder_attention == "linformer":
            self._columns = config.attention_rank
            self._projections = PositionProjections(layers, packing)
        elif config.encoder_attention in ("local", "strided"):
            with graph.scope("visible"):
                self._visible = self._mask(packing)

    def attend_layer(self, states: str, layer: int) -> str:
        """Weighted values [1, S, D], not yet projected, of the encoder's states."""
        layers, config, graph = self._layers, self._layers.config, self._layers.graph
        block = f"encoder.layers.{layer}.self_attention"
        packed = layers.attention_input(states, block, "query", "key", "value")
        parts = graph.split(packed, 3, axis=2)
        query, key, value = (
            split_heads(graph, part, config.num_heads, config.head_dim) for part in parts
        )
        if self._projections is not None:
            key, value = self._projections.project(key, value, block)
        name = f"encoder_self_attention_{layer}"
        return self.attend(query, key, value, name, self._columns, self._visible)

    def _mask(self, packing: Packing) -> str:
        """[S, S] of local attention, [H, S, S] of strided: near heads first, then far ones."""
        graph, config = self._layers.graph, self._layers.config
        length = graph.op("Squeeze", graph.op("Shape", packing.mask, start=1, end=2))
        zero, one = graph.constant(0, np.int64), graph.constant(1, np.int64)
        positions = graph.op("Range", zero, length, one)
        query = graph.op("Unsqueeze", positions, graph.ints(1))
        apart = graph.op("Abs", graph.op("Sub", query, positions))  # [S, S]
        window = graph.constant(config.attention_window, np.int64)
        near = graph.op("LessOrEqual", apart, window)
        if config.encoder_attention == "local":
            return near
        far = graph.op("Equal", graph.op("Mod", apart, window), zero)
        is_near = np.arange(config.num_heads)[:, None, None] < num_local_heads(config.num_heads)
        # Where has no kernel for booleans.
        nearby = graph.op("And", graph.constant(is_near), near)
        return graph.op("Or", nearby, graph.op("And", graph.constant(~is_near), far))


class _DecoderAttention(_ShownAttention):
    """Self- and cross-attention of all target positions."""

    def __init__(
        self,
        encoder: Layers,
        decoder: Layers,
        packing: Packing,
        memory: str,
        places: _Places,
        heads: str,
    ) -> None:
        super().__init__(decoder, heads)
        self._encoder = encoder  # projects keys and values of the source, as the encoder graph does
        self._memory = memory
        self._places = places
        low_rank = decoder.config.cross_attention == "linformer"
        self._projections = PositionProjections(encoder, packing) if low_rank else None

    def self_attention(self, states: str, layer: int) -> Linear:
        """The causal sublayer over states [T, D], up to its last projection."""
        block = f"decoder.layers.{layer}.self_attention"
        query, key, value = self._projected(states, block, "query", "key", "value")
        name = f"decoder_self_attention_{layer}"
        mixed = self.attend(query, key, value, name, "target", self._places.causal)
        return self._layers.attention_output(self._single(mixed), block)

    def cross_attention(self, states: str, layer: int) -> Linear:
        """The sublayer over the source, up to its last projection."""
        block = f"decoder.layers.{layer}.cross_attention"
        memory = self._encoder.attention_input(self._memory, block, "key", "value")
        key, value = self._parts(memory, 2)
        columns: str | int = "source"
        if self._projections is not None:
            columns = self._layers.config.attention_rank
            key, value = self._projections.project(key, value, block)
        [query] = self._projected(states, block, "query")
        mixed = self.attend(query, key, value, f"cross_attention_{layer}", columns)
        return self._layers.attention_output(self._single(mixed), block)

    def _projected(self, states: str, block: str, *names: str) -> list[str]:
        """Projections of states [T, D], each [1, H, T, K]."""
        packed = self._layers.attention_input(states, block, *names)
        batch = self._layers.graph.ints(0)
        return self._parts(self._layers.graph.op("Unsqueeze", packed, batch), len(names))

    def _parts(self, packed: str, count: int) -> list[str]:
        """Divide [1, S, count * D] into `count` tensors [1, H, S, K]."""
        graph, config = self._layers.graph, self._layers.config
        parts = [packed]
        if count > 1:
            parts = graph.split(packed, count, axis=2)
        return [split_heads(graph, part, config.num_heads, config.head_dim) for part in parts]

    def _single(self, states: str) -> str:
        """[1, T, D] as [T, D]."""
        graph = self._layers.graph
        return graph.op("Squeeze", states, graph.ints(0))
