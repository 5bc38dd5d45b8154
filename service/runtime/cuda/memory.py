"""A GPU's free memory, from the CUDA runtime library, and the number of rows that fit in it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

from model.bundle.bundle import Bundle
from model.bundle.config import ModelConfig
from model.bundle.cuda import CudaError, CudaRuntime, load_cuda
from service.errors import StartupError
from service.runtime.batch_sizes import MAX_ROWS, largest_batch_size
from service.runtime.cuda.caches import MAX_COPIED
from service.runtime.cuda.encoder import MAX_ENCODE_TOKENS

MARGIN = 0.1
"""Fraction of the free memory that is kept free for longer sources and for CUDA itself."""


@dataclass(frozen=True)
class DeviceMemory:
    """Memory of one GPU, in bytes."""

    free: int
    total: int


def read_memory(index: int, load: Callable[[], CudaRuntime] = load_cuda) -> DeviceMemory | None:
    """The memory of a GPU; None if CUDA is missing or fails.

    Args:
        index: number of the GPU among those that this process sees.
        load: loads CUDA's runtime library.
    """
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    try:
        runtime = load()
        runtime.use(index)
        runtime.call("cudaMemGetInfo", ctypes.byref(free), ctypes.byref(total))
    except CudaError:
        return None
    return DeviceMemory(free.value, total.value)


def rows_for(
    memory: DeviceMemory | None, bytes_per_row: int, beside: int = 0, num_models: int = 1
) -> int:
    """The number of a model's rows that fit in its share of the memory.

    All models have equal shares, and one more share is kept for a new version that is opened in a
    reload.

    Args:
        memory: memory of the GPU; None if unknown.
        bytes_per_row: memory of each row, in bytes.
        beside: memory of everything else, in bytes.
        num_models: number of models that share the GPU.

    Raises:
        StartupError: not one row fits, or the free memory is unknown; says what to do.
    """
    if memory is None:
        raise StartupError(
            "the GPU's free memory could not be read (libcudart is missing): say how many rows to "
            "make room for with --max-rows"
        )
    share = min(memory.free, memory.total // (num_models + 1))
    room = int(share * (1 - MARGIN)) - beside
    rows = largest_batch_size(min(MAX_ROWS, room // bytes_per_row))
    if not rows:
        model = f" beside the model's {beside:,}" if beside else ""
        raise StartupError(
            f"{memory.free:,} of the GPU's {memory.total:,} bytes are free, of which a model may "
            f"take {int(share * (1 - MARGIN)):,}, and a single row needs {bytes_per_row:,}{model}: "
            f"end what else uses the GPU, serve fewer models, take another GPU (--device cuda:1), "
            f"say how many rows to make room for (--max-rows), or export a model with fewer "
            f"positions"
        )
    return rows


def step_bytes_per_row(bundle: Bundle) -> int:
    """Estimate a row's memory in a step: logits in three forms, and activations."""
    config = bundle.config
    return 16 * config.vocab_size + 64 * (config.d_model + config.ffn_dim)


def bytes_beside_rows(bundle: Bundle) -> int:
    """Estimate the memory of everything but rows, after the encoder is loaded.

    This is the memory of the decoder's weights, of copies of them for scores and (with the
    encoder's) for attention weights, and of ONNX Runtime's arenas for encodes and copies of rows.
    Everything is counted twice, since an arena that has served batches of many shapes is never
    full. Models of all kinds took 40 to 95 % of this under traffic (`tests/stand_in/memory.py`).
    """
    config = bundle.config
    weights = bundle.num_bytes
    layers, heads = config.num_decoder_layers, config.num_heads
    states = (16 * layers + 8) * config.d_model + 2 * config.ffn_dim + 96 * layers * heads
    scores = 48 * heads * _scores_per_position(config)
    tokens = max(MAX_ENCODE_TOKENS, bundle.max_source_positions)
    return 3 * weights + 2 * tokens * (states + scores) + 2 * MAX_COPIED


def _scores_per_position(config: ModelConfig) -> int:
    """Number of attention scores that the encoder holds for each position and head."""
    near = 3 * config.attention_window
    return {
        "full": 0,  # the kernel holds none
        "local": near,
        "strided": near,
        "lsh": 3 * near * config.attention_rounds,  # including the sorted positions
        "linformer": config.attention_rank,
    }[config.encoder_attention]
