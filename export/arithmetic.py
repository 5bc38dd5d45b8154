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
class FixedSteps:
    """Steps of 8-bit numbers that a model's files prescribe. Only int8 graphs follow them.

    Attributes:
        weights: steps of a matrix's integers, one for each of equal parts of its rows.
        states: step of the matrix's inputs; None to measure it for each row of inputs.
    """

    weights: tuple[float, ...]
    states: float | None = None


@dataclass(frozen=True)
class Linear:
    """states [..., in] times the transposed `weight` [out, in], plus `bias` [out].

    Attributes:
        non_negative: elements of `states` below zero count as zero. A precision that can read the
            states in this way needs no separate ReLU.
        steps: prescribed steps; None without any.
    """

    states: str
    weight: Float32
    bias: Float32
    non_negative: bool = False
    steps: FixedSteps | None = None


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

    def embed(self, table: Float32, ids: str, scale: float, steps: FixedSteps | None = None) -> str:
        """scale * table[ids]: ids [...] -> [..., D] for a table [V, D]."""
        ...

    def linear(self, linear: Linear) -> str:
        """The result [..., out]."""
        ...

    def normalize(self, states: str, norm: Norm) -> str:
        """LayerNormalization over the last axis."""
        ...

    def add_and_normalize(self, residual: str, linear: Linear, norm: Norm) -> tuple[str, str]:
        """End a sublayer: add `residual` to the linear map, and normalise the sum."""
        ...

    def project_to_vocabulary(
        self, states: str, table: Float32, bias: Float32 | None, steps: FixedSteps | None = None
    ) -> str:
        """states [..., D] times the transposed table [V, D], plus `bias` [V] if there is one.

        An embedding may share the table.
        """
        ...

    def project_to_columns(self, states: str, width: int, steps: FixedSteps | None = None) -> str:
        """Multiply states [rows, 1, D] by columns that are inputs of the graph: [rows, 1, columns].

        Adds the inputs `columns` [D, columns] and `column_bias` float32 [columns]; and
        `column_scales` float32 [columns] if columns are uint8.
        """
        ...

    def output_columns(
        self, table: Float32, token_ids: str, steps: FixedSteps | None = None
    ) -> None:
        """Adds columns of a table as outputs, which `project_to_columns` of another graph reads.

        Args:
            table: the output projection [V, D].
            token_ids: tokens [n] to return the columns of.
            steps: prescribed steps; None without any.
        """
        ...


class Float32Arithmetic:
    """Plain float32 operators."""

    dtype = "float32"

    def __init__(self, graph: GraphBuilder) -> None:
        self._graph = graph

    def constant(self, array: npt.ArrayLike) -> str:
        """Add a vector, table or number to the graph, and return its name."""
        return self._graph.constant(array, self.dtype)

    def embed(self, table: Float32, ids: str, scale: float, steps: FixedSteps | None = None) -> str:
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
        """Add and normalise with two additions and LayerNormalization.

        On a CPU these take a sixth of the time of SkipLayerNormalization, whose sums are not
        vectorised (28 against 165 microseconds for 64 rows of 512).
        """
        total = self._graph.op("Add", residual, self.linear(linear))
        return total, self.normalize(total, norm)

    def project_to_vocabulary(
        self, states: str, table: Float32, bias: Float32 | None, steps: FixedSteps | None = None
    ) -> str:
        """states times the transposed table, plus `bias`."""
        weight = transposed(self._graph, self.constant(table))
        product = self._graph.op("MatMul", states, weight)
        return product if bias is None else self._graph.op("Add", product, self.constant(bias))

    def project_to_columns(self, states: str, width: int, steps: FixedSteps | None = None) -> str:
        """states times the input `columns`, plus the input `column_bias`.

        A row of zeros is multiplied too: for a single row, the runtime would add in another order.
        """
        graph = self._graph
        columns = graph.input("columns", self.dtype, [width, "columns"])
        bias = graph.input("column_bias", self.dtype, ["columns"])
        first = graph.ints(0)
        padded = graph.op("Concat", states, self.constant(np.zeros((1, 1, width))), axis=0)
        product = graph.op("MatMul", padded, columns)
        product = graph.op("Slice", product, first, graph.ints(-1), first)
        return graph.op("Add", product, bias)

    def output_columns(
        self, table: Float32, token_ids: str, steps: FixedSteps | None = None
    ) -> None:
        """Adds the output `columns` [D, n]."""
        rows = self._graph.op("Gather", self.constant(table), token_ids, axis=0)
        self._graph.op("Transpose", rows, perm=[1, 0], output="columns")
        self._graph.output("columns", self.dtype, [table.shape[1], "n"])

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
        """Add and normalise with one SkipLayerNormalization: fewer kernels are faster on a GPU."""
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
