"""How ONNX Runtime says that there is too little memory. It has no class of error for it."""

from __future__ import annotations

# Of ONNX Runtime's arenas, CUDA (twice), cuBLAS and C++.
_WORDS = (
    "Failed to allocate memory",
    ": out of memory",
    "cudaErrorMemoryAllocation",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "bad_alloc",
    "bad allocation",
)


def is_out_of_memory(exc: BaseException) -> bool:
    """Whether a run, or the opening of a session, failed for want of memory."""
    return isinstance(exc, MemoryError) or any(words in str(exc) for words in _WORDS)
