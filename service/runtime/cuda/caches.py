"""Caches and states of all rows on a device, and the graphs that move rows.

Arrays stay where they were allocated, since captured CUDA graphs hold addresses. Rows are moved by
small graphs of the bundle (`export.cache_graphs`), on a GPU and in the tests on a CPU alike. They
are launched and not waited for; their inputs go through the staging of the step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from model.bundle import Bundle
from model.sessions import Device, SessionSettings, launch_options, open_session
from service.runtime.cpu.kv_cache import CacheShape
from service.runtime.cuda.array import DeviceArray
from service.runtime.cuda.staging import Staging
from service.runtime.plan import EncodeItem, Int64, RowCopy

Array = npt.NDArray[Any]

STATES: tuple[tuple[str, type[np.generic]], ...] = (
    ("token_ids", np.int64),
    ("positions", np.int32),
    ("running", np.int32),
    ("source_lengths", np.int32),
)
"""The inputs of a row other than its caches, in the order of `DeviceCaches.set_rows`."""


_BLANK_SIZES = {"tensor(int64)": 8, "tensor(float)": 4, "tensor(float16)": 2}
_MAX_BLANK = 2**31 - 1
"""Elements that ONNX Runtime can fill at once on a GPU, where it counts in 32 bits."""


_MAX_ARRAYS = 32
"""Arrays that ONNX Runtime concatenates on a GPU without pinned memory for the kernel's arguments.
Of a run that it does not wait for, it would never free that memory."""


def max_cache_rows(one: CacheShape) -> int:
    """The rows for which caches can be allocated, however much memory there is.

    Args:
        one: the caches of a single row.
    """
    longer = max(one.max_source, one.max_target)
    row_bytes = 2 * one.num_layers * one.num_heads * one.head_dim * longer * one.item_size
    return _MAX_BLANK * max(_BLANK_SIZES.values()) // row_bytes


class DeviceCaches:
    """The caches and states of all rows.

    Attributes:
        shape: of the caches.
        self_attention: [2L, rows, H, target, Dh], key and value of each layer in turn.
        cross_attention: [2L, rows, H, source, Dh], likewise.
        cross_last: [2L, rows, 1, D], likewise: `cross_attention` at each row's last position.
        states: [rows] each, by the names of `STATES`.
    """

    def __init__(self, bundle: Bundle, settings: SessionSettings, shape: CacheShape) -> None:
        self.shape = shape
        self._kept = bundle.config.num_memory_rows
        self._device = Device.parse(settings.device)

        def graph(name: str) -> ort.InferenceSession:
            return open_session(bundle, bundle.graph_path(name), settings)

        self._blank = graph("blank")
        arrays, rows, heads = 2 * shape.num_layers, shape.max_rows, shape.num_heads
        self.self_attention = self._zeros(arrays, rows, heads, shape.max_target, shape.head_dim)
        self.cross_attention = self._zeros(arrays, rows, heads, shape.max_source, shape.head_dim)
        self.cross_last = self._zeros(arrays, rows, 1, heads * shape.head_dim)
        self.states = {name: self._upload(np.zeros(rows, dtype)) for name, dtype in STATES}
        self._set = _Graph(graph("set_rows"))
        self._copy = _Graph(graph("copy_rows"))
        self._store = _Graph(graph("store_sources"), waits=arrays > _MAX_ARRAYS)
        for name, state in self.states.items():
            self._set.bind_both(state, state.shape, name, f"set_{name}")
        for cache, name, output in (
            (self.cross_attention, "cross", "stored"),
            (self.cross_last, "cross_last", "stored_last"),
        ):
            self._store.bind_both(cache, self._as_table(cache), name, output)
        self._store.feed_once(
            cross_offsets=self._offsets(shape.max_source), cross_last_offsets=self._offsets(1)
        )

    @property
    def num_bytes(self) -> int:
        """Memory of the caches."""
        return self.shape.num_bytes

    def set_rows(self, rows: Int64, values: Int64, staging: Staging) -> None:
        """Set the states of `rows` [m] to `values` [4, m], in the order of `STATES`."""
        self._set.run(staging, rows=rows, values=values)

    def copy_rows(self, copies: Sequence[RowCopy], source_lengths: Array, staging: Staging) -> None:
        """Carry out `copies` of the caches as if all at once.

        Args:
            copies: rows and positions.
            source_lengths: [rows] of the sources in the rows, before the copies.
            staging: of the step.
        """
        spans = [(c.source, c.target, c.start, c.stop) for c in copies]
        self._copy_vectors(self.self_attention, self.shape.max_target, spans, staging)
        crossing = [(c.source, c.target) for c in copies if c.cross]
        if crossing:
            spans = [(s, t, 0, int(source_lengths[s])) for s, t in crossing]
            self._copy_vectors(self.cross_attention, self.shape.max_source, spans, staging)
            self._copy_vectors(self.cross_last, 1, [(s, t, 0, 1) for s, t in crossing], staging)

    def store(
        self, items: Sequence[EncodeItem], encoded: Mapping[str, ort.OrtValue], staging: Staging
    ) -> None:
        """Write the encoder's outputs for a batch into the rows of its items.

        Args:
            items: the sources, in the order of the batch.
            encoded: the encoder's outputs, key_0, value_0, key_1 ...: [B, H, S, Dh] on the device.
            staging: of the step.
        """
        width = next(iter(encoded.values())).shape()[2]
        heads, batch = self.shape.num_heads, len(items)
        sources, targets, last_sources, last_targets = [], [], [], []
        for number, item in enumerate(items):
            length = self._kept(len(item.source_ids))
            for row in item.rows:
                positions = np.arange(length)
                sources.append(number * heads * width + positions)
                targets.append(row * heads * self.shape.max_source + positions)
                last_sources.append(number * heads * width + length - 1)
                last_targets.append(row * heads)
        for name, value in encoded.items():
            self._store.bind(f"encoded_{name}", value)
        self._store.run(
            staging,
            encoded_offsets=self._offsets(width, rows=batch),
            sources=np.concatenate(sources),
            targets=np.concatenate(targets),
            last_sources=np.array(last_sources, np.int64),
            last_targets=np.array(last_targets, np.int64),
        )

    def _copy_vectors(
        self,
        cache: DeviceArray,
        length: int,
        spans: Sequence[tuple[int, int, int, int]],
        staging: Staging,
    ) -> None:
        """Copy spans (source, target, start, stop) in `cache`, of `length` positions a row."""
        row_size = self.shape.num_heads * length
        pairs = [(s * row_size + np.arange(a, b), t * row_size + np.arange(a, b))
                 for s, t, a, b in spans if a < b]  # fmt: skip
        if not pairs:
            return
        self._copy.bind_both(cache, self._as_table(cache), "table", "copied")
        self._copy.run(
            staging,
            offsets=self._offsets(length),
            sources=np.concatenate([source for source, _ in pairs]),
            targets=np.concatenate([target for _, target in pairs]),
        )

    def _offsets(self, length: int, rows: int | None = None) -> Int64:
        """Where each slice (array and head) of a cache of `length` positions a row begins."""
        heads = self.shape.num_heads
        arrays = np.arange(2 * self.shape.num_layers, dtype=np.int64)
        per_array = (self.shape.max_rows if rows is None else rows) * heads * length
        return (arrays[:, None] * per_array + np.arange(heads) * length).ravel()

    def _as_table(self, cache: DeviceArray) -> tuple[int, int]:
        return math.prod(cache.shape) // self.shape.head_dim, self.shape.head_dim

    def _zeros(self, *shape: int) -> DeviceArray:
        size = _BLANK_SIZES[self._blank.get_outputs()[0].type]
        count = -(-math.prod(shape) * self.shape.item_size // size)
        if count > _MAX_BLANK:
            raise MemoryError(f"a cache has at most {size * _MAX_BLANK:,} bytes")
        binding = self._blank.io_binding()
        binding.bind_cpu_input("count", np.array([count]))
        binding.bind_output("zeros", self._device.kind, self._device.index)
        self._blank.run_with_iobinding(binding)
        return DeviceArray.of(binding.get_outputs()[0], self._device, shape, self.shape.dtype)

    def _upload(self, array: Array) -> DeviceArray:
        value = ort.OrtValue.ortvalue_from_numpy(array, self._device.kind, self._device.index)
        return DeviceArray.of(value, self._device, array.shape, array.dtype)


class _Graph:
    """A session with one set of bindings, most of which stay from run to run.

    Args:
        session: of the graph.
        waits: whether to wait for each run.
    """

    def __init__(self, session: ort.InferenceSession, *, waits: bool = False) -> None:
        self._session = session
        self._io = session.io_binding()
        self._options = None if waits else launch_options()

    def bind(self, name: str, value: ort.OrtValue) -> None:
        self._io.bind_ortvalue_input(name, value)

    def bind_both(
        self, array: DeviceArray, shape: Sequence[int], input_name: str, output_name: str
    ) -> None:
        """Let the output be written over the input."""
        array.bind(self._io.bind_input, input_name, shape)
        array.bind(self._io.bind_output, output_name, shape)

    def feed_once(self, **arrays: Array) -> None:
        """Set inputs that stay. ONNX Runtime copies them to the device itself, and waits."""
        for name, array in arrays.items():
            self._io.bind_cpu_input(name, array)

    def run(self, staging: Staging, **arrays: Array) -> None:
        """Run it with these inputs."""
        for name, array in zip(arrays, staging.upload(*arrays.values()), strict=True):
            array.bind(self._io.bind_input, name)
        self._session.run_with_iobinding(self._io, self._options)
