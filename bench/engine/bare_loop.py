"""A loop that only runs a bundle's decoder-step graph: an upper bound for the engine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from model.bundle.bundle import Bundle
from model.bundle.sessions import SessionSettings, open_session

Array = npt.NDArray[Any]

_TYPES: dict[str, type[np.generic]] = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(int8)": np.int8,
}


class BareLoop:
    """The graph, bound to arrays as the engine's runner binds it.

    Args:
        bundle: bundle with the graph.
        num_rows: rows of each step.
        source_length: tokens of each row's source.
        max_source, max_target: positions that the caches have room for.

    Attributes:
        arrays: inputs and outputs by name; the caches are both.
    """

    def __init__(
        self, bundle: Bundle, num_rows: int, source_length: int, max_source: int, max_target: int
    ) -> None:
        self._session = open_session(bundle, bundle.decoder_step_path, SessionSettings())
        self._sizes = {
            "rows": num_rows,
            "source": max_source,
            "target": max_target,
            "adjustments": 0,
            "k": 1,
        }
        values = {
            "source_lengths": source_length,
            "total_sequence_length": max_target,
            "source_buffer_length": max_source,
            "token_ids": bundle.config.bos_id,
            "top_k": 1,
            "top_groups": 1,
            "running": 1,
        }
        self.arrays = {
            item.name: self._array(item, values.get(item.name, 0))
            for item in self._session.get_inputs()
        }
        # Inputs need memory of their own: untouched pages would all be one page of zeros,
        # which never leaves the processor's cache.
        draw = np.random.default_rng(0)
        for name, array in self.arrays.items():
            if name.startswith("cross_"):
                valid = array[..., :source_length, :] if array.ndim == 4 else array
                valid[...] = draw.standard_normal(valid.shape)
        self._io = self._session.io_binding()
        for name, array in self.arrays.items():
            self._bind(self._io.bind_input, name, array)
        for item in self._session.get_outputs():
            # The caches are written in place.
            cache = item.name.removeprefix("present_")
            cache = cache if cache.startswith("cross_") else f"past_{cache}"
            array = self.arrays[cache] if cache in self.arrays else self._array(item, 0)
            self.arrays[item.name] = array
            self._bind(self._io.bind_output, item.name, array)

    def run(self, positions: Sequence[int]) -> float:
        """Step once at each of the positions; returns the seconds for all."""
        where = self.arrays["positions"]
        started = time.perf_counter()
        for position in positions:
            where[:] = position
            self._session.run_with_iobinding(self._io)
        return time.perf_counter() - started

    def _array(self, item: Any, value: int) -> Array:
        shape = [size if isinstance(size, int) else self._sizes[size] for size in item.shape]
        array = np.zeros(shape, _TYPES[item.type])
        if value:
            array.fill(value)
        return array

    @staticmethod
    def _bind(bind: Any, name: str, array: Array) -> None:
        bind(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
