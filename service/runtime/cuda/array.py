"""Arrays on a device, bound to sessions by address."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from model.sessions import Device


class DeviceArray:
    """An array on a device, of which parts can be bound to a session.

    Args:
        owner: keeps the memory alive; bindings don't.
        address: of its first element.
        device: where it is.
        shape, dtype: of all of it.

    Attributes:
        address, shape, dtype: as given.
    """

    def __init__(
        self,
        owner: object,
        address: int,
        device: Device,
        shape: Sequence[int],
        dtype: npt.DTypeLike,
    ) -> None:
        self._owner = owner
        self._device = device
        self.address = address
        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype)

    @classmethod
    def of(
        cls, value: ort.OrtValue, device: Device, shape: Sequence[int], dtype: npt.DTypeLike
    ) -> DeviceArray:
        """An array in the memory of `value`, whatever its own shape and type."""
        return cls(value, value.data_ptr(), device, shape, dtype)

    def bind(
        self, bind: Any, name: str, shape: Sequence[int] | None = None, start: int = 0
    ) -> None:
        """Bind `shape` elements of it, from element number `start` on; all if no shape is given.

        Args:
            bind: `bind_input` or `bind_output` of an `onnxruntime.IOBinding`.
            name: of the session's input or output.
            shape: as the session shall see it.
            start: elements before it.
        """
        address = self.address + start * self.dtype.itemsize
        wanted = self.shape if shape is None else tuple(shape)
        bind(name, self._device.kind, self._device.index, self.dtype.type, wanted, address)
