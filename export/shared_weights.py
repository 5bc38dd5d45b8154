"""One file for the weights of all graphs of a bundle, each array stored once.

A tied embedding table is in every graph, and the scoring graph has the decoder's weights again. As
external data (ONNX IR, "External tensor data") the weights are in one file beside the graphs. The
runtime maps it into memory: sessions share its pages, and a graph that is never opened costs
nothing. And no graph can exceed protobuf's limit of 2 GiB.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import onnx

# Smaller constants stay in their graph: shape inference and constant folding read some of them.
_MIN_BYTES = 1024
# A processor's cache line, and its widest vectors.
_ALIGNMENT = 64


class SharedWeights:
    """Writes the large constants of graphs as they come: a context manager.

    Args:
        file: to write; the graphs must be in the same directory.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._writer = file.open("wb")
        self._offsets: dict[bytes, int] = {}

    def __enter__(self) -> SharedWeights:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def take_from(self, model: onnx.ModelProto) -> None:
        """Replace the model's large constants with references to the file."""
        for tensor in model.graph.initializer:
            if len(tensor.raw_data) >= _MIN_BYTES:
                self._refer(tensor)

    def _refer(self, tensor: onnx.TensorProto) -> None:
        raw = tensor.raw_data
        entries = {"location": self._file.name, "offset": self._offset(raw), "length": len(raw)}
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=str(value))

    def _offset(self, raw: bytes) -> int:
        key = hashlib.sha256(raw).digest()
        if key not in self._offsets:
            self._writer.write(bytes(-self._writer.tell() % _ALIGNMENT))
            self._offsets[key] = self._writer.tell()
            self._writer.write(raw)
        return self._offsets[key]
