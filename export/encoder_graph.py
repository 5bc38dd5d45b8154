"""The encoder graph: source ids in, cross-attention keys and values of every decoder layer out."""

from __future__ import annotations

import onnx

from export.attention.heads import split_heads
from export.attention.kinds import encoder_attention
from export.attention.linformer import PositionProjections
from export.graph_builder import GraphBuilder
from export.layers import Layers, encoder_stack
from export.packing import Packing, leave_padded, pack_tokens
from export.precisions import arithmetic_for
from export.weights import Weights
from model.bundle.config import ModelConfig


def build_encoder(
    config: ModelConfig, weights: Weights, precision: str, *, resident: bool = False
) -> onnx.ModelProto:
    """The graph that runs once for every source; with `resident`, in the form for GPUs.

    Inputs: `source_ids` int64 [B, S], `source_lengths` int32 [B] (end-of-sentence included).
    Outputs, for every decoder layer i: `cross_key_{i}`, `cross_value_{i}` [B, H, S, Dh]. At
    padding they contain finite, meaningless numbers. With low-rank cross-attention they are
    [B, H, attention_rank, Dh], without padding.

    Raises:
        ExportError: a weight is missing or has the wrong shape.
    """
    graph = GraphBuilder("encoder", weights.shared)
    ids = graph.input("source_ids", "int64", ["batch", "source"])
    lengths = graph.input("source_lengths", "int32", ["batch"])
    pack = leave_padded if resident else pack_tokens
    packing, token_ids, positions = pack(graph, ids, lengths)
    arithmetic = arithmetic_for(precision, graph, token_ids)
    layers = Layers(graph, arithmetic, weights, config)
    states = layers.embed("source", token_ids, positions)  # [N, D]
    attention = encoder_attention(layers, packing)

    def attend(states: str, layer: int) -> str:
        mixed = attention.attend(states, f"encoder.layers.{layer}.self_attention")
        return packing.unpad(graph, mixed, config.d_model)

    memory = encoder_stack(layers, states, attend)
    low_rank = config.cross_attention == "linformer"
    projections = PositionProjections(layers, packing) if low_rank else None
    for i in range(config.num_decoder_layers):
        _cross_keys_values(layers, packing, memory, i, projections)
    return graph.build()


def _cross_keys_values(
    layers: Layers,
    packing: Packing,
    memory: str,
    layer: int,
    projections: PositionProjections | None,
) -> None:
    graph, config = layers.graph, layers.config
    block = f"decoder.layers.{layer}.cross_attention"
    with graph.scope(block):
        packed = layers.cached_keys_values(memory, block)  # [N, 2D]
        padded = packing.pad(graph, packed)  # [B, S, 2D]
        split = split_heads(graph, padded, 2 * config.num_heads, config.head_dim)
        names = [f"cross_key_{layer}", f"cross_value_{layer}"]
        if projections is None:
            graph.multi_op("Split", split, outputs=names, axis=1, num_outputs=2)
        else:
            parts = graph.split(split, 2, axis=1)
            projections.project(parts[0], parts[1], block, outputs=names)
    length = "source" if projections is None else config.attention_rank
    shape: list[int | str] = ["batch", config.num_heads, length, config.head_dim]
    for name in names:
        graph.output(name, layers.cache_dtype, shape)
