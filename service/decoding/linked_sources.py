"""Hard alignments: the source token that each token of a target attends to most."""

from __future__ import annotations

import numpy as np

from service.domain.plan import Float32, Int32


def linked_sources(attention: Float32, num_tokens: int) -> Int32:
    """The source token of the largest weight for each of a target's first `num_tokens`.

    EOS is no candidate, since attention rests there when it has nothing better to do (as in
    fairseq's alignments of Garg et al., 2019). The first of equals; none if the source is empty.

    Args:
        attention: [T, S] of both sides' tokens, the source's EOS included.
        num_tokens: the target's without EOS.
    """
    words = attention[:num_tokens, :-1]
    if not words.size:
        return np.zeros(0, np.int32)
    best: Int32 = words.argmax(axis=1).astype(np.int32)
    return best


def without_hidden(attention: Float32, num_target: int, num_source: int) -> Float32:
    """The weights without those of the first tokens of both sides, which name languages.

    The decoder looks at a source's language when it has nothing better to do. The other weights of
    a token are scaled, so that they sum to one again.

    Args:
        attention: [T, S].
        num_target: rows to leave out.
        num_source: columns to leave out.
    """
    if not num_target and not num_source:
        return attention
    rest = attention[num_target:, num_source:]
    sums = rest.sum(axis=1, keepdims=True)
    shown: Float32 = rest / np.maximum(sums, np.finfo(np.float32).tiny)
    return shown
