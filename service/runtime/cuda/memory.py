"""How much memory a GPU has, and how many rows that is.

Asked of the CUDA runtime library that ONNX Runtime has loaded: nothing else in the server knows.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from model.bundle import Bundle
from service.errors import StartupError
from service.runtime.batch_sizes import MAX_ROWS, largest_batch_size
from service.runtime.cuda.encoder import ENCODE_TOKEN_BUDGET
from service.runtime.cuda.runtime_library import load_runtime

MARGIN = 0.1
"""Share of the free memory that is left alone: for longer sources, and for what CUDA takes."""


@dataclass(frozen=True)
class DeviceMemory:
    """Of one GPU, in bytes."""

    free: int
    total: int


def read_memory(index: int, find: Callable[[], Any | None] = load_runtime) -> DeviceMemory | None:
    """The memory of GPU number `index`; None where the CUDA runtime can't be found or asked.

    Args:
        index: among those that this process sees.
        find: gives CUDA's runtime library.
    """
    runtime = find()
    if runtime is None:
        return None
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    failed = runtime.cudaSetDevice(ctypes.c_int(index)) or runtime.cudaMemGetInfo(
        ctypes.byref(free), ctypes.byref(total)
    )
    return None if failed else DeviceMemory(free.value, total.value)


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
    rows = largest_batch_size(min(MAX_ROWS, room // bytes_per_row))
    if not rows:
        model = f" beside the model's {beside:,}" if beside else ""
        raise StartupError(
            f"{memory.free:,} of the GPU's {memory.total:,} bytes are free, and a single row needs "
            f"{bytes_per_row:,}{model}: end what else uses the GPU, choose another one "
            f"(--device cuda:1), or export a model with fewer positions"
        )
    return rows


def step_bytes_per_row(bundle: Bundle) -> int:
    """About what a row takes while it steps: the logits in three forms, and everything else."""
    config = bundle.config
    return 16 * config.vocab_size + 64 * (config.d_model + config.ffn_dim)


def bytes_beside_rows(bundle: Bundle) -> int:
    """About what is taken after the encoder is loaded, however many rows there are.

    The decoder's weights twice, since scoring has its own, and an encode of the most sources that
    join at once: what it computes, and what of it is under way to the rows.
    """
    config = bundle.config
    weights = sum(file.stat().st_size for file in bundle.path.iterdir() if file.is_file())
    states = (16 * config.num_decoder_layers + 8) * config.d_model + 2 * config.ffn_dim
    attention = 4 * config.num_heads * bundle.max_source_positions
    return 2 * weights + 2 * ENCODE_TOKEN_BUDGET * (states + attention)
