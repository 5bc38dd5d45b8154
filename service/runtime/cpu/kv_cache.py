"""The KV cache of a CPU runner: attention keys and values, with a row for each hypothesis.

An SSRU decoder has a state vector for each layer and row in place of self-attention's keys and
values.

Arrays are allocated once, for the most rows and the longest texts. They are anonymous memory maps:
the kernel commits a page when it is first touched, so that a row takes only the memory that it uses
and the computed size is an upper bound.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from model.bundle.bundle import Bundle
from service.domain.plan import EncodedSource, RowCopy, RunnerLimits
from service.runtime.cpu.row_lists import RowLists

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class CacheShape:
    """Sizes of a `KVCache`.

    Attributes:
        num_layers: number of decoder layers.
        num_heads, head_dim: number and size of attention heads; the product is the model's width D.
        max_rows: number of rows.
        max_source: number of source positions of a row that the decoder sees
            (`ModelConfig.num_memory_rows`).
        max_target: number of target positions of a row.
        dtype: element type of activations, "float32" or "float16".
        cache_dtype: element type of keys and values, the same or "int8".
        is_recurrent: whether the decoder is an SSRU.
    """

    num_layers: int
    num_heads: int
    head_dim: int
    max_rows: int
    max_source: int
    max_target: int
    dtype: str = "float32"
    cache_dtype: str = "float32"
    is_recurrent: bool = False

    @property
    def item_size(self) -> int:
        """Size of an activation in bytes."""
        return np.dtype(self.dtype).itemsize

    @property
    def past_names(self) -> list[str]:
        """Names of the arrays that each step reads and writes, in the graphs: key_0 or state_0."""
        if self.is_recurrent:
            return [f"state_{layer}" for layer in range(self.num_layers)]
        return cache_names(self.num_layers)

    @property
    def num_bytes(self) -> int:
        """Bytes of all arrays together."""
        positions = self.max_source + (0 if self.is_recurrent else self.max_target)
        cached = 2 * positions * np.dtype(self.cache_dtype).itemsize
        others = (2 + self.is_recurrent) * self.item_size  # `cross_last` and states
        elements = self.num_layers * self.max_rows * self.num_heads * self.head_dim
        return elements * (cached + others) + 4 * self.max_rows


def limits_of(bundle: Bundle, max_rows: int, max_paused_rows: int = 0) -> RunnerLimits:
    """The limits of a runner of the bundle."""
    return RunnerLimits(
        max_rows=max_rows,
        max_source_positions=bundle.max_source_positions,
        max_target_positions=bundle.max_target_positions,
        top_k=bundle.top_k,
        vocab_size=bundle.config.vocab_size,
        max_paused_rows=max_paused_rows,
    )


def cache_shape(bundle: Bundle, limits: RunnerLimits) -> CacheShape:
    """The shape of a runner's caches."""
    return CacheShape(
        num_layers=bundle.config.num_decoder_layers,
        num_heads=bundle.config.num_heads,
        head_dim=bundle.config.head_dim,
        max_rows=limits.num_rows,
        max_source=bundle.config.num_memory_rows(limits.max_source_positions),
        max_target=limits.max_target_positions,
        dtype=bundle.dtype,
        cache_dtype=bundle.cache_dtype,
        is_recurrent=bundle.config.decoder == "ssru",
    )


def cache_names(num_layers: int) -> list[str]:
    """Names of the caches in the graphs, in the order of `KVCache`: key_0, value_0, key_1 ..."""
    return [f"{kind}_{layer}" for layer in range(num_layers) for kind in ("key", "value")]


class KVCache:
    """Self- and cross-attention keys and values of every decoder layer.

    Attributes:
        self_attention: [max_rows, H, max_target, Dh] for key and value of each layer in turn; none
            in an SSRU decoder.
        states: [max_rows, D] for each layer of an SSRU decoder, zero before a row's first step.
        cross_attention: [max_rows, H, max_source, Dh], in the same order.
        cross_last: [max_rows, 1, D], in the same order: `cross_attention` at each row's last
            position. Where that has int8, these are the same integers stored as float32.
        source_lengths: int32 [max_rows], length of each row's source; 1 if it never had one.
        lists: shortlists of the rows; None for a runner without.
    """

    lists: RowLists | None = None

    def __init__(self, shape: CacheShape) -> None:
        heads, head_dim, rows = shape.num_heads, shape.head_dim, shape.max_rows
        self._past_names = shape.past_names

        def allocate(dtype: str, *row_shape: int, a_layer: int = 2) -> list[Array]:
            arrays = range(a_layer * shape.num_layers)
            return [_untouched_zeros((rows, *row_shape), dtype) for _ in arrays]

        self.self_attention: list[Array] = []
        self.states: list[Array] = []
        if shape.is_recurrent:
            self.states = allocate(shape.dtype, heads * head_dim, a_layer=1)
        else:
            self.self_attention = allocate(shape.cache_dtype, heads, shape.max_target, head_dim)
        self.cross_attention = allocate(shape.cache_dtype, heads, shape.max_source, head_dim)
        self.cross_last = allocate(shape.dtype, 1, heads * head_dim)
        self.source_lengths = np.ones(rows, np.int32)

    @property
    def past(self) -> dict[str, Array]:
        """Arrays that each step reads and writes, by name in the graphs: key_0 or state_0, say."""
        return dict(zip(self._past_names, self.states or self.self_attention, strict=True))

    def write_source(self, rows: Sequence[int], encoded: EncodedSource, length: int) -> None:
        """Store an encoded source in rows that are about to begin.

        Args:
            rows: rows to store it in; several for a beam.
            encoded: the encoded source.
            length: number of its positions; padding follows after them and is left out.
        """
        arrays = zip(self.cross_attention, self.cross_last, encoded.keys_values, strict=True)
        for cross, last, batch in arrays:
            source = batch[encoded.index, :, :length]
            for row in rows:
                cross[row, :, :length] = source
                last[row, 0] = source[:, -1].ravel()
        self.source_lengths[list(rows)] = length
        for state in self.states:
            state[list(rows)] = 0.0

    def copy_rows(self, copies: Sequence[RowCopy]) -> None:
        """Carry out `copies` as if all at once: everything is read before anything is written."""
        overlap = not {c.source for c in copies}.isdisjoint(c.target for c in copies)
        for array in self.self_attention:
            spans = [array[c.source, :, c.start : c.stop] for c in copies]
            if overlap:
                spans = [span.copy() for span in spans]
            for copy, span in zip(copies, spans, strict=True):
                array[copy.target, :, copy.start : copy.stop] = span
        for state in self.states:  # of all positions up to `stop`
            state[[c.target for c in copies]] = state[[c.source for c in copies]]
        crossing = [copy for copy in copies if copy.cross]
        if crossing:
            sources, targets = [c.source for c in crossing], [c.target for c in crossing]
            self._copy_cross(sources, targets)
            if self.lists is not None:
                self.lists.copy(sources, targets)

    def _copy_cross(self, sources: list[int], targets: list[int]) -> None:
        lengths = self.source_lengths[sources].tolist()
        for array in self.cross_attention:
            spans = [array[s, :, :n].copy() for s, n in zip(sources, lengths, strict=True)]
            for target, length, span in zip(targets, lengths, spans, strict=True):
                array[target, :, :length] = span
        for array in (*self.cross_last, self.source_lengths):
            array[targets] = array[sources]  # the fancy index on the right makes a copy first


def _untouched_zeros(shape: tuple[int, ...], dtype: str) -> Array:
    # `numpy.zeros` asks for huge pages, and the first token of a row would commit megabytes.
    num_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    memory = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, dtype=dtype).reshape(shape)
