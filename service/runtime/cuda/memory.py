"""A GPU's free memory, as the CUDA runtime library reports it, and how many rows fit in it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from model.bundle import Bundle
from service.errors import StartupError
from service.runtime.batch_sizes import MAX_ROWS, largest_batch_size
from service.runtime.cuda.encoder import ENCODE_TOKEN_BUDGET
from service.runtime.cuda.stream import load_runtime

MARGIN = 0.1
"""Share of the free memory that is left free: for longer sources, and for CUDA itself."""


@dataclass(frozen=True)
class DeviceMemory:
    """Memory of one GPU, in bytes."""

    free: int
    total: int


def read_memory(index: int, find: Callable[[], Any | None] = load_runtime) -> DeviceMemory | None:
    """The memory of GPU number `index`; None where the CUDA runtime is missing or fails.

    Args:
        index: among those that this process sees.
        find: loads CUDA's runtime library.
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
    """How many rows fit in the free memory.

    Args:
        memory: of the GPU; None if it isn't known.
        bytes_per_row: needed for each row.
        beside: needed for everything else.

    Raises:
        StartupError: not one fits, or the free memory isn't known; says what to do.
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
    """An estimate of a row's memory in a step: logits in three forms, and activations."""
    config = bundle.config
    return 16 * config.vocab_size + 64 * (config.d_model + config.ffn_dim)


def bytes_beside_rows(bundle: Bundle) -> int:
    """An estimate of the memory for everything but rows, after the encoder is loaded.

    The decoder's weights twice, since scoring has its own, and the activations and outputs of the
    largest encode.
    """
    config = bundle.config
    weights = bundle.num_bytes
    states = (16 * config.num_decoder_layers + 8) * config.d_model + 2 * config.ffn_dim
    attention = 4 * config.num_heads * bundle.max_source_positions
    return 2 * weights + 2 * ENCODE_TOKEN_BUDGET * (states + attention)
