"""The scoring graph: log-probabilities and attention of a given translation, in one pass."""

from __future__ import annotations

import math

import numpy as np
import onnx

from export.arithmetic import Linear
from export.graph_builder import MICROSOFT, GraphBuilder
from export.layers import Layers, decoder_stack
from export.precisions import arithmetic_for
from export.recurrence import recurrence_of_all
from export.weights import Weights
from model.bundle.config import ModelConfig


def build_scoring(
    config: ModelConfig,
    weights: Weights,
    precision: str,
    alignment_layer: int,
    alignment_head: int | None = None,
) -> onnx.ModelProto:
    """The decoder over a complete given target ("teacher forcing"), for one sentence.

    It takes one sentence and not a batch, so that there is no padding and no result can depend on
    another sentence. A target of ten tokens fills the matrix products as well as a decoder step of
    ten rows.

    Inputs:
        target_ids int64 [target]: the tokens to score, end-of-sentence included and without BOS.
        cross_key_{i}, cross_value_{i} [1, H, source, Dh]: the encoder's, without padding.
    Outputs:
        log_probabilities float32 [target]: of each token after those before it.
        attention float32 [target, source]: the cross-attention of `alignment_layer` at the step
            that chose the token, of `alignment_head` or, without one, averaged over heads; each row
            sums to one. With low-rank cross-attention, [target, attention_rank].

    Raises:
        ExportError: a weight is missing or has the wrong shape.
    """
    graph = GraphBuilder("scoring", weights.shared)
    target_ids = graph.input("target_ids", "int64", ["target"])
    fed = shifted(graph, target_ids, config.bos_id)
    arithmetic = arithmetic_for(precision, graph, fed, static_scales=True)
    layers = Layers(graph, arithmetic, weights, config)
    attention = _TargetAttention(layers, target_ids, alignment_head)
    states = layers.embed("target", fed, attention.positions)  # [T, D]
    recurrent = config.decoder == "ssru"
    states = decoder_stack(
        layers,
        states,
        recurrence_of_all(layers) if recurrent else attention.self_attention,
        lambda states, i: attention.cross_attention(states, i, i == alignment_layer),
    )
    with graph.scope("output"):
        output_log_probabilities(layers, states, target_ids)
    return graph.build()


def shifted(graph: GraphBuilder, target_ids: str, bos_id: int) -> str:
    """The decoder's input at each position: BOS, then all tokens but the last."""
    start, end, axis = (graph.ints(n) for n in (0, -1, 0))
    before = graph.op("Slice", target_ids, start, end, axis)
    return graph.op("Concat", graph.ints(bos_id), before, axis=0)


def output_log_probabilities(layers: Layers, states: str, target_ids: str) -> None:
    """Adds the output `log_probabilities` [T] of given tokens [T], from states [T, D]."""
    graph = layers.graph
    everything = graph.op("LogSoftmax", layers.logits(states), axis=-1)  # [T, V]
    column = graph.ints(1)
    chosen = graph.op(
        "GatherElements", everything, graph.op("Unsqueeze", target_ids, column), axis=1
    )
    graph.op("Squeeze", chosen, column, output="log_probabilities")
    graph.output("log_probabilities", "float32", ["target"])


class _TargetAttention:
    """Self- and cross-attention of all target positions of one sentence."""

    def __init__(self, layers: Layers, target_ids: str, alignment_head: int | None) -> None:
        self._layers = layers
        self._alignment_head = alignment_head
        self._graph = graph = layers.graph
        zero, one = graph.constant(0, np.int64), graph.constant(1, np.int64)
        self._column = graph.ints(1)
        length = graph.op("Squeeze", graph.op("Shape", target_ids))
        self.positions = graph.op("Range", zero, length, one)  # [T]
        self._length = graph.cast(length, "int32")
        last = graph.op("Sub", self._length, graph.constant(1, np.int32))
        self._last_position = graph.op("Reshape", last, self._column)  # [1]

    def self_attention(self, states: str, layer: int) -> Linear:
        """The causal sublayer over states [T, D], up to its last projection."""
        block = f"decoder.layers.{layer}.self_attention"
        graph, config = self._graph, self._layers.config
        packed = self._layers.attention_input(states, block, "query", "key", "value")  # [T, 3D]
        first = graph.ints(0)
        packed = graph.op("Unsqueeze", packed, first)
        attend = self._attend_on_gpu if self._layers.arithmetic.dtype == "float16" else self._attend
        mixed = attend(packed, config.num_heads)  # [1, T, D]
        return self._layers.attention_output(graph.op("Squeeze", mixed, first), block)

    def _attend(self, packed: str, num_heads: int) -> str:
        return self._graph.op(
            "GroupQueryAttention",
            packed,
            *("", "", "", ""),
            self._last_position,
            self._length,
            domain=MICROSOFT,
            num_heads=num_heads,
            kv_num_heads=num_heads,
        )

    def _attend_on_gpu(self, packed: str, num_heads: int) -> str:
        """Attention with the operator that the encoder uses on GPUs; it has no cache."""
        parts = self._graph.split(packed, 3, axis=2)
        return self._graph.op(
            "MultiHeadAttention", *parts, domain=MICROSOFT, num_heads=num_heads, unidirectional=1
        )

    def cross_attention(self, states: str, layer: int, aligns: bool) -> Linear:
        """The sublayer over the source, of plain operators, since its weights are needed."""
        block = f"decoder.layers.{layer}.cross_attention"
        graph, config, arithmetic = self._graph, self._layers.config, self._layers.arithmetic
        shape: list[int | str] = [1, config.num_heads, "source", config.head_dim]
        key, value = (
            graph.op(
                "Squeeze",
                graph.input(f"cross_{kind}_{layer}", self._layers.cache_dtype, shape),
                graph.ints(0),
            )
            for kind in ("key", "value")
        )
        if (steps := self._layers.weights.cache_steps.get(block)) is not None:
            key, value = (
                graph.op(
                    "Mul",
                    graph.cast(integers, arithmetic.dtype),
                    arithmetic.constant(step.reshape(config.num_heads, 1, config.head_dim)),
                )
                for integers, step in zip((key, value), steps, strict=True)
            )
        query = self._layers.attention_input(states, block, "query")  # [T, D]
        query = graph.op("Mul", query, arithmetic.constant(1.0 / math.sqrt(config.head_dim)))
        query = graph.reshape(query, 0, config.num_heads, config.head_dim)
        query = graph.op("Transpose", query, perm=[1, 0, 2])
        scores = graph.op("MatMul", query, graph.op("Transpose", key, perm=[0, 2, 1]))
        if arithmetic.dtype != "float32":
            scores = graph.cast(scores, "float32")
        weights = graph.op("Softmax", scores, axis=-1)  # [H, T, S]
        if aligns:
            self._output_alignment(weights)
        if arithmetic.dtype != "float32":
            weights = graph.cast(weights, arithmetic.dtype)
        mixed = graph.op("Transpose", graph.op("MatMul", weights, value), perm=[1, 0, 2])
        return self._layers.attention_output(graph.reshape(mixed, 0, config.d_model), block)

    def _output_alignment(self, weights: str) -> None:
        if self._alignment_head is not None:
            head = self._graph.constant(self._alignment_head, np.int64)
            self._graph.op("Gather", weights, head, axis=0, output="attention")
        else:
            heads = self._graph.ints(0)
            self._graph.op("ReduceMean", weights, heads, keepdims=0, output="attention")
        self._graph.output("attention", "float32", ["target", "source"])
