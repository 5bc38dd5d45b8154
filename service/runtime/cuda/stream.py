"""Streams: a device executes the work on a stream in order.

ONNX Runtime and our copies share one stream, so that the host waits only for outputs that it reads.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from model.bundle.cuda import CudaError, CudaRuntime
from model.bundle.sessions import Device, use_device
from service.runtime.cuda.array import DeviceArray

Memory = npt.NDArray[np.uint8]

# From CUDA's headers.
_NON_BLOCKING = 1
_EVENT_FLAGS = 1 | 2  # waiting threads sleep, and no times are recorded
_DEFAULT_STREAM = 0
_HOST_TO_DEVICE, _DEVICE_TO_HOST = 1, 2


class CudaStream:
    """A stream of a GPU, which orders our copies with ONNX Runtime's launches.

    It does not synchronize with CUDA's default stream.

    Args:
        runtime: CUDA's runtime library.
        device: a GPU that this process sees.

    Attributes:
        device: the GPU.
        address: handle of the stream, for ONNX Runtime.

    Raises:
        CudaError: a call or an earlier launch has failed; raised by every method.
    """

    def __init__(self, runtime: CudaRuntime, device: Device) -> None:
        self._runtime = runtime
        self.device = device
        self._events: list[int] = []
        self._blocks: set[int] = set()
        self.address = runtime.create("cudaStreamCreateWithFlags", _NON_BLOCKING)

    def use(self) -> None:
        """Select this GPU for the calling thread; required before its first call."""
        self._runtime.use(self.device.index)

    def zeros(self, shape: Sequence[int], dtype: npt.DTypeLike) -> DeviceArray:
        """Allocate zeros that stay until the stream is closed."""
        num_bytes = math.prod(shape) * np.dtype(dtype).itemsize
        return DeviceArray(self.allocate(num_bytes), self.device, shape, dtype)

    def allocate(self, num_bytes: int) -> int:
        """Allocate zeros on the GPU, until `free` or `close`; returns their address."""
        address = self._runtime.create("cudaMalloc", num_bytes)
        self._blocks.add(address)
        self._runtime.call("cudaMemsetAsync", address, 0, num_bytes, self.address)
        return address

    def free(self, address: int) -> None:
        """Free memory of `allocate`. CUDA waits for all work in flight."""
        self._blocks.remove(address)
        self._runtime.call("cudaFree", address)

    def allocate_pinned(self, num_bytes: int) -> Memory:
        """Allocate pinned memory on the host, for asynchronous copies."""
        address = self._runtime.create("cudaHostAlloc", num_bytes, 0)
        memory = (ctypes.c_uint8 * num_bytes).from_address(address)
        return np.frombuffer(memoryview(memory).cast("B"), np.uint8)

    def free_pinned(self, memory: Memory) -> None:
        """Free memory of `allocate_pinned`."""
        self._runtime.call("cudaFreeHost", memory.ctypes.data)

    def copy_in(self, address: int, source: Memory) -> None:
        """Enqueue a copy of pinned memory to the GPU. `source` must not change until it is done."""
        self._copy(address, source.ctypes.data, source.nbytes, _HOST_TO_DEVICE)

    def copy_out(self, target: Memory, address: int) -> None:
        """Enqueue a copy from the GPU into pinned memory."""
        self._copy(target.ctypes.data, address, target.nbytes, _DEVICE_TO_HOST)

    def new_event(self) -> int:
        """Create an event. A thread that waits for it takes no processor time."""
        self._events.append(self._runtime.create("cudaEventCreateWithFlags", _EVENT_FLAGS))
        return self._events[-1]

    def record(self, event: int) -> None:
        """Enqueue `event`, which occurs when all work launched before has ended."""
        self._runtime.call("cudaEventRecord", event, self.address)

    def wait(self, event: int) -> None:
        """Wait for `event` without Python's lock. May be called in any thread."""
        self._runtime.call("cudaEventSynchronize", event)

    def synchronize(self) -> None:
        """Wait for all work on this stream and on CUDA's default stream.

        Waiting for the whole GPU is not possible while another model captures graphs.
        """
        for stream in (self.address, _DEFAULT_STREAM):
            self._runtime.call("cudaStreamSynchronize", stream)

    def end_capture(self) -> None:
        """End a failed capture, so that work can be launched again."""
        status, graph = ctypes.c_int(), ctypes.c_void_p()
        self._runtime.call("cudaStreamIsCapturing", self.address, ctypes.byref(status))
        if not status.value:
            return
        with contextlib.suppress(CudaError):  # reports that the capture has failed
            self._runtime.call("cudaStreamEndCapture", self.address, ctypes.byref(graph))
        if graph.value:
            self._runtime.call("cudaGraphDestroy", graph)

    def close(self) -> None:
        """Free the stream, its events and its memory; all users must have been closed."""
        while self._blocks:
            self._runtime.call("cudaFree", self._blocks.pop())
        while self._events:
            self._runtime.call("cudaEventDestroy", self._events.pop())
        if self.address:
            address, self.address = self.address, 0
            self._runtime.call("cudaStreamDestroy", address)

    def _copy(self, to: int, source: int, num_bytes: int, kind: int) -> None:
        self._runtime.call("cudaMemcpyAsync", to, source, num_bytes, kind, self.address)


def open_stream(device: Device) -> CudaStream:
    """Open a stream on a GPU.

    Raises:
        BundleDeviceError: there is no such GPU, or its libraries are missing; says what to do.
        CudaError: the stream can't be created.
    """
    runtime = use_device(device)
    assert runtime is not None, "streams are for GPUs"
    return CudaStream(runtime, device)
