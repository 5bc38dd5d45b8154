"""The end of the decoder-step graph: from hidden states to the best k tokens and their logits.

For 64 rows and 32,000 tokens, the obvious operators take longer than the vocabulary projection.
Microseconds on one core: ReduceLogSumExp 8,016, LogSoftmax 688; TopK 857, in two stages 228;
ScatterND 300 to copy what ScatterElements changes in place.
"""

from __future__ import annotations

import numpy as np

from export.graph_builder import GraphBuilder
from export.layers import Layers

# Sizes of groups of neighbouring tokens, the fastest first; one has to divide the vocabulary.
_GROUP_SIZES = (128, 64, 160, 96, 80, 100, 125, 50, 48, 40, 32, 256, 200, 250)
_MIN_GROUPS = 32  # with fewer, two stages are not faster than one


def choose_tokens(layers: Layers, states: str, *, resident: bool = False) -> None:
    """Adds the outputs `top_ids`, `top_logits` and `log_sum_exp` for states [rows, 1, D].

    Also adds the inputs `top_k` (k) and adjust_rows, adjust_token_ids and adjust_values (sparse
    additions to the logits before the choice).

    With `resident`, the graph can be captured as a CUDA graph: it computes nothing from `top_k`, so
    that counts are read from the host once.
    """
    graph, vocab_size = layers.graph, layers.config.vocab_size
    logits = _adjust(graph, layers.logits(states, to_choose=True), vocab_size)
    _top_k(graph, logits, vocab_size, resident)
    log_sum_exp = log_sum_exp_of(graph, logits, "top_ids")  # [rows, 1]
    if layers.config.forbidden_id is not None:
        log_sum_exp = _add_forbidden(layers, states, log_sum_exp)
    graph.op("Squeeze", log_sum_exp, graph.ints(1), output="log_sum_exp")
    graph.output("top_ids", "int64", ["rows", "k"])
    graph.output("top_logits", "float32", ["rows", "k"])
    graph.output("log_sum_exp", "float32", ["rows"])


def _adjust(graph: GraphBuilder, logits: str, vocab_size: int) -> str:
    """logits[rows[i], 0, token_ids[i]] += values[i]: [rows, V]."""
    rows = graph.input("adjust_rows", "int64", ["adjustments"])
    token_ids = graph.input("adjust_token_ids", "int64", ["adjustments"])
    values = graph.input("adjust_values", "float32", ["adjustments"])
    size = graph.constant(vocab_size, np.int64)
    places = graph.op("Add", graph.op("Mul", rows, size), token_ids)
    flat = graph.reshape(logits, -1)
    adjusted = graph.op("ScatterElements", flat, places, values, axis=0, reduction="add")
    for value in (flat, adjusted):
        graph.describe(value, "float32", ["rows * vocabulary"])
    shaped = graph.reshape(adjusted, -1, vocab_size)
    return graph.describe(shaped, "float32", ["rows", vocab_size])


def _group_size(vocab_size: int) -> int:
    size = next((size for size in _GROUP_SIZES if vocab_size % size == 0), 0)
    return size if vocab_size >= _MIN_GROUPS * size else 0


def _top_k(graph: GraphBuilder, logits: str, vocab_size: int, resident: bool) -> None:
    """The best k logits of each row, best first.

    Equal logits come in the order of their tokens, as in TopK.

    In two stages on a CPU: the k groups of neighbouring tokens with the highest maxima contain the
    k best tokens, since k group maxima are better than any token of another group. On a GPU, TopK
    reads the logits once for up to 32 candidates, and each further operator would be a launch.
    """
    k = graph.input("top_k", "int64", [1])
    size = _group_size(vocab_size)
    if resident or not size:
        graph.multi_op("TopK", logits, k, outputs=["top_logits", "top_ids"], axis=-1)
        return
    last = graph.ints(-1)
    groups = graph.reshape(logits, 0, -1, size)
    maxima = graph.op("ReduceMax", groups, last, keepdims=0)  # [rows, V / size]
    num_groups = graph.op("Min", k, graph.ints(vocab_size // size))
    _, best_groups = graph.multi_op("TopK", maxima, num_groups, outputs=[None, None], axis=-1)
    # Back to the order of the vocabulary, so that equal logits keep it.
    best_groups, _ = graph.multi_op(
        "TopK", best_groups, num_groups, outputs=[None, None], axis=-1, largest=0
    )
    places_of_groups = graph.op("Unsqueeze", best_groups, last)  # [rows, k, 1]
    candidates = graph.op("GatherND", groups, places_of_groups, batch_dims=1)
    candidates = graph.reshape(candidates, 0, -1)
    _, places = graph.multi_op("TopK", candidates, k, outputs=["top_logits", None], axis=-1)
    width = graph.constant(size, np.int64)
    group = graph.op("GatherElements", best_groups, graph.op("Div", places, width), axis=1)
    start = graph.op("Mul", group, width)
    graph.op("Add", start, graph.op("Mod", places, width), output="top_ids")


def log_sum_exp_of(graph: GraphBuilder, logits: str, places: str) -> str:
    """log sum exp(x) = max(x) - max(log_softmax(x)), [rows, 1].

    `places` [rows, k] are those of the best logits, whose values are in `top_logits`.

    LogSoftmax takes one logarithm a row. The operator Log over the rows' probabilities would be a
    little faster, but computes some of them eight at a time and the rest singly, with other bits.
    """
    first = [graph.ints(n) for n in (0, 1)]
    axis = graph.ints(1)
    best = graph.op("Slice", "top_logits", *first, axis)  # [rows, 1]
    best_id = graph.op("Slice", places, *first, axis)
    log_probabilities = graph.op("LogSoftmax", logits, axis=-1)
    best_log_probability = graph.op("GatherElements", log_probabilities, best_id, axis=1)
    return graph.op("Sub", best, best_log_probability)


def _add_forbidden(layers: Layers, states: str, log_sum_exp: str) -> str:
    """The log-sum-exp [rows, 1] with the token that is never chosen, which keeps its share of it.

    Its logit is computed by itself, since the logits have another one there: a product and a sum of
    D numbers a row. LogSoftmax over the two works row by row, as in `log_sum_exp_of`.
    """
    graph, forbidden_id = layers.graph, layers.config.forbidden_id
    bias = layers.weights.output_bias()
    assert forbidden_id is not None
    assert bias is not None
    if layers.arithmetic.dtype != "float32":
        states = graph.cast(states, "float32")
    axis = graph.ints(1)
    last = graph.ints(-1)
    weight = graph.constant(layers.weights.output_projection()[forbidden_id], np.float32)
    product = graph.op("Mul", states, weight)  # [rows, 1, D]
    logit = graph.op("ReduceSum", product, last, keepdims=0)
    logit = graph.op("Add", logit, graph.constant(bias[forbidden_id], np.float32))  # [rows, 1]
    both = graph.op("LogSoftmax", graph.op("Concat", log_sum_exp, logit, axis=1), axis=-1)
    share = graph.op("Slice", both, graph.ints(0), axis, axis)
    return graph.op("Sub", log_sum_exp, share)
