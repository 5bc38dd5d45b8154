"""Caches and states of all rows on a device, and the graphs that move rows.

Arrays stay where they were allocated, since captured CUDA graphs contain addresses. Small graphs of
the bundle (`export.cache_graphs`) move rows, on a GPU and, in tests, on a CPU. They are launched
and not waited for; their inputs go through the staging of the step.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from model.bundle.bundle import Bundle
from model.bundle.sessions import SessionSettings, launch_options, open_session
from service.domain.plan import EncodeItem, Int64, RowCopy
from service.runtime.cpu.kv_cache import CacheShape
from service.runtime.cuda.array import DeviceArray
from service.runtime.cuda.staging import Staging
from service.runtime.cuda.stream import CudaStream

Array = npt.NDArray[Any]

STATES: tuple[tuple[str, type[np.generic]], ...] = (
    ("token_ids", np.int64),
    ("positions", np.int32),
    ("running", np.int32),
    ("source_lengths", np.int32),
)
"""The inputs of a row besides its caches, in the order of `DeviceCaches.set_rows`."""


MAX_COPIED = 2**26
"""Most bytes copied at once: the temporary copy between reading and writing has the same size."""


_MAX_ARRAYS = 32
"""Most arrays that ONNX Runtime concatenates on a GPU without pinned memory for the kernel's
arguments. It would never free that memory after a run that it does not wait for."""


_Span = tuple[int, int, int, int]
"""Source row, target row, first position, and the position after the last."""


class DeviceCaches:
    """The caches and states of all rows.

    Attributes:
        shape: shape of the caches.
        past: [2L, rows, H, target, Dh], key and value of self-attention of each layer in turn; of
            an SSRU decoder [L, rows, D], the state vector of each layer.
        cross_attention: [2L, rows, H, source, Dh], in the same order.
        cross_last: [2L, rows, 1, D], in the same order: `cross_attention` at each row's last
            position.
        states: arrays [rows], by the names of `STATES`.
    """

    def __init__(
        self, bundle: Bundle, settings: SessionSettings, shape: CacheShape, stream: CudaStream
    ) -> None:
        self.shape = shape
        self._kept = bundle.config.num_memory_rows

        def zeros(*of: int) -> DeviceArray:
            return stream.zeros(of, shape.dtype)

        def graph(name: str) -> ort.InferenceSession:
            return open_session(bundle, bundle.graph_path(name), settings)

        arrays, rows, heads = 2 * shape.num_layers, shape.max_rows, shape.num_heads
        if shape.is_recurrent:
            self.past = zeros(shape.num_layers, rows, heads * shape.head_dim)
        else:
            self.past = zeros(arrays, rows, heads, shape.max_target, shape.head_dim)
        self.cross_attention = zeros(arrays, rows, heads, shape.max_source, shape.head_dim)
        self.cross_last = zeros(arrays, rows, 1, heads * shape.head_dim)
        self.states = {name: stream.zeros([rows], dtype) for name, dtype in STATES}
        self._set = _Graph(graph("set_rows"), settings)
        self._copy = _Graph(graph("copy_rows"), settings)
        waits = settings.waits or arrays > _MAX_ARRAYS
        self._store = _Graph(graph("store_sources"), dataclasses.replace(settings, waits=waits))
        for name, state in self.states.items():
            self._set.bind_both(state, state.shape, name, f"set_{name}")
        for cache, name, output in (
            (self.cross_attention, "cross", "stored"),
            (self.cross_last, "cross_last", "stored_last"),
        ):
            self._store.bind_both(cache, self._as_table(cache), name, output)
        self._store.feed_once(
            cross_offsets=self._offsets(arrays, rows, shape.max_source),
            cross_last_offsets=self._offsets(arrays, rows, 1),
        )

    def set_rows(self, rows: Int64, values: Int64, staging: Staging) -> None:
        """Set the states of `rows` [m] to `values` [4, m], in the order of `STATES`."""
        self._set.run(staging, rows=rows, values=values)

    def copy_rows(self, copies: Sequence[RowCopy], source_lengths: Array, staging: Staging) -> None:
        """Carry out `copies` of the caches as if all at once.

        Args:
            copies: rows and positions to copy.
            source_lengths: [rows], lengths of the sources in the rows before the copies.
            staging: staging memory of the step.
        """
        if self.shape.is_recurrent:  # the vector is of all positions
            spans = [(c.source, c.target, 0, 1) for c in copies]
        else:
            spans = [(c.source, c.target, c.start, c.stop) for c in copies]
        self._copy_vectors(self.past, spans, staging)
        crossing = [(c.source, c.target) for c in copies if c.cross]
        if crossing:
            spans = [(s, t, 0, int(source_lengths[s])) for s, t in crossing]
            self._copy_vectors(self.cross_attention, spans, staging)
            self._copy_vectors(self.cross_last, [(s, t, 0, 1) for s, t in crossing], staging)

    def store(
        self, items: Sequence[EncodeItem], encoded: Mapping[str, ort.OrtValue], staging: Staging
    ) -> None:
        """Write the encoder's outputs for a batch into the rows of its items.

        Args:
            items: the sources, in the order of the batch.
            encoded: the encoder's outputs, key_0, value_0, key_1 ...: [B, H, S, Dh] on the device.
            staging: staging memory of the step.
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
            encoded_offsets=self._offsets(len(encoded), batch, width),
            sources=np.concatenate(sources),
            targets=np.concatenate(targets),
            last_sources=np.array(last_sources, np.int64),
            last_targets=np.array(last_targets, np.int64),
        )

    def _copy_vectors(self, cache: DeviceArray, spans: Sequence[_Span], staging: Staging) -> None:
        """Copy spans of rows of `cache` as if all at once."""
        spans = [span for span in spans if span[2] < span[3]]
        if not spans:
            return
        self._copy.bind_both(cache, self._as_table(cache), "table", "copied")
        # A vector moves to the same position of another row, so a cycle has only one position.
        slices = cache.shape[0] * self.shape.num_heads
        most = MAX_COPIED // (slices * self.shape.head_dim * self.shape.item_size)
        width = max(1, most // len(spans))
        end = max(stop for _, _, _, stop in spans)
        for first in range(min(start for _, _, start, _ in spans), end, width):
            self._copy_positions(cache, range(first, first + width), spans, staging)

    def _copy_positions(
        self, cache: DeviceArray, positions: range, spans: Sequence[_Span], staging: Staging
    ) -> None:
        arrays, rows = cache.shape[:2]
        row_size = math.prod(cache.shape[2:]) // self.shape.head_dim
        sources, targets = [], []
        for source, target, start, stop in spans:
            moved = np.arange(max(start, positions.start), min(stop, positions.stop))
            sources.append(source * row_size + moved)
            targets.append(target * row_size + moved)
        self._copy.run(
            staging,
            offsets=self._offsets(arrays, rows, row_size // self.shape.num_heads),
            sources=np.concatenate(sources),
            targets=np.concatenate(targets),
        )

    def _offsets(self, arrays: int, rows: int, length: int) -> Int64:
        """Start of each slice (array and head) of a cache [arrays, rows, H, length, Dh]."""
        heads = self.shape.num_heads
        starts = np.arange(arrays, dtype=np.int64)[:, None] * (rows * heads * length)
        return (starts + np.arange(heads) * length).ravel()

    def _as_table(self, cache: DeviceArray) -> tuple[int, int]:
        return math.prod(cache.shape) // self.shape.head_dim, self.shape.head_dim


class _Graph:
    """A session with one set of bindings, most of which stay from run to run.

    Args:
        session: session of the graph.
        settings: settings of the session.
    """

    def __init__(self, session: ort.InferenceSession, settings: SessionSettings) -> None:
        self._session = session
        self._io = session.io_binding()
        self._options = launch_options(settings)

    def bind(self, name: str, value: ort.OrtValue) -> None:
        self._io.bind_ortvalue_input(name, value)

    def bind_both(
        self, array: DeviceArray, shape: Sequence[int], input_name: str, output_name: str
    ) -> None:
        """Bind an array as input and output, so that the output overwrites the input."""
        array.bind(self._io.bind_input, input_name, shape)
        array.bind(self._io.bind_output, output_name, shape)

    def feed_once(self, **arrays: Array) -> None:
        """Set inputs that stay. ONNX Runtime copies them to the device and waits."""
        for name, array in arrays.items():
            self._io.bind_cpu_input(name, array)

    def run(self, staging: Staging, **arrays: Array) -> None:
        """Run the graph with these inputs."""
        for name, array in zip(arrays, staging.upload(*arrays.values()), strict=True):
            array.bind(self._io.bind_input, name)
        self._session.run_with_iobinding(self._io, self._options)
