"""Hard alignments: the source token that each token of a target attends to most."""

from __future__ import annotations

import numpy as np

from service.domain.plan import Float32, Int32


def linked_sources(attention: Float32, num_tokens: int) -> Int32:
    """The source token with the largest weight for each of a target's first `num_tokens`.

    EOS is excluded, since attention rests there when no other token is relevant (as in fairseq's
    alignments, Garg et al., 2019). Of equal weights, the first counts. The result is empty if the
    source is empty.

    Args:
        attention: [T, S] weights of both sides' tokens, with the source's EOS.
        num_tokens: number of target tokens without EOS.
    """
    words = attention[:num_tokens, :-1]
    if not words.size:
        return np.zeros(0, np.int32)
    best: Int32 = words.argmax(axis=1).astype(np.int32)
    return best


def without_hidden(attention: Float32, num_target: int, num_source: int) -> Float32:
    """The weights without the language tokens at the beginning of both sides.

    The decoder attends to a source's language token when no other token is relevant. The other
    weights of a token are scaled, so that they sum to one again.

    Args:
        attention: [T, S] attention weights.
        num_target: number of rows to leave out.
        num_source: number of columns to leave out.
    """
    if not num_target and not num_source:
        return attention
    rest = attention[num_target:, num_source:]
    sums = rest.sum(axis=1, keepdims=True)
    shown: Float32 = rest / np.maximum(sums, np.finfo(np.float32).tiny)
    return shown
