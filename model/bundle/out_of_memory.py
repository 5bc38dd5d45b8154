"""Recognises errors of ONNX Runtime and PyTorch for a lack of memory, which have no class."""

from __future__ import annotations

# Of ONNX Runtime's arenas, CUDA (twice), cuBLAS, C++ and PyTorch on a CPU.
_WORDS = (
    "Failed to allocate memory",
    ": out of memory",
    "cudaErrorMemoryAllocation",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "bad_alloc",
    "bad allocation",
    "DefaultCPUAllocator: can't allocate memory",
)


def is_out_of_memory(exc: BaseException) -> bool:
    """Whether something failed because of a lack of memory."""
    return isinstance(exc, MemoryError) or any(words in str(exc) for words in _WORDS)
