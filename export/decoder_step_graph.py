"""The decoder-step graph: one token for every running row, its cache updated in place."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx

from export.arithmetic import Linear
from export.cache_steps import KeyValueSteps
from export.graph_builder import MICROSOFT, GraphBuilder
from export.layers import Layers, decoder_stack
from export.listed_choice import choose_listed_tokens
from export.precisions import arithmetic_for
from export.recurrence import recurrent_step
from export.token_choice import choose_tokens
from export.weights import Weights
from model.bundle.config import ModelConfig

# The number of GroupQueryAttention's first input for 8-bit caches, the step of keys.
_SCALE_INPUT = 12


def build_decoder_step(
    config: ModelConfig,
    weights: Weights,
    precision: str,
    *,
    resident: bool = False,
    listed: bool = False,
) -> onnx.ModelProto:
    """The graph that runs once for every generated token.

    Inputs:
        token_ids int64 [rows]: last token of each row.
        positions int32 [rows]: its position, equal to the number of cached positions.
        total_sequence_length int32 scalar: length of the self-attention buffers, on the host.
        source_lengths int32 [rows].
        top_k int64 [1]: number of tokens to return for each row, on the host. A smaller k gives the
            first tokens of a larger one.
        adjust_rows, adjust_token_ids int64 [n], adjust_values float32 [n]: sparse additions to the
            logits; n may be 0.
        past_key_{i}, past_value_{i} [rows, H, target, Dh]: self-attention cache. An SSRU decoder
            has past_state_{i} [rows, D] instead, and no `total_sequence_length`.
        cross_key_{i}, cross_value_{i} [rows, H, source, Dh]: from the encoder.
        cross_last_key_{i}, cross_last_value_{i} [rows, 1, D]: these at the last source position,
            stored as float32 where caches are int8, still as integers.
    Outputs:
        top_ids int64 [rows, k], top_logits float32 [rows, k], log_sum_exp float32 [rows].
        present_key_{i}, present_value_{i} or present_state_{i}, present_cross_key_{i},
            present_cross_value_{i}: bind them to the buffers of the past_/cross_ inputs.

    With `resident`, row states stay on the device from step to step, and the graph can be captured:
    Inputs:
        running int32 [rows]: 1 for a running row, 0 for a finished or free one.
        source_buffer_length int32 scalar: length of the cross-attention buffers, on the host.
    Outputs:
        next_token_ids int64 [rows], next_positions and next_running int32 [rows]: bind them to the
            buffers of the corresponding inputs. A row that ends keeps its position.
        chosen float32 [rows, 2k + 1]: top_ids, top_logits and log_sum_exp side by side, for a
            single copy to the host.

    With `listed`, each row chooses among the tokens of its shortlist, without adjustments; see
    `export.listed_choice` for the further inputs.

    Raises:
        ExportError: a weight is missing or has the wrong shape.
    """
    graph = GraphBuilder("shortlist_step" if listed else "decoder_step", weights.shared)
    column = graph.ints(1)
    # Unsqueeze, not Reshape: it keeps the dimension's name, by which the runtime sees that two
    # values have the same shape and can share a buffer.
    token_ids = graph.op("Unsqueeze", graph.input("token_ids", "int64", ["rows"]), column)
    arithmetic = arithmetic_for(precision, graph, token_ids, static_scales=True)
    layers = Layers(graph, arithmetic, weights, config)
    recurrent = config.decoder == "ssru"
    attention = _CachedAttention(layers, resident)
    positions = attention.positions if resident else None
    look_back = _recurrence(layers, positions) if recurrent else attention.self_attention
    position_ids = graph.op("Unsqueeze", attention.positions, column)
    states = layers.embed("target", token_ids, position_ids)  # [rows, 1, D]
    states = decoder_stack(layers, states, look_back, attention.cross_attention)
    with graph.scope("output"):
        if listed:
            choose_listed_tokens(layers, states)
            return graph.build()
        choose_tokens(layers, states, resident=resident)
        if resident:
            _go_on(graph, attention.positions, config.eos_id)
    return graph.build()


def _go_on(graph: GraphBuilder, positions: str, eos_id: int) -> None:
    """Outputs for the next step on the device, and the output that the host reads."""
    column = graph.ints(1)
    first = [graph.ints(n) for n in (0, 1)]
    running = graph.input("running", "int32", ["rows"])
    best = graph.op("Slice", "top_ids", *first, column)  # [rows, 1]
    graph.op("Squeeze", best, column, output="next_token_ids")
    ended = graph.op("Equal", "next_token_ids", graph.constant(eos_id, np.int64))
    nothing = graph.constant(0, np.int32)
    graph.op("Where", ended, nothing, running, output="next_running")
    graph.op("Add", positions, "next_running", output="next_positions")
    ids = graph.cast("top_ids", "float32")  # exact: a vocabulary is smaller than 2^24
    total = graph.op("Unsqueeze", "log_sum_exp", column)
    graph.op("Concat", ids, "top_logits", total, axis=1, output="chosen")
    graph.output("next_token_ids", "int64", ["rows"])
    graph.output("next_running", "int32", ["rows"])
    graph.output("next_positions", "int32", ["rows"])
    graph.output("chosen", "float32", ["rows", "2 * k + 1"])


def _recurrence(layers: Layers, positions: str | None) -> Callable[[str, int], str]:
    """The recurrent unit of one new position a row, over external states.

    Each past state is read by one node, on which the node that writes its present state depends: so
    both can have one buffer.

    Args:
        layers: layers of the decoder.
        positions: [rows]; at position 0 a row's state counts as zero, whatever the buffer holds.
            With None, the buffer has to hold zeros there.
    """
    graph, dtype, width = layers.graph, layers.arithmetic.dtype, layers.config.d_model
    column = graph.ints(1)
    if positions is not None:
        nothing = graph.constant(0, np.dtype(dtype).type)
        begins = graph.op("Equal", positions, graph.constant(0, np.int32))
        begins = graph.op("Unsqueeze", begins, column)  # [rows, 1]

    def step(states: str, layer: int) -> str:
        forget, candidate = (
            graph.op("Squeeze", gate, column)
            for gate in layers.gates(states, f"decoder.layers.{layer}.recurrence")
        )
        past = graph.input(f"past_state_{layer}", dtype, ["rows", width])
        present = graph.output(f"present_state_{layer}", dtype, ["rows", width])
        if positions is not None:
            past = graph.op("Where", begins, nothing, past)
        recurrent_step(graph, past, forget, candidate, output=present)
        return graph.op("Unsqueeze", graph.op("Relu", present), column)

    return step


class _CachedAttention:
    """Self- and cross-attention of one new position a row, over external caches.

    GroupQueryAttention appends the new key and value at `seqlens_k` and attends up to there, so its
    cost depends on each row's length and not on the buffer's.
    """

    def __init__(self, layers: Layers, resident: bool) -> None:
        self._layers = layers
        self._graph = graph = layers.graph
        self.positions = graph.input("positions", "int32", ["rows"])
        self._target_buffer = ""
        if layers.config.decoder == "self_attention":
            self._target_buffer = graph.input("total_sequence_length", "int32", [])
        lengths = graph.input("source_lengths", "int32", ["rows"])
        self._last_source = graph.op("Sub", lengths, graph.constant(1, np.int32))
        self._source_buffer: str | None = None
        if resident:
            self._source_buffer = graph.input("source_buffer_length", "int32", [])

    def self_attention(self, states: str, layer: int) -> Linear:
        """The sublayer, up to its last projection."""
        block = f"decoder.layers.{layer}.self_attention"
        packed = self._layers.attention_input(states, block, "query", "key", "value")
        past = [self._cache_input(f"past_{kind}_{layer}", "target") for kind in ("key", "value")]
        mixed = self._attend(
            (packed, "", ""),
            past,
            (self.positions, self._target_buffer),
            [f"present_{kind}_{layer}" for kind in ("key", "value")],
            "target",
            steps=self._layers.weights.cache_steps.get(block),
        )
        return self._layers.attention_output(mixed, block)

    def cross_attention(self, states: str, layer: int) -> Linear:
        """The sublayer over the source, up to its last projection.

        The operator needs a new key and value at every call. It gets those of the last source
        position, and overwrites them with themselves.
        """
        block = f"decoder.layers.{layer}.cross_attention"
        query = self._layers.attention_input(states, block, "query")
        past = [self._cache_input(f"cross_{kind}_{layer}", "source") for kind in ("key", "value")]
        width, dtype = self._layers.config.d_model, self._layers.arithmetic.dtype
        last = [
            self._graph.input(f"cross_last_{kind}_{layer}", dtype, ["rows", 1, width])
            for kind in ("key", "value")
        ]
        steps = self._layers.weights.cache_steps.get(block)
        if steps is not None:
            last = [
                self._graph.op("Mul", integers, self._layers.arithmetic.constant(step))
                for integers, step in zip(last, steps, strict=True)
            ]
        if self._source_buffer is None:
            length = self._graph.op("Shape", past[0], start=2, end=3)
            self._source_buffer = self._graph.cast(self._graph.op("Squeeze", length), "int32")
        mixed = self._attend(
            (query, *last),
            past,
            (self._last_source, self._source_buffer),
            [f"present_cross_{kind}_{layer}" for kind in ("key", "value")],
            "source",
            steps=steps,
        )
        return self._layers.attention_output(mixed, block)

    def _cache_input(self, name: str, length: str) -> str:
        return self._graph.input(name, self._layers.cache_dtype, self._cache_shape(length))

    def _cache_shape(self, length: str) -> list[int | str]:
        config = self._layers.config
        return ["rows", config.num_heads, length, config.head_dim]

    def _attend(
        self,
        new: tuple[str, ...],  # query, key, value; or packed, "", ""
        past: list[str],
        lengths: tuple[str, str],
        present: list[str],
        length: str,
        steps: KeyValueSteps | None = None,
    ) -> str:
        heads = self._layers.config.num_heads
        inputs: tuple[str, ...] = (*new, *past, *lengths)
        attributes: dict[str, str | int] = {}
        if steps is not None:
            # After five optional inputs: tables of rotary positions, a bias, a sink.
            scales = (self._layers.arithmetic.constant(step) for step in steps)
            inputs = (*inputs, *[""] * (_SCALE_INPUT - len(inputs)), *scales)
            attributes = {"k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_CHANNEL"}
            attributes |= {"kv_cache_bit_width": 8}
        outputs = self._graph.multi_op(
            "GroupQueryAttention",
            *inputs,
            outputs=[None, *present],
            domain=MICROSOFT,
            num_heads=heads,
            kv_num_heads=heads,
            **attributes,
        )
        for name in present:
            self._graph.output(name, self._layers.cache_dtype, self._cache_shape(length))
        return outputs[0]
