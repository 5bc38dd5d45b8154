"""The memory through which steps under way and the host exchange arrays.

A copy to or from a GPU is made when its turn has come, long after the call that asked for it has
returned. Until then the host's memory must stay as it is, and must not be read. So each step under
way has memory of its own, which goes to another step only when what it brought has been read.

All of it is pinned. From pageable memory CUDA first makes a copy of its own, and its documentation
("API synchronization behavior") lets even the asynchronous copy wait for the stream meanwhile.
"""

from __future__ import annotations

import math
import queue
from typing import Any

import numpy as np
import numpy.typing as npt

from model.sessions import Device
from service.runtime.cuda.array import DeviceArray
from service.runtime.cuda.stream import DeviceStream

Array = npt.NDArray[Any]

_ALIGNMENT = 256  # of CUDA's own allocations
_FIRST_BYTES = 1 << 18  # of a block; it grows when a step needs more


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT


class _Block:
    """Pinned memory, and as much on the device."""

    def __init__(self, stream: DeviceStream, num_bytes: int) -> None:
        self.host = stream.allocate_pinned(num_bytes)
        try:
            self.address = stream.allocate(num_bytes)
        except BaseException:
            stream.free_pinned(self.host)
            raise

    def free(self, stream: DeviceStream) -> None:
        stream.free(self.address)
        stream.free_pinned(self.host)


class Staging:
    """What one step under way sends to the device, and what it brings.

    Attributes:
        encoded, ended: events for whoever waits: its encodes are done, everything is.
    """

    def __init__(self, stream: DeviceStream, device: Device) -> None:
        self._stream = stream
        self._device = device
        self.encoded, self.ended = stream.new_event(), stream.new_event()
        self._blocks: list[_Block] = []
        self._used = 0  # bytes of the last block
        self._brought = stream.allocate_pinned(_FIRST_BYTES)
        self._fetched: Array = np.zeros(0, np.float32)
        self._grow(_FIRST_BYTES)

    def put(self, *arrays: Array) -> list[DeviceArray]:
        """Have `arrays` copied to the device, where they stay until this staging is taken again.

        They may be changed at once. One copy takes all of them: each is a launch of its own.
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
            placed.append(DeviceArray(self, address, self._device, array.shape, array.dtype))
            self._used += _aligned(piece.nbytes)
        self._stream.copy_in(block.address + start, block.host[start : self._used])
        return placed

    def fetch(self, array: DeviceArray, num_rows: int) -> None:
        """Have the first rows of `array` copied to the host, for `fetched`."""
        shape = (num_rows, *array.shape[1:])
        num_bytes = math.prod(shape) * array.dtype.itemsize
        if num_bytes > self._brought.nbytes:  # of no step any more: what it brought has been read
            larger = self._stream.allocate_pinned(2 * num_bytes)
            self._stream.free_pinned(self._brought)
            self._brought = larger
        target = self._brought[:num_bytes]
        self._fetched = target.view(array.dtype).reshape(shape)
        self._stream.copy_out(target, array.address)

    @property
    def fetched(self) -> Array:
        """What was fetched. To be read once `ended` has happened, and copied."""
        return self._fetched

    def clear(self) -> None:
        """Begin anew, when nothing of it is under way."""
        while len(self._blocks) > 1:  # each is twice the one before: the last has room for all
            self._blocks.pop(0).free(self._stream)
        self._used = 0

    def close(self) -> None:
        """Free it."""
        self._stream.free_pinned(self._brought)
        while self._blocks:
            self._blocks.pop().free(self._stream)

    def _grow(self, num_bytes: int) -> None:
        # Twice the last: to allocate may wait for the device, so that it must not go on for ever.
        last = self._blocks[-1].host.nbytes if self._blocks else 0
        size = 2 * max(num_bytes, last)
        self._blocks.append(_Block(self._stream, size))
        self._used = 0


class StagingRing:
    """As many as there may be steps under way, used in turn.

    Args:
        stream: on which copies are made.
        device: its.
        count: how many.
    """

    def __init__(self, stream: DeviceStream, device: Device, count: int) -> None:
        self._free: queue.SimpleQueue[Staging] = queue.SimpleQueue()
        self._all: list[Staging] = []
        for _ in range(count):
            self._all.append(Staging(stream, device))
            self._free.put(self._all[-1])

    def take(self) -> Staging:
        """The one that was given back first; waits for it if all are under way."""
        staging = self._free.get()
        try:
            staging.clear()
        except BaseException:
            self._free.put(staging)
            raise
        return staging

    def give_back(self, staging: Staging) -> None:
        """What it brought has been read. May be called from another thread."""
        self._free.put(staging)

    def close(self) -> None:
        """Free all, when nothing is under way."""
        while self._all:
            self._all.pop().close()
