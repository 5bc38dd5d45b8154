"""One file for the weights of all graphs of a bundle, each array stored once.

A tied embedding table is in every graph, and the scoring graph has the decoder's weights again. As
external data (ONNX IR, "External tensor data") the weights are in one file beside the graphs. The
runtime maps it into memory: sessions share its pages, and a graph that is never opened costs
nothing. And no graph can exceed protobuf's limit of 2 GiB.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy.typing as npt
import onnx

Array = npt.NDArray[Any]

# Smaller constants stay in their graph: shape inference and constant folding read some of them.
_MIN_BYTES = 1024
# A processor's cache line, and its widest vectors.
_ALIGNMENT = 64


class SharedWeights:
    """Writes the large constants of graphs as these are built: a context manager.

    Args:
        file: file to write; the graphs must be in the same directory.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._writer = file.open("wb")
        self._offsets: dict[bytes, int] = {}

    def __enter__(self) -> SharedWeights:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def takes(self, array: Array) -> bool:
        """Whether a constant is large enough to be stored here."""
        return array.nbytes >= _MIN_BYTES

    def reference(self, name: str, array: Array) -> onnx.TensorProto:
        """A tensor that refers to the array in the file; it is contiguous, in C's order.

        The array never goes through protobuf, which copies, and takes no tensor of 2 GiB.
        """
        tensor = onnx.TensorProto(
            name=name,
            data_type=onnx.helper.np_dtype_to_tensor_dtype(array.dtype),
            dims=array.shape,
            data_location=onnx.TensorProto.EXTERNAL,
        )
        entries = {"location": self._file.name, "offset": self._offset(array.data.cast("B"))}
        for key, value in {**entries, "length": array.nbytes}.items():
            tensor.external_data.add(key=key, value=str(value))
        return tensor

    def _offset(self, raw: memoryview) -> int:
        key = hashlib.sha256(raw).digest()
        if key not in self._offsets:
            self._writer.write(bytes(-self._writer.tell() % _ALIGNMENT))
            self._offsets[key] = self._writer.tell()
            self._writer.write(raw)
        return self._offsets[key]
