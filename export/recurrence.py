"""The recurrent unit of `model.network.recurrence` in graphs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from export.graph_builder import GraphBuilder
from export.layers import Layers


def recurrent_step(
    graph: GraphBuilder, past: str, forget: str, candidate: str, output: str | None = None
) -> str:
    """The state after a position, f c + (1 - f) x, as x + f (c - x): one operator fewer."""
    difference = graph.op("Sub", past, candidate)
    scaled = graph.op("Mul", forget, difference)
    return graph.op("Add", candidate, scaled, output=output)


def recurrence_of_all(layers: Layers) -> Callable[[str, int], str]:
    """The sublayer over all target positions of one sentence: [T, D] -> [T, D].

    It uses the operators of a decoder step, one position after another, so that states are equal
    bit for bit.
    """
    graph, dtype, width = layers.graph, layers.arithmetic.dtype, layers.config.d_model
    step = GraphBuilder("position")
    inputs = [step.input(name, dtype, [width]) for name in ("past", "forget", "candidate")]
    state = step.output(recurrent_step(step, *inputs), dtype, [width])
    step.output(step.op("Identity", state), dtype, [width])
    body = step.body()

    def recur(states: str, layer: int) -> str:
        forget, candidate = layers.gates(states, f"decoder.layers.{layer}.recurrence")
        start = layers.arithmetic.constant(np.zeros(width))
        _, every = graph.multi_op(
            "Scan", start, forget, candidate, outputs=[None, None], body=body, num_scan_inputs=2
        )
        return graph.op("Relu", every)

    return recur
