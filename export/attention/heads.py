"""Steps that several kinds of attention share, of standard operators."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from export.graph_builder import GraphBuilder
from export.layers import Layers

# The lowest numbers of both types, after which softmax gives exactly zero.
_LOWEST = float(np.finfo(np.float32).min)


def split_heads(graph: GraphBuilder, states: str, num_heads: int, head_dim: int) -> str:
    """[B, S, H * K] as [B, H, S, K]."""
    heads = graph.reshape(states, 0, 0, num_heads, head_dim)
    return graph.op("Transpose", heads, perm=[0, 2, 1, 3])


def join_heads(graph: GraphBuilder, states: str, width: int) -> str:
    """[B, H, S, K] as [B, S, H * K]; `width` is H * K."""
    return graph.reshape(graph.op("Transpose", states, perm=[0, 2, 1, 3]), 0, 0, width)


def scaled_scores(layers: Layers, query: str, key: str, rank: int) -> str:
    """float32 Q K^T / sqrt(K): [..., T, K] and [..., S, K] of `rank` axes to [..., T, S]."""
    graph, arithmetic = layers.graph, layers.arithmetic
    scale = arithmetic.constant(1.0 / math.sqrt(layers.config.head_dim))
    perm = [*range(rank - 2), rank - 1, rank - 2]
    transposed = graph.op("Transpose", key, perm=perm)
    scores = graph.op("MatMul", graph.op("Mul", query, scale), transposed)
    return scores if arithmetic.dtype == "float32" else graph.cast(scores, "float32")


def only_visible(graph: GraphBuilder, scores: str, visible: str) -> str:
    """Scores that softmax turns into zeros wherever `visible` is false."""
    return graph.op("Where", visible, scores, graph.constant(_LOWEST, np.float32))


def weighted_values(layers: Layers, scores: str, value: str) -> str:
    """softmax(scores) V: float32 [..., T, S] and [..., S, K] to [..., T, K]."""
    graph, dtype = layers.graph, layers.arithmetic.dtype
    weights = graph.op("Softmax", scores, axis=-1)
    if dtype != "float32":
        weights = graph.cast(weights, dtype)
    return graph.op("MatMul", weights, value)


def pad_axis(graph: GraphBuilder, value: str, before: Sequence[str], after: Sequence[str]) -> str:
    """`value` with zeros around it, as many as the int64 [1] values say, one for each axis."""
    return graph.op("Pad", value, graph.op("Concat", *before, *after, axis=0))
