"""Where a device works off, in order, what it is given."""

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
    """Copies take their turn on it between what ONNX Runtime launches; nothing waits for them.

    Any method may raise an error of the device, be it of something that was launched before.
    """

    @property
    def address(self) -> int:
        """For ONNX Runtime; 0 where it needs none."""
        ...

    def use(self) -> None:
        """Say that the calling thread works with this device; before its first call."""
        ...

    def allocate(self, num_bytes: int) -> int:
        """The address of so much memory on the device."""
        ...

    def free(self, address: int) -> None:
        """Give memory on the device back."""
        ...

    def allocate_pinned(self, num_bytes: int) -> Memory:
        """So much of the host's memory, from and to which copies go without waiting."""
        ...

    def free_pinned(self, memory: Memory) -> None:
        """Give back what `allocate_pinned` returned."""
        ...

    def copy_in(self, address: int, source: Memory) -> None:
        """Have pinned memory copied to the device. It must stay as it is until then."""
        ...

    def copy_out(self, target: Memory, address: int) -> None:
        """Have memory of the device copied into pinned memory."""
        ...

    def new_event(self) -> int:
        """Something that can be waited for."""
        ...

    def record(self, event: int) -> None:
        """Let `event` happen once everything that was launched before has ended."""
        ...

    def wait(self, event: int) -> None:
        """Wait until `event` has happened. May be called from another thread."""
        ...

    def synchronize(self) -> None:
        """Wait until the device has nothing left to do."""
        ...

    def end_capture(self) -> None:
        """End the capture of a CUDA graph that failed on the way, or nothing could be launched."""
        ...

    def close(self) -> None:
        """Free it and its events, after everything that uses it."""
        ...


class HostStream:
    """A `DeviceStream` where the device is the CPU: everything is done when the call returns."""

    address = 0

    def __init__(self) -> None:
        self._blocks: dict[int, Memory] = {}

    def use(self) -> None:
        """Nothing to say."""

    def allocate(self, num_bytes: int) -> int:
        """The address of so much memory."""
        block = np.zeros(num_bytes, np.uint8)
        self._blocks[block.ctypes.data] = block
        return int(block.ctypes.data)

    def free(self, address: int) -> None:
        """Give back what `allocate` returned."""
        del self._blocks[address]

    def allocate_pinned(self, num_bytes: int) -> Memory:
        """So much memory."""
        return np.zeros(num_bytes, np.uint8)

    def free_pinned(self, memory: Memory) -> None:
        """Nothing to do."""

    def copy_in(self, address: int, source: Memory) -> None:
        """Copy `source` to `address`."""
        ctypes.memmove(address, source.ctypes.data, source.nbytes)

    def copy_out(self, target: Memory, address: int) -> None:
        """Copy what lies at `address` into `target`."""
        ctypes.memmove(target.ctypes.data, address, target.nbytes)

    def new_event(self) -> int:
        """One that has happened."""
        return 0

    def record(self, event: int) -> None:
        """It has happened."""

    def wait(self, event: int) -> None:
        """It has happened."""

    def synchronize(self) -> None:
        """There is nothing left to do."""

    def end_capture(self) -> None:
        """There is no such thing."""

    def close(self) -> None:
        """Free what is left."""
        self._blocks.clear()


def open_stream(device: Device) -> DeviceStream:
    """A new stream of `device`.

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
