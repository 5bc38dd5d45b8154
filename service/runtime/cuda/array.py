"""Arrays on a device, bound to sessions by address."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from model.bundle.sessions import Device


class DeviceArray:
    """An array on a device, of which parts can be bound to a session. Its memory is a stream's.

    Args:
        address: of its first element.
        device: where it is.
        shape, dtype: of all of it.

    Attributes:
        address, shape, dtype: as given.
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
