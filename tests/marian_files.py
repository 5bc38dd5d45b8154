"""Files of students as Marian and Mozilla's pipeline write them, without any code of the project.

By browsermt/marian-dev: `packAndSave` (`expression_graph_packable.h`) chooses what becomes 8-bit
integers and how, `saveItems` (`binary.cpp`) lays it out. `extract_stats.py` of mozilla/translations
adds alphas.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def converted(
    weights: Mapping[str, Array], alphas: Mapping[str, float], options: Mapping[str, Any]
) -> bytes:
    """A file of `marian-conv --gemm-type intgemm8`.

    Args:
        weights: float32 arrays by Marian's names.
        alphas: factors of inputs, by the name of the matrix they are multiplied with.
        options: options of the network.
    """
    arrays = {**weights, **{f"{n}_QuantMultA": np.array([[a]]) for n, a in alphas.items()}}
    if "Wemb_QuantMultA" in arrays:
        arrays["none_QuantMultA"] = arrays["Wemb_QuantMultA"]
    items = []
    for name in sorted(arrays):
        array = arrays[name].astype(np.float32)
        is_table = "Wemb" in name
        if is_table or name.find("_W") in (len(name) - 3, len(name) - 2):
            multiplier = np.float32(127) / np.abs(array).max()
            stored = np.rint((array if is_table else array.T) * multiplier)
            data = stored.clip(-127, 127).astype("i1").tobytes() + multiplier.tobytes()
            items.append((name, 0x4101, array.shape, aligned(data)))
        else:
            items.append((name, 0x0404, array.shape, aligned(array.tobytes())))
    text = "\n".join(f"{name}:{_yaml(options[name])}" for name in sorted(options)).encode() + b"\0"
    items.append(("special:model.yml", 0x0101, (len(text),), text))
    heads = b"".join(struct.pack("<4Q", len(n) + 1, k, len(s), len(d)) for n, k, s, d in items)
    names = b"".join(name.encode() + b"\0" for name, *_ in items)
    shapes = b"".join(np.array(shape, "<i4").tobytes() for _, _, shape, _ in items)
    start = struct.pack("<QQ", 1, len(items)) + heads + names + shapes
    offset = ((len(start) + 8) // 256 + 1) * 256 - len(start) - 8
    return start + struct.pack("<Q", offset) + bytes(offset) + b"".join(item[-1] for item in items)


def aligned(data: bytes) -> bytes:
    """Data as Marian's allocator leaves it: a multiple of 256 bytes."""
    return data + bytes(-len(data) % 256)


def _yaml(value: object) -> str:
    """A value after its key, as yaml-cpp writes it."""
    if isinstance(value, list) and value:
        return "".join(f"\n  - {each}" for each in value)
    if isinstance(value, bool):
        return f" {value}".lower()
    return f" {value}" if value != "" else ' ""'
