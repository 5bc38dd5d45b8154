"""How a precision multiplies: the part of the graphs that differs between fp32, fp16 and int8."""

from __future__ import annotations

from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from export.errors import ExportError
from export.graph_builder import GraphBuilder

Precision = Literal["fp32", "fp16", "int8"]
Float32 = npt.NDArray[np.float32]


class Arithmetic(Protocol):
    """Adds matrix products and embedding look-ups to one graph."""

    @property
    def dtype(self) -> str:
        """Element type of activations and caches: "float32" or "float16"."""
        ...

    def constant(self, array: Float32) -> str:
        """A vector or table in `dtype`."""
        ...

    def embed(self, table: Float32, ids: str, scale: float) -> str:
        """scale * table[ids]: ids [...] -> [..., D] for a table [V, D]."""
        ...

    def project(self, states: str, weight: Float32, *, non_negative: bool = False) -> str:
        """states [..., in] times the transposed weight [out, in]: [..., out].

        `non_negative` promises that no element of `states` is below zero.
        """
        ...

    def project_to_vocabulary(self, states: str, table: Float32) -> str:
        """The same for a matrix [V, D] that may also be an embedding table, stored once."""
        ...


class FloatArithmetic:
    """float32 and float16: products as they are."""

    def __init__(self, graph: GraphBuilder, dtype: str) -> None:
        self._graph = graph
        self._dtype = dtype

    @property
    def dtype(self) -> str:
        """Element type of activations and caches."""
        return self._dtype

    def constant(self, array: Float32) -> str:
        """A vector or table in `dtype`."""
        if self._dtype == "float16" and np.abs(array).max(initial=0.0) > np.finfo(np.float16).max:
            raise ExportError("a weight is too large for float16; export with --precision fp32")
        return self._graph.constant(array, self._dtype)

    def embed(self, table: Float32, ids: str, scale: float) -> str:
        """scale * table[ids]."""
        rows = self._graph.op("Gather", self.constant(table), ids, axis=0)
        if scale == 1.0:
            return rows
        return self._graph.op("Mul", rows, self.constant(np.asarray(scale, np.float32)))

    def project(self, states: str, weight: Float32, *, non_negative: bool = False) -> str:
        """states times the transposed weight."""
        del non_negative
        return self._graph.op("MatMul", states, self.constant(weight.T))

    def project_to_vocabulary(self, states: str, table: Float32) -> str:
        """states times the transposed table; the runtime folds the Transpose when it loads."""
        transposed = self._graph.op("Transpose", self.constant(table), perm=[1, 0])
        return self._graph.op("MatMul", states, transposed)
