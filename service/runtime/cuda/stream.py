"""Streams: a device executes in order what is enqueued on one."""

from __future__ import annotations

import ctypes
from typing import Protocol

import numpy as np
import numpy.typing as npt

from model.out_of_memory import is_out_of_memory
from model.sessions import Device, no_such_gpu
from service.errors import StartupError
from service.runtime.cuda.runtime_library import CudaError, CudaStream, load_runtime

Memory = npt.NDArray[np.uint8]


class DeviceStream(Protocol):
    """Orders our copies with ONNX Runtime's launches, without waiting for either.

    Any method may raise an error of the device, also of something that was launched before.
    """

    @property
    def address(self) -> int:
        """For ONNX Runtime; 0 where it needs none."""
        ...

    def use(self) -> None:
        """Make this device current in the calling thread; before its first call."""
        ...

    def allocate(self, num_bytes: int) -> int:
        """Allocate memory on the device; its address."""
        ...

    def free(self, address: int) -> None:
        """Free memory on the device."""
        ...

    def allocate_pinned(self, num_bytes: int) -> Memory:
        """Allocate pinned memory on the host, for asynchronous copies."""
        ...

    def free_pinned(self, memory: Memory) -> None:
        """Free memory of `allocate_pinned`."""
        ...

    def copy_in(self, address: int, source: Memory) -> None:
        """Enqueue a copy of pinned memory to the device. It must not change until then."""
        ...

    def copy_out(self, target: Memory, address: int) -> None:
        """Enqueue a copy from the device into pinned memory."""
        ...

    def new_event(self) -> int:
        """Create an event."""
        ...

    def record(self, event: int) -> None:
        """Enqueue `event`: it happens when everything launched before has ended."""
        ...

    def wait(self, event: int) -> None:
        """Wait for `event`. May be called from another thread."""
        ...

    def synchronize(self) -> None:
        """Wait until the device is idle."""
        ...

    def end_capture(self) -> None:
        """End a capture that has failed; until then, nothing can be launched."""
        ...

    def close(self) -> None:
        """Free the stream and its events, after everything that uses them."""
        ...


class HostStream:
    """A `DeviceStream` where the device is the CPU: every call completes before it returns."""

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
