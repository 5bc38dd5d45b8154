"""Streams: a device executes in order what is enqueued on one.

ONNX Runtime and our copies share one stream, so the host waits only for the outputs that it reads.
CUDA's runtime library is called through ctypes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from model.out_of_memory import is_out_of_memory
from model.sessions import Device, no_such_gpu
from service.errors import StartupError

Memory = npt.NDArray[np.uint8]

LIBRARIES = ("libcudart.so.13", "libcudart.so.12", "libcudart.so")

# From CUDA's headers.
_NON_BLOCKING = 1
_DISABLE_TIMING = 2
_HOST_TO_DEVICE, _DEVICE_TO_HOST = 1, 2


class CudaError(RuntimeError):
    """CUDA failed: at this call, or at something launched before it."""


def _loaded(name: str) -> ctypes.CDLL:
    return ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_NOW)


def load_runtime(
    load: Callable[[str], Any] = ctypes.CDLL, loaded: Callable[[str], Any] = _loaded
) -> Any | None:
    """The runtime library that ONNX Runtime has loaded, or else the newest; None without any.

    A machine can have several, and the driver may be too old for the newest.

    Args:
        load: opens a library by its name.
        loaded: opens it only if the process has loaded it already.
    """
    for opens in (loaded, load):
        for name in LIBRARIES:
            with contextlib.suppress(OSError):
                return opens(name)
    return None


class CudaStream:
    """A stream of a GPU.

    It does not synchronize with CUDA's default stream.

    Args:
        runtime: CUDA's runtime library.
        index: of the GPU among those that this process sees.

    Attributes:
        address: of the stream, for ONNX Runtime.

    Raises:
        CudaError: by every method, if the call failed.
    """

    def __init__(self, runtime: Any, index: int) -> None:
        self._runtime = runtime
        self._index = index
        for name in ("cudaGetErrorName", "cudaGetErrorString"):
            getattr(runtime, name).restype = ctypes.c_char_p
        self._events: list[int] = []
        self.use()
        self.address = self._create("cudaStreamCreateWithFlags", ctypes.c_uint(_NON_BLOCKING))

    def use(self) -> None:
        """Make this GPU current in the calling thread; before its first call."""
        self._call("cudaSetDevice", ctypes.c_int(self._index))

    def allocate(self, num_bytes: int) -> int:
        """Allocate memory on the GPU; its address."""
        return self._create("cudaMalloc", ctypes.c_size_t(num_bytes))

    def free(self, address: int) -> None:
        """Free memory on the GPU. CUDA waits for everything in flight."""
        self._call("cudaFree", ctypes.c_void_p(address))

    def allocate_pinned(self, num_bytes: int) -> Memory:
        """Allocate pinned memory on the host, for asynchronous copies."""
        address = self._create("cudaHostAlloc", ctypes.c_size_t(num_bytes), ctypes.c_uint(0))
        memory = (ctypes.c_uint8 * num_bytes).from_address(address)
        return np.frombuffer(memoryview(memory).cast("B"), np.uint8)

    def free_pinned(self, memory: Memory) -> None:
        """Free memory of `allocate_pinned`."""
        self._call("cudaFreeHost", ctypes.c_void_p(memory.ctypes.data))

    def copy_in(self, address: int, source: Memory) -> None:
        """Enqueue a copy of pinned memory to the GPU. It must not change until then."""
        self._copy(address, source.ctypes.data, source.nbytes, _HOST_TO_DEVICE)

    def copy_out(self, target: Memory, address: int) -> None:
        """Enqueue a copy from the GPU into pinned memory."""
        self._copy(target.ctypes.data, address, target.nbytes, _DEVICE_TO_HOST)

    def new_event(self) -> int:
        """Create an event."""
        event = self._create("cudaEventCreateWithFlags", ctypes.c_uint(_DISABLE_TIMING))
        self._events.append(event)
        return event

    def record(self, event: int) -> None:
        """Enqueue `event`: it happens when everything launched before has ended."""
        self._call("cudaEventRecord", ctypes.c_void_p(event), ctypes.c_void_p(self.address))

    def wait(self, event: int) -> None:
        """Wait for `event`, without Python's lock; from any thread."""
        self._call("cudaEventSynchronize", ctypes.c_void_p(event))

    def synchronize(self) -> None:
        """Wait until the GPU is idle, on all streams."""
        self._call("cudaDeviceSynchronize")

    def end_capture(self) -> None:
        """End a capture that has failed; until then, nothing can be launched."""
        status, graph = ctypes.c_int(), ctypes.c_void_p()
        stream = ctypes.c_void_p(self.address)
        self._call("cudaStreamIsCapturing", stream, ctypes.byref(status))
        if not status.value:
            return
        with contextlib.suppress(CudaError):  # it reports that the capture had failed
            self._call("cudaStreamEndCapture", stream, ctypes.byref(graph))
        if graph.value:
            self._call("cudaGraphDestroy", graph)

    def close(self) -> None:
        """Free the stream and its events, after everything that uses them."""
        while self._events:
            self._call("cudaEventDestroy", ctypes.c_void_p(self._events.pop()))
        if self.address:
            address, self.address = self.address, 0
            self._call("cudaStreamDestroy", ctypes.c_void_p(address))

    def _copy(self, to: int, source: int, num_bytes: int, kind: int) -> None:
        self._call(
            "cudaMemcpyAsync",
            ctypes.c_void_p(to),
            ctypes.c_void_p(source),
            ctypes.c_size_t(num_bytes),
            ctypes.c_int(kind),
            ctypes.c_void_p(self.address),
        )

    def _create(self, name: str, *arguments: Any) -> int:
        made = ctypes.c_void_p()
        self._call(name, ctypes.byref(made), *arguments)
        return made.value or 0

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._runtime, name)(*arguments)
        if not code:
            return
        # Clear the error: ONNX Runtime would find it after its own kernels.
        self._runtime.cudaGetLastError()
        what, why = self._runtime.cudaGetErrorName(code), self._runtime.cudaGetErrorString(code)
        raise CudaError(f"{name}: {what.decode()}: {why.decode()}")


class HostStream:
    """The stream of a CPU as a device: every call completes before it returns."""

    address = 0

    def __init__(self) -> None:
        self._blocks: dict[int, Memory] = {}

    def use(self) -> None:
        """Do nothing."""

    def allocate(self, num_bytes: int) -> int:
        """Allocate memory; its address."""
        block = np.zeros(num_bytes, np.uint8)
        self._blocks[block.ctypes.data] = block
        return int(block.ctypes.data)

    def free(self, address: int) -> None:
        """Free memory of `allocate`."""
        del self._blocks[address]

    def allocate_pinned(self, num_bytes: int) -> Memory:
        """Allocate memory."""
        return np.zeros(num_bytes, np.uint8)

    def free_pinned(self, memory: Memory) -> None:
        """Do nothing."""

    def copy_in(self, address: int, source: Memory) -> None:
        """Copy `source` to `address`."""
        ctypes.memmove(address, source.ctypes.data, source.nbytes)

    def copy_out(self, target: Memory, address: int) -> None:
        """Copy from `address` into `target`."""
        ctypes.memmove(target.ctypes.data, address, target.nbytes)

    def new_event(self) -> int:
        """Return an event; all have happened."""
        return 0

    def record(self, event: int) -> None:
        """Do nothing."""

    def wait(self, event: int) -> None:
        """Do nothing."""

    def synchronize(self) -> None:
        """Do nothing."""

    def end_capture(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Free all memory."""
        self._blocks.clear()


DeviceStream = HostStream | CudaStream
"""Orders our copies with ONNX Runtime's launches, without waiting for either.

Any method may raise an error of the device, also of something that was launched before.
"""


def open_stream(device: Device) -> DeviceStream:
    """Open a stream on `device`.

    Raises:
        StartupError: there is no such GPU, or its libraries are missing; says what to do.
    """
    if device.kind == "cpu":
        return HostStream()
    runtime = load_runtime()
    try:
        if runtime is None:
            raise CudaError("CUDA's runtime library, libcudart, is not found")
        return CudaStream(runtime, device.index)
    except CudaError as exc:
        if is_out_of_memory(exc):
            raise
        raise StartupError(no_such_gpu(f"cuda:{device.index}", str(exc))) from exc
