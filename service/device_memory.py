"""How much memory a GPU has, and how many rows that is.

Asked of the CUDA runtime library that ONNX Runtime has loaded: nothing else in the server knows.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from service.errors import StartupError
from service.ladder import MAX_ROWS, rungs_that_fit

LIBRARIES = ("libcudart.so.13", "libcudart.so.12", "libcudart.so")

MARGIN = 0.1
"""Share of the free memory that is left alone: for longer sources, and for what CUDA takes."""


@dataclass(frozen=True)
class DeviceMemory:
    """Of one GPU, in bytes."""

    free: int
    total: int


def read_memory(index: int, load: Callable[[str], Any] = ctypes.CDLL) -> DeviceMemory | None:
    """The memory of GPU number `index`; None where the CUDA runtime can't be found or asked.

    Args:
        index: among those that this process sees.
        load: opens a library by its name.
    """
    for name in LIBRARIES:
        try:
            library = load(name)
        except OSError:
            continue
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        failed = library.cudaSetDevice(ctypes.c_int(index)) or library.cudaMemGetInfo(
            ctypes.byref(free), ctypes.byref(total)
        )
        return None if failed else DeviceMemory(free.value, total.value)
    return None


def rows_for(memory: DeviceMemory | None, bytes_per_row: int, beside: int = 0) -> int:
    """How many rows to make room for in what is free.

    Args:
        memory: of the GPU; None if it isn't known.
        bytes_per_row: what a row needs.
        beside: what will be taken by something else.

    Raises:
        StartupError: not one fits, or it isn't known how much is free; says what to do.
    """
    if memory is None:
        raise StartupError(
            "the GPU's free memory could not be read (libcudart is missing): say how many rows to "
            "make room for with --max-rows"
        )
    room = int(memory.free * (1 - MARGIN)) - beside
    rows = rungs_that_fit(min(MAX_ROWS, room // bytes_per_row))
    if not rows:
        model = f" beside the model's {beside:,}" if beside else ""
        raise StartupError(
            f"{memory.free:,} of the GPU's {memory.total:,} bytes are free, and a single row needs "
            f"{bytes_per_row:,}{model}: end what else uses the GPU, choose another one "
            f"(--device cuda:1), or export a model with fewer positions"
        )
    return rows
