"""The end of the shortlist-step graph: each row chooses among the tokens of its own list.

The weights of the last product are an input: the columns of the union of all rows' lists. Each row
then reads the logits of its own list, in the order of its tokens, and nothing else. So its choice
does not depend on the other rows, bit for bit.
"""

from __future__ import annotations

import numpy as np
import onnx

from export.graph_builder import GraphBuilder
from export.layers import Layers
from export.precisions import arithmetic_for
from export.token_choice import log_sum_exp_of
from export.weights import Weights
from model.bundle.config import ModelConfig


def choose_listed_tokens(layers: Layers, states: str) -> None:
    """Adds the outputs `top_ids`, `top_logits` and `log_sum_exp` for states [rows, 1, D].

    Adds these inputs, besides those of `Arithmetic.project_to_columns`:
        top_k int64 [1], on the host; at most the width of `listed_columns`.
        column_ids int64 [columns]: the token of each column.
        listed_columns int32 [rows, listed]: columns of each row's list in the order of its tokens,
            then columns with a bias of -inf. A multiple of 128 wide: then sums over a wider array
            are the same bits.
    """
    graph = layers.graph
    steps = layers.weights.steps("output_projection")
    logits = layers.arithmetic.project_to_columns(states, layers.config.d_model, steps)
    logits = graph.op("Squeeze", logits, graph.ints(1))  # [rows, columns]
    columns = graph.input("listed_columns", "int32", ["rows", "listed"])
    token_ids = graph.input("column_ids", "int64", ["columns"])
    k = graph.input("top_k", "int64", [1])
    own = graph.op("GatherElements", logits, columns, axis=1)  # [rows, listed]
    _, places = graph.multi_op("TopK", own, k, outputs=["top_logits", None], axis=-1)
    best_columns = graph.op("GatherElements", columns, places, axis=1)
    graph.op("Gather", token_ids, best_columns, axis=0, output="top_ids")
    log_sum_exp = log_sum_exp_of(graph, own, places)
    graph.op("Squeeze", log_sum_exp, graph.ints(1), output="log_sum_exp")
    graph.output("top_ids", "int64", ["rows", "k"])
    graph.output("top_logits", "float32", ["rows", "k"])
    graph.output("log_sum_exp", "float32", ["rows"])


def build_list_columns(config: ModelConfig, weights: Weights, precision: str) -> onnx.ModelProto:
    """The graph that returns the columns of the vocabulary's product for some tokens.

    Inputs:
        token_ids int64 [n].
    Outputs:
        columns [D, n], uint8 around 128 or float32; column_scales float32 [n], of uint8 ones only;
        column_bias float32 [n], zero for a model without an output bias.

    Raises:
        ExportError: a weight is missing or has the wrong shape.
    """
    graph = GraphBuilder("list_columns", weights.shared)
    token_ids = graph.input("token_ids", "int64", ["n"])
    arithmetic = arithmetic_for(precision, graph, token_ids)
    steps = weights.steps("output_projection")
    arithmetic.output_columns(weights.output_projection(), token_ids, steps)
    bias = weights.output_bias()
    if bias is None:
        bias = np.zeros(config.vocab_size, np.float32)
    graph.op("Gather", graph.constant(bias), token_ids, axis=0, output="column_bias")
    graph.output("column_bias", "float32", ["n"])
    return graph.build()
