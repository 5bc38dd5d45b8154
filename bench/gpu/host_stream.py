"""A CPU in the place of a GPU: the runner's code and graphs run on it, without CUDA."""

from __future__ import annotations

import ctypes

import numpy as np

from model.bundle.sessions import Device
from service.runtime.cuda.stream import CudaStream, Memory, open_stream


class HostStream(CudaStream):
    """The stream of a CPU as a device: every call completes before it returns."""

    def __init__(self) -> None:
        self.address, self.device = 0, Device()
        self._arrays: dict[int, Memory] = {}

    def use(self) -> None:
        """Do nothing."""

    def allocate(self, num_bytes: int) -> int:
        """Allocate zeros, and return their address."""
        block = np.zeros(num_bytes, np.uint8)
        self._arrays[block.ctypes.data] = block
        return int(block.ctypes.data)

    def free(self, address: int) -> None:
        """Free memory of `allocate`."""
        del self._arrays[address]

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
        """Return an event, which counts as past."""
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
        self._arrays.clear()


def open_on(device: Device) -> CudaStream:
    """Open a stream of a GPU, or of a CPU in its place."""
    return HostStream() if device.kind == "cpu" else open_stream(device)
