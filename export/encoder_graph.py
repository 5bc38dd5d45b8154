"""The encoder graph: source ids in, cross-attention keys and values of every decoder layer out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from export.arithmetic import Linear
from export.graph_builder import MICROSOFT, GraphBuilder
from export.layers import Layers, ResidualStream
from export.precisions import arithmetic_for
from export.weights import Weights
from model.config import ModelConfig


@dataclass(frozen=True)
class _Packing:
    """The places of N tokens in a padded [B, S] batch.

    On a CPU everything but attention runs on the N tokens alone, so padding costs nothing. On a GPU
    padding costs little and counting the tokens would block the host, so everything is [B, S].

    Attributes:
        last_positions: int32 [B], of each source's last token.
        padded_width: S as an int32 scalar.
        mask: int32 [B, S], 1 at tokens.
        token_places: int64 [N], the flat place in [B * S] of each token; "" without packing.
        tokens_at: int64 [B, S], the token at each place (any token at padding); "" without packing.
    """

    last_positions: str
    padded_width: str
    mask: str
    token_places: str = ""
    tokens_at: str = ""

    def pad(self, graph: GraphBuilder, tokens: str) -> str:
        """[N, W] as [B, S, W]."""
        return graph.op("Gather", tokens, self.tokens_at, axis=0) if self.tokens_at else tokens

    def unpad(self, graph: GraphBuilder, padded: str, width: int) -> str:
        """[B, S, W] as [N, W]."""
        if not self.token_places:
            return padded
        flat = graph.op("Reshape", padded, graph.constant([-1, width], np.int64))
        return graph.op("Gather", flat, self.token_places, axis=0)


def build_encoder(
    config: ModelConfig, weights: Weights, precision: str, *, resident: bool = False
) -> onnx.ModelProto:
    """The graph that runs once for every source; with `resident`, in the form for GPUs.

    Inputs: `source_ids` int64 [B, S], `source_lengths` int32 [B] (end-of-sentence included).
    Outputs, for every decoder layer i: `cross_key_{i}`, `cross_value_{i}` [B, H, S, Dh]. At
    padding they contain finite, meaningless numbers.

    Raises:
        ExportError: a weight is missing or has the wrong shape.
    """
    graph = GraphBuilder("encoder", weights.shared)
    ids = graph.input("source_ids", "int64", ["batch", "source"])
    lengths = graph.input("source_lengths", "int32", ["batch"])
    pack = _leave_padded if resident else _pack
    packing, token_ids, positions = pack(graph, ids, lengths)
    arithmetic = arithmetic_for(precision, graph, token_ids)
    layers = Layers(graph, arithmetic, weights, config)
    states = layers.embed("source", token_ids, positions)  # [N, D]
    names = [f"encoder.layers.{i}" for i in range(config.num_encoder_layers)]
    stream = ResidualStream(
        layers,
        states,
        [f"{name}.{part}_norm" for name in names for part in ("self_attention", "feed_forward")],
        "encoder.final_norm",
    )
    for name in names:
        with graph.scope(name):
            block = f"{name}.self_attention"
            stream.add(_self_attention(layers, packing, stream.states, block))
            stream.add(layers.feed_forward(stream.states, f"{name}.feed_forward"))
    for i in range(config.num_decoder_layers):
        _cross_keys_values(layers, packing, stream.states, i)
    return graph.build()


def _pack(graph: GraphBuilder, ids: str, lengths: str) -> tuple[_Packing, str, str]:
    """The packing of a batch, and the ids and positions of its N tokens."""
    with graph.scope("packing"):
        flat, column = graph.constant([-1], np.int64), graph.constant([-1, 1], np.int64)
        width = graph.op("Squeeze", graph.op("Shape", ids, start=1, end=2))
        width32 = graph.cast(width, "int32")
        zero, one = graph.constant(0, np.int32), graph.constant(1, np.int32)
        columns = graph.op("Range", zero, width32, one)  # [S]
        valid = graph.op("Less", columns, graph.op("Reshape", lengths, column))  # [B, S]
        flat_valid = graph.op("Reshape", valid, flat)
        places = graph.op("Reshape", graph.op("NonZero", flat_valid), flat)
        counts = graph.op("CumSum", graph.cast(flat_valid, "int64"), graph.constant(0, np.int64))
        # Padding points at the last token before it: finite, and close in memory.
        tokens = graph.op("Sub", counts, graph.constant(1, np.int64))
        tokens_at = graph.op("Reshape", tokens, graph.op("Shape", ids))
        token_ids = graph.op("Gather", graph.op("Reshape", ids, flat), places)
        positions = graph.op("Mod", places, width)
        packing = _Packing(
            last_positions=graph.op("Sub", lengths, one),
            padded_width=width32,
            mask=graph.cast(valid, "int32"),
            token_places=places,
            tokens_at=tokens_at,
        )
    return packing, token_ids, positions


def _leave_padded(graph: GraphBuilder, ids: str, lengths: str) -> tuple[_Packing, str, str]:
    """The batch without packing, with ids [B, S] and positions [S]."""
    with graph.scope("padding"):
        width = graph.op("Squeeze", graph.op("Shape", ids, start=1, end=2))
        width32 = graph.cast(width, "int32")
        zero, one = graph.constant(0, np.int32), graph.constant(1, np.int32)
        positions = graph.op("Range", zero, width32, one)
        column = graph.constant([-1, 1], np.int64)
        valid = graph.op("Less", positions, graph.op("Reshape", lengths, column))  # [B, S]
        packing = _Packing(
            last_positions=graph.op("Sub", lengths, one),
            padded_width=width32,
            mask=graph.cast(valid, "int32"),
        )
    return packing, ids, positions


def _self_attention(layers: Layers, packing: _Packing, states: str, block: str) -> Linear:
    graph, config = layers.graph, layers.config
    packed = layers.attention_input(states, block, "query", "key", "value")  # [N, 3D]
    padded = packing.pad(graph, packed)  # [B, S, 3D]
    on_gpu = layers.arithmetic.dtype == "float16" or not packing.tokens_at
    attend = _attend_masked if on_gpu else _attend_by_length
    mixed = attend(graph, packing, padded, config.num_heads)  # [B, S, D]
    return layers.attention_output(packing.unpad(graph, mixed, config.d_model), block)


def _attend_by_length(graph: GraphBuilder, packing: _Packing, qkv: str, num_heads: int) -> str:
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


def _attend_masked(graph: GraphBuilder, packing: _Packing, qkv: str, num_heads: int) -> str:
    """Attention with a mask, for GPUs, where GroupQueryAttention is always causal."""
    query_key_value = graph.multi_op("Split", qkv, outputs=[None] * 3, axis=2, num_outputs=3)
    return graph.op(
        "MultiHeadAttention",
        *query_key_value,
        *("", packing.mask),
        domain=MICROSOFT,
        num_heads=num_heads,
    )


def _cross_keys_values(layers: Layers, packing: _Packing, memory: str, layer: int) -> None:
    graph, config = layers.graph, layers.config
    block = f"decoder.layers.{layer}.cross_attention"
    with graph.scope(block):
        packed = layers.attention_input(memory, block, "key", "value")  # [N, 2D]
        padded = packing.pad(graph, packed)  # [B, S, 2D]
        heads = graph.constant([0, 0, 2 * config.num_heads, config.head_dim], np.int64)
        split = graph.op("Transpose", graph.op("Reshape", padded, heads), perm=[0, 2, 1, 3])
        names = [f"cross_key_{layer}", f"cross_value_{layer}"]
        graph.multi_op("Split", split, outputs=names, axis=1, num_outputs=2)
    shape: list[int | str] = ["batch", config.num_heads, "source", config.head_dim]
    for name in names:
        graph.output(name, layers.arithmetic.dtype, shape)
