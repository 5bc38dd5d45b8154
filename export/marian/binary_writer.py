"""Writes Marian's binary format; see `binary.py`."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import yaml

from export.marian.binary import FLOAT32, INTGEMM8, TEXT, VERSION, is_table
from export.marian.configuration import OPTIONS_ARRAY

Array = npt.NDArray[Any]

_BLOCK = 256  # bytes to which data is padded
_MATRIX = re.compile(r"_W.?$")  # encoder_l1_self_Wq, decoder_l1_rnn_W
_LONGEST_LINE = 2**20  # characters: none is broken


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


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """YAML in the form of Marian's library, yaml-cpp."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Indent the entries of lists, too."""
        super().increase_indent(flow, False)

    def represent_text(self, text: str) -> yaml.ScalarNode:
        """Represent a text; without quotes if that is possible."""
        return self.represent_scalar("tag:yaml.org,2002:str", text, None if text else '"')


_Dumper.add_representer(str, _Dumper.represent_text)


def float_item(array: Array) -> WrittenItem:
    """An item of float32 numbers."""
    return WrittenItem(FLOAT32, array.shape, array.astype("<f4").tobytes())


def int8_item(name: str, array: Array) -> WrittenItem:
    """8-bit integers with one multiplier, 127 over the largest absolute number.

    Args:
        name: the item's name, which says whether it is stored transposed.
        array: a matrix, [in, out]; a table of embeddings is [V, d].
    """
    stored = array if is_table(name) else array.T
    return WrittenItem(INTGEMM8, array.shape, quantized(stored))


def float_items(arrays: Mapping[str, Array]) -> dict[str, WrittenItem]:
    """Items of a float32 file."""
    return {name: float_item(array) for name, array in arrays.items()}


def int8_items(arrays: Mapping[str, Array]) -> dict[str, WrittenItem]:
    """Items of an intgemm8 file: `marian-conv` chooses by their names which ones have 8 bits.

    See `ExpressionGraphPackable::packAndSave` of browsermt/marian-dev.
    """
    return {
        name: int8_item(name, array)
        if is_table(name) or _MATRIX.search(name)
        else float_item(array)
        for name, array in arrays.items()
    }


def quantized(matrix: Array, dtype: str = "<i1", levels: int = 127) -> bytes:
    """The integers of a matrix in the order of its memory, and their multiplier."""
    largest = max(float(matrix.max()), -float(matrix.min()), 1e-30)
    multiplier = np.float32(levels / largest)
    values = matrix * multiplier
    np.rint(values, out=values).clip(-levels, levels, out=values)
    data: bytes = values.astype(dtype).tobytes() + multiplier.astype("<f4").tobytes()
    return data


def binary(items: Mapping[str, WrittenItem], options: Mapping[str, Any] | None = None) -> bytes:
    """A file in Marian's binary format, byte for byte as Marian writes it.

    Items are sorted by name, and their data padded; the options come last, without padding.

    Args:
        options: options of the network, for `special:model.yml`; None for none.
    """
    every = {name: items[name] for name in sorted(items)}
    data = [item.data + bytes(-len(item.data) % _BLOCK) for item in every.values()]
    if options is not None:
        text = _yaml(options).encode() + b"\0"
        every[OPTIONS_ARRAY] = WrittenItem(TEXT, (len(text),), text)
        data.append(text)
    head = struct.pack("<QQ", VERSION, len(every))
    for (name, item), content in zip(every.items(), data, strict=True):
        fields = (len(name.encode()) + 1, item.kind, len(item.shape), len(content))
        head += struct.pack("<4Q", *fields)
    head += b"".join(name.encode() + b"\0" for name in every)
    head += b"".join(struct.pack(f"<{len(i.shape)}i", *i.shape) for i in every.values())
    offset = _BLOCK - (len(head) + 8) % _BLOCK  # a whole block if it ends at one
    return head + struct.pack("<Q", offset) + bytes(offset) + b"".join(data)


def _yaml(options: Mapping[str, Any]) -> str:
    text: str = yaml.dump(dict(options), Dumper=_Dumper, width=_LONGEST_LINE)
    return text.rstrip("\n")
