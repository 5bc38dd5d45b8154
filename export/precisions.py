"""The three precisions of a bundle by name."""

from __future__ import annotations

from export.arithmetic import Arithmetic, FloatArithmetic
from export.errors import ExportError
from export.graph_builder import GraphBuilder

PRECISIONS = ("fp32", "fp16", "int8")


def arithmetic_for(precision: str, graph: GraphBuilder) -> Arithmetic:
    """The arithmetic of `precision` for one graph.

    Raises:
        ExportError: no such precision.
    """
    if precision == "fp32":
        return FloatArithmetic(graph, "float32")
    if precision == "fp16":
        return FloatArithmetic(graph, "float16")
    raise ExportError(f"precision must be one of {', '.join(PRECISIONS)}, not {precision!r}")
