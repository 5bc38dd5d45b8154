"""How many rows a GPU has room for, asked of a CUDA runtime that is not there."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from model.bundle.cuda import CudaError, CudaRuntime
from service.errors import StartupError
from service.runtime.cuda.memory import MARGIN, DeviceMemory, read_memory, rows_for


class FakeRuntime:
    """The called functions of libcudart."""

    def __init__(self, free: int, total: int, error: int = 0) -> None:
        self.free, self.total, self.error = free, total, error
        self.device: int | None = None

        self.cudaGetErrorName = lambda code: b"cudaErrorInvalidDevice"
        self.cudaGetErrorString = lambda code: b"invalid device ordinal"

    def cudaGetLastError(self) -> int:
        return 0

    def cudaThreadExchangeStreamCaptureMode(self, mode: Any) -> int:
        return 0

    def cudaSetDevice(self, index: ctypes.c_int) -> int:
        self.device = index.value
        return 0

    def cudaMemGetInfo(self, free: Any, total: Any) -> int:
        free._obj.value, total._obj.value = self.free, self.total
        return self.error


def test_the_device_that_was_asked_for_is_read() -> None:
    runtime = FakeRuntime(3 << 30, 8 << 30)
    assert read_memory(2, lambda: CudaRuntime(runtime)) == DeviceMemory(3 << 30, 8 << 30)
    assert runtime.device == 2


def test_nothing_is_known_without_the_library_or_of_a_device_that_is_not_there() -> None:
    def missing() -> CudaRuntime:
        raise CudaError("libcudart.so.13 can't be loaded")

    assert read_memory(0, missing) is None
    assert read_memory(9, lambda: CudaRuntime(FakeRuntime(0, 0, error=101))) is None


def test_rows_leave_a_margin_and_end_at_a_batch_size() -> None:
    memory = DeviceMemory(free=1000, total=2000)
    assert rows_for(memory, 9) == 96  # of 100 that 900 bytes hold
    assert rows_for(memory, 1) == 512  # never more
    assert rows_for(memory, int(1000 * (1 - MARGIN))) == 1
    assert rows_for(memory, 9, beside=300) == 64  # of 66 that 600 bytes hold


def test_a_share_is_left_for_each_other_model_and_for_another_version() -> None:
    memory = DeviceMemory(free=2000, total=2000)
    assert rows_for(memory, 9) == 96  # of 100 that 900 bytes hold, half of it
    assert rows_for(memory, 9, num_models=3) == 48  # of 50: a quarter
    assert rows_for(DeviceMemory(400, 2000), 9, num_models=2) == 32  # of 40 in what is free


def test_what_does_not_fit_says_what_to_do() -> None:
    with pytest.raises(StartupError, match=r"1,000 of the GPU's 2,000 bytes.*take 900.*needs 950"):
        rows_for(DeviceMemory(1000, 2000), 950)
    with pytest.raises(StartupError, match=r"needs 50 beside the model's 870"):
        rows_for(DeviceMemory(1000, 2000), 50, beside=870)
    with pytest.raises(StartupError, match=r"libcudart is missing.*--max-rows"):
        rows_for(None, 100)
