"""Staging memory: pinned buffers through which steps in flight and the host exchange arrays.

A copy to or from a GPU happens on the stream, long after the call that enqueued it has returned.
Until then, the host's memory must not be changed or read. So each step in flight has its own
memory, which another step gets only after its output has been read.

The memory is pinned, since CUDA first copies pageable memory to a buffer of its own, and then even
an asynchronous copy may wait for the stream (CUDA's "API synchronization behavior").
"""

from __future__ import annotations

import math
import queue
from typing import Any

import numpy as np
import numpy.typing as npt

from service.runtime.cuda.array import DeviceArray
from service.runtime.cuda.stream import CudaStream

Array = npt.NDArray[Any]

_ALIGNMENT = 256  # alignment of CUDA's own allocations
_FIRST_BYTES = 1 << 18  # size of the first block; later ones are larger if a step needs more


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT


class _Block:
    """Pinned memory, and memory of the same size on the device."""

    def __init__(self, stream: CudaStream, num_bytes: int) -> None:
        self.host = stream.allocate_pinned(num_bytes)
        try:
            self.address = stream.allocate(num_bytes)
        except BaseException:
            stream.free_pinned(self.host)
            raise

    def free(self, stream: CudaStream) -> None:
        stream.free(self.address)
        stream.free_pinned(self.host)


class Staging:
    """The uploads and the download of one step in flight.

    Attributes:
        encoded: event that the step's sources have been encoded.
        ended: event that the whole step has ended.
    """

    def __init__(self, stream: CudaStream) -> None:
        self._stream = stream
        self.encoded, self.ended = stream.new_event(), stream.new_event()
        self._blocks: list[_Block] = []
        self._used = 0  # bytes of the last block
        self._buffer = stream.allocate_pinned(_FIRST_BYTES)
        self._downloaded: Array = np.zeros(0, np.float32)
        self._grow(_FIRST_BYTES)

    def upload(self, *arrays: Array) -> list[DeviceArray]:
        """Copy `arrays` to the device, where they stay until the staging is reset.

        The caller may change them at once. They are copied together, since each copy is a launch.
        """
        flat = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays]
        room = sum(_aligned(piece.nbytes) for piece in flat)
        if self._used + room > self._blocks[-1].host.nbytes:
            self._grow(room)
        block, start = self._blocks[-1], self._used
        placed = []
        for array, piece in zip(arrays, flat, strict=True):
            block.host[self._used : self._used + piece.nbytes] = piece
            address = block.address + self._used
            placed.append(DeviceArray(address, self._stream.device, array.shape, array.dtype))
            self._used += _aligned(piece.nbytes)
        self._stream.copy_in(block.address + start, block.host[start : self._used])
        return placed

    def download(self, array: DeviceArray, num_rows: int) -> None:
        """Copy the first rows of `array` to the host, for `downloaded`."""
        shape = (num_rows, *array.shape[1:])
        num_bytes = math.prod(shape) * array.dtype.itemsize
        if num_bytes > self._buffer.nbytes:  # not in use: the last step's output has been read
            larger = self._stream.allocate_pinned(2 * num_bytes)
            self._stream.free_pinned(self._buffer)
            self._buffer = larger
        target = self._buffer[:num_bytes]
        self._downloaded = target.view(array.dtype).reshape(shape)
        self._stream.copy_out(target, array.address)

    @property
    def downloaded(self) -> Array:
        """The downloaded rows. The caller copies them, after the event `ended`."""
        return self._downloaded

    def reset(self) -> None:
        """Make the staging ready for another step; nothing of it may be in flight."""
        while len(self._blocks) > 1:  # the last is twice the one before and has room for all
            self._blocks.pop(0).free(self._stream)
        self._used = 0

    def close(self) -> None:
        """Free the memory."""
        self._stream.free_pinned(self._buffer)
        while self._blocks:
            self._blocks.pop().free(self._stream)

    def _grow(self, num_bytes: int) -> None:
        # Twice the last, so that there are few allocations: they may wait for the device.
        last = self._blocks[-1].host.nbytes if self._blocks else 0
        size = 2 * max(num_bytes, last)
        self._blocks.append(_Block(self._stream, size))
        self._used = 0


class StagingRing:
    """The stagings of all steps in flight, used in turn.

    Args:
        stream: stream on which copies are made.
        count: number of stagings.
    """

    def __init__(self, stream: CudaStream, count: int) -> None:
        self._free: queue.SimpleQueue[Staging] = queue.SimpleQueue()
        self._all: list[Staging] = []
        for _ in range(count):
            self._all.append(Staging(stream))
            self._free.put(self._all[-1])

    def acquire(self) -> Staging:
        """Take the staging that was released first; waits if all are in flight."""
        staging = self._free.get()
        try:
            staging.reset()
        except BaseException:
            self._free.put(staging)
            raise
        return staging

    def release(self, staging: Staging) -> None:
        """Give back a staging after its step's output was read. May be called in any thread."""
        self._free.put(staging)

    def close(self) -> None:
        """Free all stagings; nothing may be in flight."""
        while self._all:
            self._all.pop().close()
