"""The three precisions of a bundle, by name."""

from __future__ import annotations

from export.arithmetic import Arithmetic, Float16Arithmetic, Float32Arithmetic
from export.errors import ExportError
from export.graph_builder import GraphBuilder
from export.int8_arithmetic import Int8Arithmetic

PRECISIONS = ("fp32", "fp16", "int8")


def arithmetic_for(
    precision: str, graph: GraphBuilder, token_ids: str, *, static_scales: bool = False
) -> Arithmetic:
    """The arithmetic of `precision` for one graph.

    Args:
        precision: fp32, fp16 or int8.
        token_ids: the ids [...] whose states [..., D] the graph computes.
        static_scales: allows static activation scales for int8, see `Int8Arithmetic`.

    Raises:
        ExportError: no such precision.
    """
    if precision == "fp32":
        return Float32Arithmetic(graph)
    if precision == "fp16":
        return Float16Arithmetic(graph)
    if precision == "int8":
        return Int8Arithmetic(graph, token_ids, static_scales=static_scales)
    raise ExportError(f"precision must be one of {', '.join(PRECISIONS)}, not {precision!r}")
