"""What encoder and decoder-step graph have in common: embeddings, sublayers, residual stream."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from export.arithmetic import Arithmetic
from export.graph_builder import MICROSOFT, GraphBuilder
from export.weights import Weights
from model.config import ModelConfig


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
        """Embedding plus position of each token: ids [...] -> [..., D]."""
        scale = math.sqrt(self.config.d_model) if self.config.scale_embeddings else 1.0
        with self.graph.scope(f"{side}_embedding"):
            states = self.arithmetic.embed(self.weights.embedding(side), ids, scale)
            table = self.weights.positions(side)
            if table is None:
                return states
            positions = self.graph.op(
                "Gather", self.arithmetic.constant(table), position_ids, axis=0
            )
            return self.graph.op("Add", states, positions)

    def fused_linear(self, states: str, block: str, *names: str) -> str:
        """Several projections of one attention block at once: [..., D] -> [..., n * D]."""
        weight, bias = self.weights.fused(block, *names)
        return self._add_bias(self.arithmetic.project(states, weight), bias)

    def attention_output(self, mixed: str, block: str) -> tuple[str, str]:
        """The last projection of an attention block, and its bias, not yet added."""
        width = self.config.d_model
        weight, bias = self.weights.linear(f"{block}.output", width, width)
        return self.arithmetic.project(mixed, weight), self.arithmetic.constant(bias)

    def feed_forward(self, states: str, block: str) -> tuple[str, str]:
        """The position-wise network, and its last bias, not yet added."""
        width, inner = self.config.d_model, self.config.ffn_dim
        weight, bias = self.weights.linear(f"{block}.inner", inner, width)
        hidden = self._add_bias(self.arithmetic.project(states, weight), bias)
        hidden = self._activation(hidden)
        weight, bias = self.weights.linear(f"{block}.outer", width, inner)
        non_negative = self.config.activation == "relu"
        projected = self.arithmetic.project(hidden, weight, non_negative=non_negative)
        return projected, self.arithmetic.constant(bias)

    def _add_bias(self, states: str, bias: np.ndarray) -> str:
        return self.graph.op("Add", states, self.arithmetic.constant(bias))

    def _activation(self, states: str) -> str:
        if self.config.activation == "relu":
            return self.graph.op("Relu", states)
        if self.config.activation == "gelu":
            return self.graph.op("Gelu", states, domain=MICROSOFT)
        return self.graph.op("QuickGelu", states, domain=MICROSOFT, alpha=1.0)  # SiLU


class ResidualStream:
    """The states that run through a stack, and the normalisations between its sublayers.

    With post-norm, sublayer i is followed by LayerNorm i (Vaswani et al., 2017, section 3.1). With
    pre-norm, LayerNorm i stands before sublayer i and one more after the last (Xiong et al., 2020).
    Either way a residual sum is followed by one normalisation: one operator does both.

    Attributes:
        states: what the next sublayer reads [..., D].
    """

    def __init__(self, layers: Layers, states: str, norms: Sequence[str], final_norm: str) -> None:
        self._layers = layers
        self._pre = layers.config.norm == "pre"
        self._norms = [*norms, final_norm] if self._pre else list(norms)
        self._residual = states
        self.states = self._first_norm(states) if self._pre else states

    def add(self, update: str, bias: str) -> None:
        """Ends a sublayer whose output is `update` + `bias`."""
        graph = self._layers.graph
        outputs = graph.multi_op(
            "SkipLayerNormalization",
            self._residual,
            update,
            *self._next_norm(),
            bias,
            outputs=[None, "", "", None] if self._pre else [None],
            domain=MICROSOFT,
            epsilon=self._layers.config.layer_norm_eps,
        )
        self.states = outputs[0]
        self._residual = outputs[3] if self._pre else self.states

    def _first_norm(self, states: str) -> str:
        return self._layers.graph.op(
            "LayerNormalization",
            states,
            *self._next_norm(),
            axis=-1,
            epsilon=self._layers.config.layer_norm_eps,
        )

    def _next_norm(self) -> tuple[str, str]:
        gain, bias = self._layers.weights.norm(self._norms.pop(0))
        constant = self._layers.arithmetic.constant
        return constant(gain), constant(bias)
