"""Arrays on a device, bound to sessions by address."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from model.bundle.sessions import Device


class DeviceArray:
    """An array on a device; parts of it can be bound to a session. A stream owns its memory.

    Args:
        address: address of its first element.
        device: device of its memory.
        shape, dtype: shape and element type of the whole array.
    """

    def __init__(
        self, address: int, device: Device, shape: Sequence[int], dtype: npt.DTypeLike
    ) -> None:
        self._device = device
        self.address = address
        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype)

    def bind(
        self, bind: Any, name: str, shape: Sequence[int] | None = None, start: int = 0
    ) -> None:
        """Bind a part of the array as an input or output of a session.

        Args:
            bind: `bind_input` or `bind_output` of an `onnxruntime.IOBinding`.
            name: name of the session's input or output.
            shape: shape of the part for the session; None for the whole array.
            start: number of elements before the part.
        """
        address = self.address + start * self.dtype.itemsize
        wanted = self.shape if shape is None else tuple(shape)
        bind(name, self._device.kind, self._device.index, self.dtype.type, wanted, address)
