"""The memory of training is bounded: few prepared products, and free memory is returned."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from model.training.memory import limit_kernel_caches


def test_caches_are_limited_unless_the_environment_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LRU_CACHE_CAPACITY", "7")
    monkeypatch.setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "")  # set back afterwards
    monkeypatch.delenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY")
    limit_kernel_caches()
    assert os.environ["LRU_CACHE_CAPACITY"] == "7"
    assert os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] == "64"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_freed_memory_is_kept_and_released() -> None:
    """In a process of its own, whose allocator no other test shares."""
    code = """
import ctypes
from model.training.memory import release_free_memory, reuse_freed_memory
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
reuse_freed_memory()
before = resident()
c = ctypes.CDLL(None)
c.malloc.restype, c.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
block = c.malloc(ctypes.c_size_t(2**26))
ctypes.memset(block, 1, 2**26)
c.free(block)
kept = resident() - before
release_free_memory()
print(kept, resident() - before)
"""
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout
    kept, after = map(int, output.split())
    assert kept > 2**25 > after
