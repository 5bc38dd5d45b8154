"""Arrays to and from a device that is late."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np
import pytest

from service.runtime.cuda.array import DeviceArray
from service.runtime.cuda.staging import Staging, StagingRing
from tests.late_stream import LateStream


def on_device(array: DeviceArray) -> np.ndarray[Any, Any]:
    """The array in host memory at a device array's address."""
    size = int(np.prod(array.shape)) * array.dtype.itemsize
    raw = ctypes.string_at(array.address, size)
    return np.frombuffer(raw, array.dtype).reshape(array.shape)


def test_uploaded_arrays_lie_on_the_device_side_by_side() -> None:
    stream = LateStream()
    staging = Staging(stream)
    arrays: list[np.ndarray[Any, Any]] = [
        np.arange(7), np.arange(12, dtype=np.int32).reshape(4, 3)[:, ::2], np.ones((1, 1)),
        np.arange(100_000), np.arange(3),  # more than there is room for, and another
    ]  # fmt: skip
    placed = [*staging.upload(*arrays[:3]), *staging.upload(*arrays[3:])]
    for array, there in zip(arrays, placed, strict=True):
        assert there.address % 16 == 0
        assert (there.shape, there.dtype) == (array.shape, array.dtype)
        assert (on_device(there) == array).all()
    arrays[0][:] = 0  # the caller's own again
    stream.synchronize()
    assert on_device(placed[0]).tolist() == list(range(7))
    assert stream.complaints == []


def test_memory_that_is_used_too_early_is_noticed() -> None:
    """By the stand-in for a device: or the tests with it would show nothing."""
    stream = LateStream()
    staging = Staging(stream)
    staging.upload(np.arange(7))
    staging.reset()  # without waiting
    staging.upload(np.arange(1, 8))
    stream.synchronize()
    assert stream.complaints


def test_a_download_is_there_once_the_end_has_come() -> None:
    stream = LateStream()
    staging = Staging(stream)
    for rows in (2, 100_000, 3):  # the second needs more room
        [there] = staging.upload(np.arange(3 * rows, dtype=np.float32).reshape(rows, 3))
        staging.download(there, rows - 1)
        stream.record(staging.ended)
        assert np.isnan(staging.downloaded).all()
        stream.wait(staging.ended)
        assert staging.downloaded.shape == (rows - 1, 3)
        assert staging.downloaded[-1].tolist() == [3 * rows - 6, 3 * rows - 5, 3 * rows - 4]
        staging.reset()
    assert stream.complaints == []


def test_memory_that_grew_is_given_back() -> None:
    stream = LateStream()
    staging = Staging(stream)
    for _ in range(3):
        staging.upload(np.zeros(1 << 20, np.uint8))
    stream.synchronize()
    staging.reset()
    assert len(stream._arrays) == 1
    staging.close()
    assert not stream._arrays


@pytest.mark.parametrize("sizes", [[1 << 20] * 3, [1 << 17] * 9, [1 << 16, 1 << 20, 1 << 18]])
def test_what_comes_again_needs_no_more_memory(sizes: list[int]) -> None:
    """To allocate may wait for the device."""
    stream = LateStream()
    staging = Staging(stream)
    allocated = []
    for _ in range(5):
        for size in sizes:
            staging.upload(np.zeros(size, np.uint8))
        stream.synchronize()
        allocated.append(set(stream._arrays))
        staging.reset()
    assert allocated[-1] == allocated[-2] == set(stream._arrays)
    assert len(stream._arrays) == 1


def test_a_ring_hands_out_none_that_has_not_been_read() -> None:
    ring = StagingRing(LateStream(), 2)
    first, second = ring.acquire(), ring.acquire()
    taken: list[Staging] = []
    waiting = threading.Thread(target=lambda: taken.append(ring.acquire()))
    waiting.start()
    ring.release(second)
    waiting.join(60)
    assert taken == [second]
    ring.release(first)
    assert ring.acquire() is first


def test_a_ring_loses_none_to_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = LateStream()
    ring = StagingRing(stream, 1)
    staging = ring.acquire()
    staging.upload(np.zeros(1 << 20, np.uint8))
    ring.release(staging)

    def fail(address: int) -> None:
        raise RuntimeError("the device is lost")

    with monkeypatch.context() as patch:
        patch.setattr(stream, "free", fail)
        with pytest.raises(RuntimeError, match="lost"):
            ring.acquire()
    assert ring.acquire() is staging
