"""The memory of the running rows: attention keys and values, one row a hypothesis.

Arrays are allocated once, for the most rows and the longest texts. They are anonymous memory
maps: the kernel commits a page when it is first touched, so that a row costs what it uses, and
the computed size is an upper bound that is never exceeded.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from model.config import ModelConfig
from service.plan import RowCopy

Array = npt.NDArray[Any]


class KVCache:
    """Self- and cross-attention keys and values of every decoder layer.

    Attributes:
        self_attention: [max_rows, H, max_target, Dh] for key and value of each layer in turn.
        cross_attention: [max_rows, H, max_source, Dh], likewise.
        cross_last: [max_rows, 1, D], cross-attention at each row's last source position.
        source_lengths: int32 [max_rows], 1 for a row that has none yet.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        max_rows: int,
        max_source: int,
        max_target: int,
        dtype: npt.DTypeLike = np.float32,
    ) -> None:
        heads, head_dim = config.num_heads, config.head_dim
        arrays = range(2 * config.num_decoder_layers)

        def allocate(*shape: int) -> list[Array]:
            return [_untouched_zeros((max_rows, *shape), dtype) for _ in arrays]

        self.self_attention = allocate(heads, max_target, head_dim)
        self.cross_attention = allocate(heads, max_source, head_dim)
        self.cross_last = allocate(1, config.d_model)
        self.source_lengths = np.ones(max_rows, np.int32)

    @property
    def num_bytes(self) -> int:
        """The size of all arrays in bytes."""
        arrays = (*self.self_attention, *self.cross_attention, *self.cross_last)
        return sum(array.nbytes for array in arrays) + self.source_lengths.nbytes

    @staticmethod
    def bytes_needed(
        config: ModelConfig,
        *,
        max_rows: int,
        max_source: int,
        max_target: int,
        dtype: npt.DTypeLike = np.float32,
    ) -> int:
        """The size of all arrays in bytes, known before any is allocated."""
        positions = max_source + max_target + 1
        values = 2 * config.num_decoder_layers * max_rows * positions * config.d_model
        return values * np.dtype(dtype).itemsize + max_rows * np.dtype(np.int32).itemsize

    def write_source(
        self, row: int, keys_values: Sequence[Array], batch_row: int, length: int
    ) -> None:
        """Store an encoded source.

        Args:
            row: where.
            keys_values: the encoder's outputs [B, H, S, Dh], key and value of each layer in turn.
            batch_row: which of the B.
            length: its tokens; what lies behind them is padding.
        """
        for cross, last, encoded in zip(
            self.cross_attention, self.cross_last, keys_values, strict=True
        ):
            cross[row, :, :length] = encoded[batch_row, :, :length]
            last[row, 0] = encoded[batch_row, :, length - 1].reshape(-1)
        self.source_lengths[row] = length

    def copy_rows(self, copies: Sequence[RowCopy]) -> None:
        """Carry out `copies` as if all at once: everything is read before anything is written."""
        lengths = self.source_lengths.copy()
        crossing = [copy for copy in copies if copy.cross]
        for array in self.self_attention:
            spans = [array[c.source, :, c.start : c.stop].copy() for c in copies]
            for copy, span in zip(copies, spans, strict=True):
                array[copy.target, :, copy.start : copy.stop] = span
        for array in self.cross_attention:
            spans = [array[c.source, :, : lengths[c.source]].copy() for c in crossing]
            for copy, span in zip(crossing, spans, strict=True):
                array[copy.target, :, : lengths[copy.source]] = span
        if crossing:
            sources = np.array([copy.source for copy in crossing])
            targets = np.array([copy.target for copy in crossing])
            for array in (*self.cross_last, self.source_lengths):
                array[targets] = array[sources]


def _untouched_zeros(shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
    # Not numpy.zeros: it asks for huge pages, and then the first token of a row commits megabytes.
    num_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    memory = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, dtype=dtype).reshape(shape)
