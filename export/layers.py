"""Building blocks of the graphs: embeddings, sublayers, residual stream, the decoder's stack."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from export.arithmetic import Arithmetic, Linear, Norm
from export.graph_builder import MICROSOFT, GraphBuilder
from export.weights import Weights
from model.bundle.config import ModelConfig

NEVER = -30_000.0
"""The logit of a token that is not chosen: finite in float16, and without a probability."""


class Layers:
    """Adds the Transformer's building blocks to one graph, in one precision."""

    def __init__(
        self, graph: GraphBuilder, arithmetic: Arithmetic, weights: Weights, config: ModelConfig
    ) -> None:
        self.graph = graph
        self.arithmetic = arithmetic
        self.weights = weights
        self.config = config

    def embed(self, side: str, ids: str, position_ids: str) -> str:
        """Embedding plus position of each token, normalised if asked for: ids [...] -> [..., D]."""
        scale = math.sqrt(self.config.d_model) if self.config.scale_embeddings else 1.0
        with self.graph.scope(f"{side}_embedding"):
            steps = self.weights.steps(f"{side}_embedding")
            states = self.arithmetic.embed(self.weights.embedding(side), ids, scale, steps)
            if side == "target" and not self.config.embed_start:
                states = self._without_start(states, ids)
            table = self.weights.positions(side)
            if table is not None:
                positions = self.graph.op(
                    "Gather", self.arithmetic.constant(table), position_ids, axis=0
                )
                states = self.graph.op("Add", states, positions)
            if self.config.embedding_norm:
                norm = self.norm(f"{side}_embedding_norm")
                states = self.arithmetic.normalize(states, norm)
            return states

    def attention_input(self, states: str, block: str, *names: str) -> str:
        """Several projections of an attention block in one product: [..., D] -> [..., n * D]."""
        steps = self.weights.steps(*(f"{block}.{name}" for name in names))
        return self.arithmetic.linear(
            Linear(states, *self.weights.fused(block, *names), steps=steps)
        )

    def cached_keys_values(self, memory: str, block: str) -> str:
        """Keys and values of a block side by side, as they are cached: [..., D] -> [..., 2D]."""
        packed = self.attention_input(memory, block, "key", "value")
        steps = self.weights.cache_steps.get(block)
        if steps is None:
            return packed
        # One step for all channels of the operator: with one for each, it is not vectorised.
        scaled = self.graph.op("Mul", packed, self.arithmetic.constant(1 / np.concatenate(steps)))
        one, zero = self.arithmetic.constant(1.0), self.graph.constant(0, np.int8)
        return self.graph.op("QuantizeLinear", scaled, one, zero)

    @property
    def cache_dtype(self) -> str:
        """Element type of the decoder's cached keys and values."""
        return "int8" if self.weights.cache_steps else self.arithmetic.dtype

    def attention_output(self, mixed: str, block: str) -> Linear:
        """The last projection of an attention block."""
        width, name = self.config.d_model, f"{block}.output"
        steps = self.weights.steps(name)
        return Linear(mixed, *self.weights.linear(name, width, width), steps=steps)

    def feed_forward(self, states: str, block: str) -> Linear:
        """The position-wise network, up to its last projection."""
        width, inner = self.config.d_model, self.config.ffn_dim
        weights = self.weights.linear(f"{block}.inner", inner, width)
        steps = self.weights.steps(f"{block}.inner")
        hidden = self.arithmetic.linear(Linear(states, *weights, steps=steps))
        weights = self.weights.linear(f"{block}.outer", width, inner)
        steps = self.weights.steps(f"{block}.outer")
        if self.config.activation == "relu":
            return Linear(hidden, *weights, non_negative=True, steps=steps)
        return Linear(self._activation(hidden), *weights, steps=steps)

    def gates(self, states: str, block: str) -> tuple[str, str]:
        """A recurrent unit's forget gate and candidate [..., D] of its input [..., D]."""
        steps = self.weights.steps(f"{block}.forget", f"{block}.candidate")
        both = self.arithmetic.linear(Linear(states, *self.weights.gates(block), steps=steps))
        forget, candidate = self.graph.split(both, 2, axis=-1)
        return self.graph.op("Sigmoid", forget), candidate

    def logits(self, states: str, *, to_choose: bool = False) -> str:
        """The float32 logits [..., V] of hidden states [..., D].

        With `to_choose`, the token that the model never chooses has the logit `NEVER`.
        """
        bias = self.weights.output_bias()
        if bias is not None and to_choose and self.config.forbidden_id is not None:
            bias = bias.copy()
            bias[self.config.forbidden_id] = NEVER
        table, steps = self.weights.output_projection(), self.weights.steps("output_projection")
        logits = self.arithmetic.project_to_vocabulary(states, table, bias, steps)
        return logits if self.arithmetic.dtype == "float32" else self.graph.cast(logits, "float32")

    def norm(self, name: str) -> Norm:
        """The layer normalisation of this name."""
        return Norm(*self.weights.norm(name), self.config.layer_norm_eps)

    def _without_start(self, states: str, ids: str) -> str:
        """The embeddings [..., D] of tokens [...], with zeros for the token that starts."""
        last = self.graph.ints(-1)
        starts = self.graph.op("Equal", ids, self.graph.constant(self.config.bos_id, np.int64))
        starts = self.graph.op("Unsqueeze", starts, last)
        return self.graph.op("Where", starts, self.arithmetic.constant(0.0), states)

    def _activation(self, states: str) -> str:
        if self.config.activation == "gelu":
            return self.graph.op("Gelu", states, domain=MICROSOFT)
        return self.graph.op("QuickGelu", states, domain=MICROSOFT, alpha=1.0)  # SiLU


class ResidualStream:
    """The hidden states of a stack, with the normalisations between its sublayers.

    With post-norm, sublayer i is followed by LayerNorm i (Vaswani et al., 2017, section 3.1). With
    pre-norm, LayerNorm i stands before sublayer i and one more after the last (Xiong et al., 2020).
    Either way each residual sum is followed by one normalisation.

    Attributes:
        states: input [..., D] of the next sublayer.
    """

    def __init__(self, layers: Layers, states: str, norms: Sequence[str], final_norm: str) -> None:
        self._layers = layers
        self._pre = layers.config.norm == "pre"
        self._norms = [*norms, final_norm] if self._pre else list(norms)
        self._residual = states
        self.states = states
        if self._pre:
            self.states = layers.arithmetic.normalize(states, self._next_norm())

    def add(self, sublayer: Linear | str) -> None:
        """End a sublayer with its last projection, or with its output if it has no projection."""
        arithmetic, norm = self._layers.arithmetic, self._next_norm()
        if isinstance(sublayer, Linear):
            total, self.states = arithmetic.add_and_normalize(self._residual, sublayer, norm)
        else:
            # Not Add, which the runtime would make part of a slow SkipLayerNormalization.
            total = self._layers.graph.op("Sum", self._residual, sublayer)
            self.states = arithmetic.normalize(total, norm)
        self._residual = total if self._pre else self.states

    def _next_norm(self) -> Norm:
        return self._layers.norm(self._norms.pop(0))


def encoder_stack(layers: Layers, states: str, attend: Callable[[str, int], str]) -> str:
    """The encoder's layers: embedded tokens [..., D] -> hidden states [..., D].

    Args:
        attend: returns weighted values [..., D], not yet projected, given the input [..., D] of
            self-attention and the layer's number.
    """
    names = [f"encoder.layers.{i}" for i in range(layers.config.num_encoder_layers)]
    parts = ("self_attention", "feed_forward")
    norms = [f"{name}.{part}_norm" for name in names for part in parts]
    stream = ResidualStream(layers, states, norms, "encoder.final_norm")
    for i, name in enumerate(names):
        with layers.graph.scope(name):
            mixed = attend(stream.states, i)
            stream.add(layers.attention_output(mixed, f"{name}.self_attention"))
            stream.add(layers.feed_forward(stream.states, f"{name}.feed_forward"))
    return stream.states


def decoder_stack(
    layers: Layers,
    states: str,
    look_back: Callable[[str, int], Linear | str],
    cross_attention: Callable[[str, int], Linear],
) -> str:
    """The decoder's layers: embedded tokens [..., D] -> hidden states [..., D].

    Args:
        look_back: self-attention or the recurrent unit: returns the sublayer as
            `ResidualStream.add` takes it, given its input [..., D] and the layer's number.
        cross_attention: the same for the attention to the source.
    """
    names = [f"decoder.layers.{i}" for i in range(layers.config.num_decoder_layers)]
    first = "recurrence" if layers.config.decoder == "ssru" else "self_attention"
    parts = (first, "cross_attention", "feed_forward")
    norms = [f"{name}.{part}_norm" for name in names for part in parts]
    stream = ResidualStream(layers, states, norms, "decoder.final_norm")
    for i, name in enumerate(names):
        with layers.graph.scope(name):
            stream.add(look_back(stream.states, i))
            stream.add(cross_attention(stream.states, i))
            stream.add(layers.feed_forward(stream.states, f"{name}.feed_forward"))
    return stream.states
