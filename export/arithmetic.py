"""Matrix products and normalisation in each precision: where fp32, fp16 and int8 graphs differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from export.errors import ExportError
from export.graph_builder import MICROSOFT, GraphBuilder

Float32 = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Linear:
    """states [..., in] times the transposed `weight` [out, in], plus `bias` [out].

    Attributes:
        non_negative: elements of `states` below zero count as zero. A precision that can read the
            states in this way needs no separate ReLU.
    """

    states: str
    weight: Float32
    bias: Float32
    non_negative: bool = False


@dataclass(frozen=True)
class Norm:
    """A layer normalisation: gain and bias [D]."""

    gain: Float32
    bias: Float32
    epsilon: float


class Arithmetic(Protocol):
    """Adds matrix products and embedding lookups in one precision to a graph."""

    @property
    def dtype(self) -> str:
        """Element type of activations and caches: "float32" or "float16"."""
        ...

    def constant(self, array: npt.ArrayLike) -> str:
        """A vector, table or number in `dtype`."""
        ...

    def embed(self, table: Float32, ids: str, scale: float) -> str:
        """scale * table[ids]: ids [...] -> [..., D] for a table [V, D]."""
        ...

    def linear(self, linear: Linear) -> str:
        """The result [..., out]."""
        ...

    def normalize(self, states: str, norm: Norm) -> str:
        """LayerNormalization over the last axis."""
        ...

    def add_and_normalize(self, residual: str, linear: Linear, norm: Norm) -> tuple[str, str]:
        """The end of a sublayer: residual + linear, and that sum normalised."""
        ...

    def project_to_vocabulary(self, states: str, table: Float32, bias: Float32 | None) -> str:
        """states [..., D] times the transposed table [V, D], plus `bias` [V] if there is one.

        An embedding may share the table.
        """
        ...


class Float32Arithmetic:
    """Plain float32 operators."""

    dtype = "float32"

    def __init__(self, graph: GraphBuilder) -> None:
        self._graph = graph

    def constant(self, array: npt.ArrayLike) -> str:
        """A vector, table or number."""
        return self._graph.constant(array, self.dtype)

    def embed(self, table: Float32, ids: str, scale: float) -> str:
        """scale * table[ids]."""
        rows = self._graph.op("Gather", self.constant(table), ids, axis=0)
        return rows if scale == 1.0 else self._graph.op("Mul", rows, self.constant(scale))

    def linear(self, linear: Linear) -> str:
        """The result [..., out]."""
        return self._graph.op("Add", self._product(linear), self.constant(linear.bias))

    def normalize(self, states: str, norm: Norm) -> str:
        """LayerNormalization over the last axis."""
        gain, bias = self.constant(norm.gain), self.constant(norm.bias)
        return self._graph.op(
            "LayerNormalization", states, gain, bias, axis=-1, epsilon=norm.epsilon
        )

    def add_and_normalize(self, residual: str, linear: Linear, norm: Norm) -> tuple[str, str]:
        """Two plain additions and LayerNormalization.

        On a CPU these take a sixth of the time of SkipLayerNormalization, whose sums are not
        vectorised (28 against 165 microseconds for 64 rows of 512).
        """
        total = self._graph.op("Add", residual, self.linear(linear))
        return total, self.normalize(total, norm)

    def project_to_vocabulary(self, states: str, table: Float32, bias: Float32 | None) -> str:
        """states times the transposed table, plus `bias`."""
        weight = transposed(self._graph, self.constant(table))
        product = self._graph.op("MatMul", states, weight)
        return product if bias is None else self._graph.op("Add", product, self.constant(bias))

    def _product(self, linear: Linear) -> str:
        states = linear.states
        if linear.non_negative:
            states = self._graph.op("Relu", states)
        return self._graph.op("MatMul", states, self.constant(linear.weight.T))


class Float16Arithmetic(Float32Arithmetic):
    """Half precision, for GPUs."""

    dtype = "float16"

    def constant(self, array: npt.ArrayLike) -> str:
        """A vector, table or number."""
        if np.abs(array).max(initial=0.0) > np.finfo(np.float16).max:
            raise ExportError("a weight is too large for float16: export with --precision fp32")
        return super().constant(array)

    def add_and_normalize(self, residual: str, linear: Linear, norm: Norm) -> tuple[str, str]:
        """One SkipLayerNormalization: on a GPU, fewer kernels are faster."""
        normalized, _, _, total = self._graph.multi_op(
            "SkipLayerNormalization",
            residual,
            self._product(linear),
            *(self.constant(norm.gain), self.constant(norm.bias), self.constant(linear.bias)),
            outputs=[None, "", "", None],
            domain=MICROSOFT,
            epsilon=norm.epsilon,
        )
        return total, normalized


def transposed(graph: GraphBuilder, table: str) -> str:
    """A constant table [V, D] as [D, V].

    The file stores the table once, as the embedding reads it; the runtime transposes it when it
    loads the graph.
    """
    return graph.op("Transpose", table, perm=[1, 0])
