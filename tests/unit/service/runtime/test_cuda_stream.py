"""Calls to CUDA's runtime library, which a fake replaces."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from model.bundle import sessions
from model.bundle.cuda import CudaError, CudaRuntime
from model.bundle.out_of_memory import is_out_of_memory
from model.bundle.sessions import BundleDeviceError, Device
from service.batching.failures import STEPPING, error_of
from service.runtime.cuda.stream import CudaStream, open_stream

FAR = 0x7F00_1234_5678  # an address that does not fit into 32 bits
NAMES = {2: b"cudaErrorMemoryAllocation", 700: b"cudaErrorIllegalAddress"}
WORDS = {2: b"out of memory", 700: b"an illegal memory access was encountered"}


class FakeRuntime:
    """Notes every call, with its arguments as numbers, and makes handles and addresses."""

    def __init__(self, **failing: int) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.failing = failing
        self.capture_status = 0
        self.modes: list[int] = []
        self.pinned = [ctypes.create_string_buffer(64) for _ in range(2)]
        self.cudaGetErrorName = lambda code: NAMES[code]
        self.cudaGetErrorString = lambda code: WORDS[code]

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cuda"):
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            given = [one for one in arguments if hasattr(one, "value")]
            self.calls.append((name, *(one.value or 0 for one in given)))
            if name in self.failing:
                return self.failing[name]
            made = next((one._obj for one in arguments if not hasattr(one, "value")), None)
            if name == "cudaStreamIsCapturing":
                assert made is not None
                made.value = self.capture_status
            elif name == "cudaThreadExchangeStreamCaptureMode":
                assert made is not None
                self.modes.append(made.value)
            elif name == "cudaHostAlloc":
                assert made is not None
                made.value = ctypes.addressof(self.pinned[0])
            elif made is not None:
                made.value = FAR + len(self.calls)
            return 0

        return call

    def named(self, name: str) -> list[tuple[Any, ...]]:
        return [call for call in self.calls if call[0] == name]


def test_a_stream_that_waits_for_no_other() -> None:
    runtime = FakeRuntime()
    stream = CudaStream(CudaRuntime(runtime), Device("cuda", 3))
    assert runtime.calls == [("cudaStreamCreateWithFlags", 1)]
    assert stream.address == FAR + 1
    stream.use()  # by another thread, which captures don't concern
    assert runtime.calls[-2:] == [("cudaSetDevice", 3), ("cudaThreadExchangeStreamCaptureMode",)]
    assert runtime.modes == [1]
    stream.synchronize()  # not the whole GPU, where another stream may be capturing
    assert runtime.calls[-2:] == [
        ("cudaStreamSynchronize", stream.address), ("cudaStreamSynchronize", 0)
    ]  # fmt: skip


def test_copies_take_their_turn_on_it() -> None:
    runtime = FakeRuntime()
    stream = CudaStream(CudaRuntime(runtime), Device("cuda"))
    pinned = stream.allocate_pinned(64)
    assert (pinned.dtype, pinned.nbytes) == (np.dtype(np.uint8), 64)
    assert pinned.ctypes.data == ctypes.addressof(runtime.pinned[0])
    address = stream.allocate(1 << 33)
    assert runtime.calls[-2:] == [
        ("cudaMalloc", 1 << 33), ("cudaMemsetAsync", address, 0, 1 << 33, stream.address)
    ]  # fmt: skip
    assert address > 1 << 32
    stream.copy_in(address, pinned[16:48])
    stream.copy_out(pinned[:8], address + 8)
    start = pinned.ctypes.data
    assert runtime.named("cudaMemcpyAsync") == [
        ("cudaMemcpyAsync", address, start + 16, 32, 1, stream.address),
        ("cudaMemcpyAsync", start, address + 8, 8, 2, stream.address),
    ]
    stream.free_pinned(pinned)
    stream.free(address)
    assert runtime.calls[-2:] == [("cudaFreeHost", start), ("cudaFree", address)]


def test_events_are_of_it_and_end_before_it() -> None:
    runtime = FakeRuntime()
    stream = CudaStream(CudaRuntime(runtime), Device("cuda"))
    address = stream.address
    first, second = stream.new_event(), stream.new_event()
    # No times are taken, and who waits sleeps.
    assert runtime.calls[-1] == ("cudaEventCreateWithFlags", 1 | 2)
    stream.record(second)
    stream.wait(second)
    assert runtime.calls[-2:] == [
        ("cudaEventRecord", second, address), ("cudaEventSynchronize", second)
    ]  # fmt: skip
    kept, freed = stream.allocate(8), stream.allocate(8)
    stream.free(freed)
    runtime.calls.clear()
    stream.close()
    stream.close()
    ends = [("cudaEventDestroy", second), ("cudaEventDestroy", first)]
    assert runtime.calls == [("cudaFree", kept), *ends, ("cudaStreamDestroy", address)]


@pytest.mark.parametrize(("code", "for_memory"), [(2, True), (700, False)])
def test_what_fails_says_what_and_is_told_apart(code: int, for_memory: bool) -> None:
    runtime = FakeRuntime(cudaEventSynchronize=code)
    stream = CudaStream(CudaRuntime(runtime), Device("cuda"))
    event = stream.new_event()
    with pytest.raises(
        CudaError, match=rf"^cudaEventSynchronize: {NAMES[code].decode()}: "
    ) as info:
        stream.wait(event)
    # Or ONNX Runtime would find it, and fail for it.
    assert runtime.calls[-1] == ("cudaGetLastError",)
    assert is_out_of_memory(info.value) is for_memory
    error = error_of(info.value, STEPPING)
    assert ("ran out of memory" in str(error)) is for_memory


def test_a_capture_that_failed_on_the_way_is_ended() -> None:
    runtime = FakeRuntime(cudaStreamEndCapture=700)
    stream = CudaStream(CudaRuntime(runtime), Device("cuda"))
    stream.end_capture()
    assert not runtime.named("cudaStreamEndCapture")  # there is none
    runtime.capture_status = 2
    stream.end_capture()
    assert runtime.named("cudaStreamEndCapture") == [("cudaStreamEndCapture", stream.address)]
    assert not runtime.named("cudaGraphDestroy")  # none was made
    del runtime.failing["cudaStreamEndCapture"]
    stream.end_capture()
    assert runtime.calls[-1][0] == "cudaGraphDestroy"


def test_a_gpu_that_cannot_be_used_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> CudaRuntime:
        raise CudaError("libcudart.so.13 can't be loaded")

    monkeypatch.setattr(sessions, "load_cuda", missing)
    with pytest.raises(
        BundleDeviceError, match=r"cannot use the GPU cuda:2: .*libcudart.*--device cpu"
    ):
        open_stream(Device("cuda", 2))
    broken = CudaRuntime(FakeRuntime(cudaSetDevice=700))
    monkeypatch.setattr(sessions, "load_cuda", lambda: broken)
    with pytest.raises(BundleDeviceError, match=r"cuda:2: cudaSetDevice: cudaErrorIllegalAddress"):
        open_stream(Device("cuda", 2))
    full = CudaRuntime(FakeRuntime(cudaStreamCreateWithFlags=2))
    monkeypatch.setattr(sessions, "load_cuda", lambda: full)
    with pytest.raises(CudaError, match="out of memory"):  # which the caller has more to say about
        open_stream(Device("cuda", 2))
