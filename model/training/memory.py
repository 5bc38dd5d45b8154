"""Keeps a long training run on a CPU from growing.

Every batch has a shape of its own. In bfloat16, PyTorch and oneDNN each keep up to 1,024 prepared
matrix products by shape, some 150 KB each and lying between the tensors, so that the heap cannot
shrink: a run grew by 10 MB an update, to 9 GB in two hours. Few are needed again: with 64, memory
stays level and an update takes no longer. glibc gives freed memory back only when asked.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

# Parameters of mallopt(3).
_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4

_CAPACITIES = {"LRU_CACHE_CAPACITY": "64", "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64"}


def limit_kernel_caches() -> None:
    """Let PyTorch and oneDNN cache few products, unless the environment says how many.

    Has to be called before torch is imported.
    """
    for variable, capacity in _CAPACITIES.items():
        os.environ.setdefault(variable, capacity)


def reuse_freed_memory() -> None:
    """Let the C library (glibc) keep freed memory for the next tensors, until it is released.

    By default each large tensor gets fresh pages, which the kernel has to clear: an update of the
    `en-de` recipe took 2.2 s instead of 1.9 s (two cores of an AMD EPYC).
    """
    if (mallopt := _of_c_library("mallopt")) is not None:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def release_free_memory() -> None:
    """Give freed memory back to the system, where the C library can (glibc)."""
    if (trim := _of_c_library("malloc_trim")) is not None:
        trim(0)


def _of_c_library(name: str) -> Callable[..., int] | None:
    try:
        function: Callable[..., int] = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):
        return None
    return function
