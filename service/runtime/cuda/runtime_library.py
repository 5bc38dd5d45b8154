"""A stream of our own on a GPU: of CUDA's runtime library, what the server calls itself.

ONNX Runtime launches everything on this stream, and the copies to and from the host take their
turn on it: so they come in order, and nobody waits for any of it but who needs what it brings.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

LIBRARIES = ("libcudart.so.13", "libcudart.so.12", "libcudart.so")

# Of CUDA's headers.
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
        loaded: likewise, if the process has it already.
    """
    for opens in (loaded, load):
        for name in LIBRARIES:
            with contextlib.suppress(OSError):
                return opens(name)
    return None


class CudaStream:
    """A `service.runtime.cuda.stream.DeviceStream` on a GPU.

    Does not wait for CUDA's default stream, nor that for it.

    Args:
        runtime: CUDA's runtime library.
        index: of the GPU among those that this process sees.

    Attributes:
        address: of the stream, for ONNX Runtime.

    Raises:
        CudaError: of every method: the call failed.
    """

    def __init__(self, runtime: Any, index: int) -> None:
        self._runtime = runtime
        self._index = index
        for name in ("cudaGetErrorName", "cudaGetErrorString"):
            getattr(runtime, name).restype = ctypes.c_char_p
        self._events: list[int] = []
        self.use()
        self.address = self._made("cudaStreamCreateWithFlags", ctypes.c_uint(_NON_BLOCKING))

    def use(self) -> None:
        """Say that the calling thread works with this GPU; before its first call."""
        self._call("cudaSetDevice", ctypes.c_int(self._index))

    def allocate(self, num_bytes: int) -> int:
        """The address of so much memory on the GPU."""
        return self._made("cudaMalloc", ctypes.c_size_t(num_bytes))

    def free(self, address: int) -> None:
        """Give memory on the GPU back. CUDA waits for whatever is under way."""
        self._call("cudaFree", ctypes.c_void_p(address))

    def allocate_pinned(self, num_bytes: int) -> npt.NDArray[np.uint8]:
        """So much of the host's memory, from and to which copies go without waiting."""
        address = self._made("cudaHostAlloc", ctypes.c_size_t(num_bytes), ctypes.c_uint(0))
        memory = (ctypes.c_uint8 * num_bytes).from_address(address)
        return np.frombuffer(memoryview(memory).cast("B"), np.uint8)

    def free_pinned(self, memory: npt.NDArray[np.uint8]) -> None:
        """Give back what `allocate_pinned` returned."""
        self._call("cudaFreeHost", ctypes.c_void_p(memory.ctypes.data))

    def copy_in(self, address: int, source: npt.NDArray[np.uint8]) -> None:
        """Have pinned memory copied to the GPU. It must stay as it is until then."""
        self._copy(address, source.ctypes.data, source.nbytes, _HOST_TO_DEVICE)

    def copy_out(self, target: npt.NDArray[np.uint8], address: int) -> None:
        """Have memory of the GPU copied into pinned memory."""
        self._copy(target.ctypes.data, address, target.nbytes, _DEVICE_TO_HOST)

    def new_event(self) -> int:
        """Something that can be waited for."""
        event = self._made("cudaEventCreateWithFlags", ctypes.c_uint(_DISABLE_TIMING))
        self._events.append(event)
        return event

    def record(self, event: int) -> None:
        """Let `event` happen once everything that was launched before has ended."""
        self._call("cudaEventRecord", ctypes.c_void_p(event), ctypes.c_void_p(self.address))

    def wait(self, event: int) -> None:
        """Wait until `event` has happened. The interpreter goes on with other threads."""
        self._call("cudaEventSynchronize", ctypes.c_void_p(event))

    def synchronize(self) -> None:
        """Wait until the GPU has nothing left to do, on this stream or another."""
        self._call("cudaDeviceSynchronize")

    def end_capture(self) -> None:
        """End the capture of a CUDA graph that failed on the way, or nothing could be launched."""
        status, graph = ctypes.c_int(), ctypes.c_void_p()
        stream = ctypes.c_void_p(self.address)
        self._call("cudaStreamIsCapturing", stream, ctypes.byref(status))
        if not status.value:
            return
        with contextlib.suppress(CudaError):  # which says that it had failed
            self._call("cudaStreamEndCapture", stream, ctypes.byref(graph))
        if graph.value:
            self._call("cudaGraphDestroy", graph)

    def close(self) -> None:
        """Free it and its events, after everything that uses it."""
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

    def _made(self, name: str, *arguments: Any) -> int:
        made = ctypes.c_void_p()
        self._call(name, ctypes.byref(made), *arguments)
        return made.value or 0

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._runtime, name)(*arguments)
        if not code:
            return
        # Kept, it would be found by who asks next: ONNX Runtime, after kernels of its own.
        self._runtime.cudaGetLastError()
        what, why = self._runtime.cudaGetErrorName(code), self._runtime.cudaGetErrorString(code)
        raise CudaError(f"{name}: {what.decode()}: {why.decode()}")
