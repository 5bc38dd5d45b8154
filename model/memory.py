"""Keeps a long training run on a CPU from growing.

Every batch has a shape of its own. In bfloat16, PyTorch and oneDNN each keep up to 1,024 prepared
matrix products by shape, some 150 KB each and lying between the tensors, so that the heap cannot
shrink: a run grew by 10 MB an update, to 9 GB in two hours. Few are needed again: with 64, memory
stays level and an update takes no longer. glibc gives freed memory back only when asked.
"""

from __future__ import annotations

import ctypes
import os

_CAPACITIES = {"LRU_CACHE_CAPACITY": "64", "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64"}


def limit_kernel_caches() -> None:
    """Let PyTorch and oneDNN cache few products, unless the environment says how many.

    Has to be called before torch is imported.
    """
    for variable, capacity in _CAPACITIES.items():
        os.environ.setdefault(variable, capacity)


def release_free_memory() -> None:
    """Give freed memory back to the system, where the C library can (glibc)."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return
    trim(0)
