"""Encoder batches: sources of similar lengths, padded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from model.bundle.padding import pad_right

# Measured on a CPU: batches of more than about 500 tokens are no faster, and their activations
# exceed the processor's cache.
_MAX_ENCODE_TOKENS = 512
_MAX_ENCODE_PADDING = 64


def similar_lengths(
    lengths: Sequence[int],
    max_tokens: int = _MAX_ENCODE_TOKENS,
    max_padding: int = _MAX_ENCODE_PADDING,
) -> Iterator[list[int]]:
    """Batches of source indices with little padding, shortest sources first.

    Args:
        lengths: lengths of the sources in tokens.
        max_tokens: most tokens in a batch, padding included; a longer source has its own batch.
        max_padding: most padding tokens in a batch, in addition to half of its tokens.
    """
    batch: list[int] = []
    num_tokens = 0
    for number in sorted(range(len(lengths)), key=lengths.__getitem__):
        length = lengths[number]
        num_padded = (len(batch) + 1) * length
        if batch and num_padded > min(max_tokens, 1.5 * (num_tokens + length) + max_padding):
            yield batch
            batch, num_tokens = [], 0
        batch.append(number)
        num_tokens += length
    if batch:
        yield batch


def padded(
    sources: Sequence[Sequence[int]], pad_id: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """The encoder's inputs: source_ids [B, S], padded to the longest, and source_lengths [B]."""
    lengths = np.array([len(source) for source in sources], np.int32)
    return pad_right(sources, pad_id), lengths
