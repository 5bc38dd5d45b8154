"""8-bit integer products with one activation scale for every row, or a static one.

    y[r, n] = scale[r] * scale[n] * sum over i of q[r, i] * w[i, n] + bias[n]

Weights are quantised once, symmetrically, per output channel; activations at run time, per row. The
output of a decoder's layer normalisation gets a static scale instead, a constant of the graph that
follows from the gains and biases. The product then adds its bias by itself. A model can prescribe
the steps of a matrix and of its inputs: then the integers are the model's own.

Integer sums don't depend on their order and everything else works row by row, so a row's result
doesn't depend on the other rows, bit for bit. Dynamic quantisation usually has one scale for the
whole tensor, which would lose this property, and accuracy too.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import onnx

from export.arithmetic import (
    FixedSteps,
    Float32,
    Float32Arithmetic,
    Linear,
    Norm,
    transposed,
)
from export.graph_builder import MICROSOFT, GraphBuilder

Int8 = npt.NDArray[np.int8]

# Range of static scales in standard deviations; values beyond it are clipped. In the decoder of the
# model measured (width 256) these are at most 3 of 10,000 values, and clipping them costs less than
# wider steps for all others. (For a normal distribution too, 4 loses the least.) The model's
# log-probabilities differ from the checkpoint's by 0.0260, 0.0252, 0.0260, 0.0275 and 0.0316 on
# average with a range of 3.5, 4, 4.5, 5 and 6, and by 0.0213 with a scale for each row.
_REACH = 4.0

# MatMulInteger's fast kernels need unsigned activations, hence a zero point in the middle.
_MIDDLE = 128


class Int8Arithmetic(Float32Arithmetic):
    """Weights and embeddings in 8 bits; attention and normalisation in float32.

    Args:
        token_ids: the ids [...] whose states [..., D] the graph computes.
        static_scales: normalised states get static scales. For decoders only: an encoder's
            states reach 10 standard deviations, and errors in them affect the whole translation.
    """

    def __init__(self, graph: GraphBuilder, token_ids: str, *, static_scales: bool = False) -> None:
        super().__init__(graph)
        self._uses_static_scales = static_scales
        self._static_scales: dict[str, np.float32] = {}  # of normalised states
        self._quantized: dict[tuple[str, bool], tuple[str, str]] = {}
        shape = graph.op("Shape", graph.op("Unsqueeze", token_ids, graph.ints(-1)))
        self._middle = graph.op("ConstantOfShape", shape, value=_uint8(_MIDDLE))  # [..., 1]
        self._zero = graph.op("ConstantOfShape", shape, value=_uint8(0))

    def embed(self, table: Float32, ids: str, scale: float, steps: FixedSteps | None = None) -> str:
        """Gathers 8-bit rows and their scales, and dequantises only those."""
        values, scales = quantize_rows(table, steps)
        rows = self._graph.op("Gather", self._graph.constant(values), ids, axis=0)
        rows = self._graph.op("Cast", rows, to=onnx.TensorProto.FLOAT)
        column = (scales * np.float32(scale))[:, None]
        row_scales = self._graph.op("Gather", self.constant(column), ids, axis=0)
        return self._graph.op("Mul", rows, row_scales)

    def normalize(self, states: str, norm: Norm) -> str:
        """LayerNormalization over the last axis; records the static scale of its result."""
        normalized = super().normalize(states, norm)
        if self._uses_static_scales:
            self._static_scales[normalized] = static_scale_of(norm)
        return normalized

    def linear(self, linear: Linear) -> str:
        """The result [..., out]."""
        static = self._static_scale(linear.states, linear.steps, linear.non_negative)
        if static is not None:
            return self._linear_static(linear, static)
        product, scale = self._scaled_product(linear)
        scaled = self._graph.op("Mul", product, scale)
        return self._graph.op("Add", scaled, self.constant(linear.bias))

    def add_and_normalize(self, residual: str, linear: Linear, norm: Norm) -> tuple[str, str]:
        """Add and normalise; GatedAdd scales the product's rows and adds it in one pass."""
        static = self._static_scale(linear.states, linear.steps, linear.non_negative)
        if static is not None:
            # Not Add, which the runtime would make part of a slow SkipLayerNormalization.
            total = self._graph.op("Sum", residual, self._linear_static(linear, static))
            return total, self.normalize(total, norm)
        product, scale = self._scaled_product(linear)
        biased = self._graph.op("Add", residual, self.constant(linear.bias))
        total = self._graph.op("GatedAdd", biased, product, scale, domain=MICROSOFT)
        return total, self.normalize(total, norm)

    def project_to_vocabulary(
        self, states: str, table: Float32, bias: Float32 | None, steps: FixedSteps | None = None
    ) -> str:
        """states times the transposed table, from the same 8-bit numbers as the embedding.

        With a static scale, the product adds the bias by itself: another pass over [rows, V] would
        take a tenth of the product's time.
        """
        values, scales = quantize_rows(table, steps)
        weight = transposed(self._graph, self._graph.constant(values))
        static = self._static_scale(states, steps)
        if static is not None:
            return self._multiply_static(states, static, weight, scales, bias)
        quantized, scale = self._quantize(states, table.shape[1])
        product = self._graph.op("Mul", self._multiply(quantized, weight, scales), scale)
        return product if bias is None else self._graph.op("Add", product, self.constant(bias))

    def project_to_columns(self, states: str, width: int, steps: FixedSteps | None = None) -> str:
        """states times the inputs `columns` and `column_scales`, plus the input `column_bias`.

        Columns are unsigned: of signed ones, processors without VNNI would add up pairs in 16 bits.
        (Of constant weights, the runtime itself makes unsigned ones there.)
        """
        graph = self._graph
        columns = graph.input("columns", "uint8", [width, "columns"])
        scales = graph.input("column_scales", "float32", ["columns"])
        bias = graph.input("column_bias", "float32", ["columns"])
        middle = graph.constant(_MIDDLE, np.uint8)
        static = self._static_scale(states, steps)
        if static is not None:
            return self._multiply_static(
                states, static, columns, scales, bias, weight_zero_point=middle
            )
        quantized, scale = self._quantize(states, width)
        product = self._multiply(quantized, columns, scales, weight_zero_point=middle)
        return graph.op("Add", graph.op("Mul", product, scale), bias)

    def output_columns(
        self, table: Float32, token_ids: str, steps: FixedSteps | None = None
    ) -> None:
        """Adds the outputs `columns` [D, n] and `column_scales` [n]: the embedding's numbers."""
        graph = self._graph
        values, scales = quantize_rows(table, steps)
        rows = graph.op("Gather", graph.constant(values), token_ids, axis=0)
        rows = graph.op("Add", graph.cast(rows, "int32"), graph.constant(_MIDDLE, np.int32))
        rows = graph.cast(rows, "uint8")
        graph.op("Transpose", rows, perm=[1, 0], output="columns")
        graph.op("Gather", self.constant(scales), token_ids, axis=0, output="column_scales")
        graph.output("columns", "uint8", [table.shape[1], "n"])
        graph.output("column_scales", "float32", ["n"])

    def _scaled_product(self, linear: Linear) -> tuple[str, str]:
        """The product without the rows' scales, and these scales."""
        values, scales = quantize_rows(linear.weight, linear.steps)
        width = linear.weight.shape[1]
        quantized, scale = self._quantize(linear.states, width, linear.non_negative)
        weight = self._graph.constant(values.T)
        zero_point = 0 if linear.non_negative else _MIDDLE
        return self._multiply(quantized, weight, scales, zero_point=zero_point), scale

    def _static_scale(
        self, states: str, steps: FixedSteps | None, non_negative: bool = False
    ) -> np.float32 | None:
        """The scale of states that is a constant of the graph, if they have one."""
        if steps is not None and steps.states is not None:
            return np.float32(steps.states)
        return None if non_negative else self._static_scales.get(states)

    def _linear_static(self, linear: Linear, scale: np.float32) -> str:
        values, scales = quantize_rows(linear.weight, linear.steps)
        weight = self._graph.constant(values.T)
        zero_point = 0 if linear.non_negative else _MIDDLE
        return self._multiply_static(
            linear.states, scale, weight, scales, linear.bias, zero_point=zero_point
        )

    def _multiply_static(
        self,
        states: str,
        scale: np.float32,
        weight: str,
        scales: Float32 | str,
        bias: Float32 | str | None = None,
        *,
        zero_point: int = _MIDDLE,
        weight_zero_point: str = "",
    ) -> str:
        """The complete product, of states with a static scale, clipped at 127 of its steps."""
        graph = self._graph
        middle = graph.constant(zero_point, np.uint8)
        quantized = graph.op("QuantizeLinear", states, self.constant(scale), middle)
        if zero_point == 0:
            quantized = graph.op("Clip", quantized, "", graph.constant(127, np.uint8))
        return self._multiply(
            quantized,
            weight,
            scales,
            zero_point=zero_point,
            state_scale=scale,
            bias=bias,
            weight_zero_point=weight_zero_point,
        )

    def _multiply(
        self,
        states: str,
        weight: str,
        scales: Float32 | str,
        *,
        zero_point: int = _MIDDLE,
        state_scale: npt.ArrayLike = 1.0,
        bias: Float32 | str | None = None,
        weight_zero_point: str = "",
    ) -> str:
        """state_scale * (states - zero_point) times the scaled weight, plus `bias`.

        Scales and bias are arrays, or values of the graph by name.
        """
        return self._graph.op(
            "MatMulIntegerToFloat",
            states,
            weight,
            self.constant(state_scale),
            self._value(scales),
            self._graph.constant(zero_point, np.uint8),
            *((weight_zero_point,) if weight_zero_point or bias is not None else ()),
            *(() if bias is None else (self._value(bias),)),
            domain=MICROSOFT,
        )

    def _value(self, given: Float32 | str) -> str:
        return given if isinstance(given, str) else self.constant(given)

    def _quantize(self, states: str, width: int, non_negative: bool = False) -> tuple[str, str]:
        """uint8 values and float32 scales [..., 1] of rows of `width` states, computed once.

        A signed row maps its largest magnitude to 127 around a zero point of 128. A non-negative
        row has all 255 steps above zero, and values below zero saturate there, which gives ReLU for
        free. A row of zeros divides zero by zero and gets arbitrary values; its scale of zero makes
        the result zero.
        """
        key = (states, non_negative)
        if key not in self._quantized:
            graph = self._graph
            axis = graph.ints(-1)
            sizes = states if non_negative else graph.op("Abs", states)
            largest = graph.op("ReduceMax", sizes, axis, keepdims=1)
            if non_negative:
                largest = graph.op("Max", largest, self.constant(0.0))
            levels = 255.0 if non_negative else 127.0
            scale = graph.op("Mul", largest, self.constant(1.0 / levels))
            zero_point = self._zero if non_negative else self._middle
            # A block as long as a row: one scale for each row.
            values = graph.op(
                "QuantizeLinear", states, scale, zero_point, axis=-1, block_size=width
            )
            self._quantized[key] = values, scale
        return self._quantized[key]


def quantize_rows(matrix: Float32, steps: FixedSteps | None = None) -> tuple[Int8, Float32]:
    """8-bit integers [N, K] and scales [N] whose product is `matrix`, up to rounding.

    -128 is not used, so that ranges are symmetric and products of two values fit into 15 bits.

    Args:
        steps: the scales, if they are fixed.
    """
    if steps is not None:
        scales = np.repeat(np.array(steps.weights, np.float32), len(matrix) // len(steps.weights))
    else:
        scales = (np.abs(matrix).max(axis=1) / np.float32(127)).astype(np.float32)
        scales[scales == 0] = 1.0
    values = np.clip(np.rint(matrix / scales[:, None]), -127, 127).astype(np.int8)
    return values, scales


def static_scale_of(norm: Norm) -> np.float32:
    """The static scale of the states that `norm` returns; 127 steps cover their range.

    No state is more than sqrt(D - 1) standard deviations from the mean of all D.
    """
    deviations = min(_REACH, math.sqrt(norm.gain.size - 1))
    return np.float32((deviations * np.abs(norm.gain) + np.abs(norm.bias)).max() / 127)


def _uint8(value: int) -> onnx.TensorProto:
    return onnx.helper.make_tensor("value", onnx.TensorProto.UINT8, [1], [value])
