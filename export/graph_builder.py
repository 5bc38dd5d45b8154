"""A thin layer over `onnx.helper`: code that builds a graph reads like the formula."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from export.shared_weights import SharedWeights

MICROSOFT = "com.microsoft"
# The newest opset whose operators below all have CPU and CUDA kernels in ONNX Runtime 1.31.
ONNX_OPSET = 21
IR_VERSION = 10

_LARGE_BYTES = 2**20

_ELEMENT_TYPES = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "int8": TensorProto.INT8,
    "uint8": TensorProto.UINT8,
    "bool": TensorProto.BOOL,
}

Array = npt.NDArray[Any]


class GraphBuilder:
    """Collects nodes, constants, inputs and outputs of one graph, in execution order.

    A value is identified by its name; every method that adds a value returns the name. Names are
    numbered in order of creation, so that equal calls give equal bytes.

    Args:
        shared: file for the large constants; None keeps them in the graph.
    """

    def __init__(self, name: str, shared: SharedWeights | None = None) -> None:
        self._name = name
        self._shared = shared
        self._scope: list[str] = []
        self._num_values = 0
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, Array] = {}
        self._constant_names: dict[bytes, str] = {}
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._described: list[onnx.ValueInfoProto] = []

    @contextlib.contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Prefixes the names of values added inside, for profiles and error messages."""
        self._scope.append(name)
        try:
            yield
        finally:
            self._scope.pop()

    def input(self, name: str, dtype: str, shape: Sequence[int | str]) -> str:
        """Declares a graph input; a string in `shape` names a free dimension."""
        self._inputs.append(helper.make_tensor_value_info(name, _ELEMENT_TYPES[dtype], shape))
        return name

    def output(self, name: str, dtype: str, shape: Sequence[int | str]) -> str:
        """Declares that the value `name` is a graph output."""
        self._outputs.append(helper.make_tensor_value_info(name, _ELEMENT_TYPES[dtype], shape))
        return name

    def describe(self, value: str, dtype: str, shape: Sequence[int | str]) -> str:
        """Names the dimensions of a value where shape inference would lose them.

        The runtime lets two values share a buffer only if it can see that their shapes are equal.
        """
        self._described.append(helper.make_tensor_value_info(value, _ELEMENT_TYPES[dtype], shape))
        return value

    def constant(self, value: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> str:
        """Adds a constant; equal constants are stored once."""
        array = np.asarray(value, dtype=dtype)
        digest = hashlib.sha256(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data.cast("B") if array.size else b"")
        key = digest.digest()
        if key not in self._constant_names:
            name = f"constant_{len(self._constants)}"
            self._constants[name] = array  # a view of a weight, mostly: a copy of all is too much
            self._constant_names[key] = name
        return self._constant_names[key]

    def op(
        self,
        op_type: str,
        *inputs: str,
        output: str | None = None,
        domain: str = "",
        **attributes: Any,
    ) -> str:
        """Adds a node with one output. An empty string omits an optional input."""
        return self.multi_op(op_type, *inputs, outputs=[output], domain=domain, **attributes)[0]

    def multi_op(
        self,
        op_type: str,
        *inputs: str,
        outputs: Sequence[str | None],
        domain: str = "",
        **attributes: Any,
    ) -> list[str]:
        """Adds a node with several outputs. None gets a name, an empty string omits one."""
        path = "/".join([*self._scope, op_type])
        names = [self._fresh(path) if name is None else name for name in outputs]
        self._nodes.append(
            helper.make_node(op_type, inputs, names, name=names[0], domain=domain, **attributes)
        )
        return names

    def ints(self, *numbers: int) -> str:
        """Adds a constant int64 vector, as shapes and axes are given."""
        return self.constant(numbers, np.int64)

    def reshape(self, value: str, *shape: int) -> str:
        """`value` in a shape, in which 0 copies a dimension and -1 is what remains."""
        return self.op("Reshape", value, self.ints(*shape))

    def split(self, value: str, count: int, axis: int) -> list[str]:
        """`value` in `count` equal parts along an axis."""
        return self.multi_op("Split", value, outputs=[None] * count, axis=axis, num_outputs=count)

    def cast(self, value: str, dtype: str) -> str:
        """`value` with another element type."""
        return self.op("Cast", value, to=_ELEMENT_TYPES[dtype])

    def build(self) -> onnx.ModelProto:
        """The checked model. It takes the constants with it: nothing can be added any more."""
        # The checker copies a model twice. Large constants are inputs to it, and join afterwards.
        large = {name for name, array in self._constants.items() if array.nbytes >= _LARGE_BYTES}
        stand_ins = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in self._constants.items()
            if name in large
        ]
        graph = helper.make_graph(
            self._nodes,
            self._name,
            [*self._inputs, *stand_ins],
            self._outputs,
            [
                numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
                for name, array in self._constants.items()
                if name not in large
            ],
            value_info=self._described,
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", ONNX_OPSET), helper.make_opsetid(MICROSOFT, 1)],
            ir_version=IR_VERSION,
            producer_name="dragoman",
        )
        onnx.checker.check_model(model)
        del model.graph.input[len(self._inputs) :]
        del model.graph.initializer[:]
        for name in list(self._constants):
            model.graph.initializer.append(self._initializer(name, self._constants.pop(name)))
        return model

    def body(self) -> onnx.GraphProto:
        """The graph as the body of another one's Scan. It has no constants."""
        assert not self._constants, "constants belong into the outer graph"
        return helper.make_graph(self._nodes, self._name, self._inputs, self._outputs)

    def _initializer(self, name: str, array: Array) -> onnx.TensorProto:
        # `ascontiguousarray` makes vectors of numbers.
        array = np.ascontiguousarray(array).reshape(array.shape)
        if self._shared is not None and self._shared.takes(array):
            return self._shared.reference(name, array)
        return numpy_helper.from_array(array, name)

    def _fresh(self, path: str) -> str:
        self._num_values += 1
        return f"{path}_{self._num_values}"
