"""Writes Marian's binary format; see `binary.py`."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import yaml

from export.marian.binary import FLOAT32, INTGEMM8, TEXT, VERSION
from export.marian.configuration import OPTIONS_ARRAY

Array = npt.NDArray[Any]

_BLOCK = 256  # bytes to which data is padded


class WrittenItem(NamedTuple):
    """A named array to write.

    Attributes:
        kind: Marian's number of its type.
        shape: as the network sees it; a matrix is [in, out].
        data: its bytes, without padding.
    """

    kind: int
    shape: tuple[int, ...]
    data: bytes


def float_item(array: Array) -> WrittenItem:
    """An item of float32 numbers."""
    return WrittenItem(FLOAT32, array.shape, array.astype("<f4").tobytes())


def int8_item(array: Array, *, is_table: bool = False) -> WrittenItem:
    """8-bit integers with one multiplier, 127 over the largest absolute number.

    Args:
        array: a matrix, [in, out].
        is_table: whether it is a table of embeddings, [V, d], which is not stored transposed.
    """
    stored = array if is_table else array.T
    return WrittenItem(INTGEMM8, array.shape, quantized(stored))


def quantized(matrix: Array, dtype: str = "<i1", levels: int = 127) -> bytes:
    """The integers of a matrix in the order of its memory, and their multiplier."""
    multiplier = np.float32(levels / max(float(np.abs(matrix).max()), 1e-30))
    values = np.clip(np.rint(matrix * multiplier), -levels, levels).astype(dtype)
    data: bytes = values.tobytes() + multiplier.astype("<f4").tobytes()
    return data


def binary(items: Mapping[str, WrittenItem], options: Mapping[str, Any] | None = None) -> bytes:
    """A file in Marian's binary format.

    Args:
        options: options of the network, for `special:model.yml`; None for none.
    """
    every = dict(items)
    if options is not None:
        text = yaml.safe_dump(dict(options)).encode() + b"\0"
        every[OPTIONS_ARRAY] = WrittenItem(TEXT, (len(text),), text)
    padded = {name: item.data + bytes(-len(item.data) % _BLOCK) for name, item in every.items()}
    head = struct.pack("<QQ", VERSION, len(every))
    for name, item in every.items():
        size = len(padded[name])
        head += struct.pack("<4Q", len(name.encode()) + 1, item.kind, len(item.shape), size)
    head += b"".join(name.encode() + b"\0" for name in every)
    head += b"".join(struct.pack(f"<{len(i.shape)}i", *i.shape) for i in every.values())
    offset = -(len(head) + 8) % _BLOCK
    return head + struct.pack("<Q", offset) + bytes(offset) + b"".join(padded.values())
