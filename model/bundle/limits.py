"""The length limit of translations. Free of torch, so that the server can use it.

Training-time validation, the reference search and the serving engine all ask here: a different
bound in one of them would make outputs differ that must be equal.
"""

from __future__ import annotations


def default_max_new_tokens(num_source_tokens: int, max_positions: int) -> int:
    """The largest number of target tokens to generate when the caller sets none.

    Twice the source length plus 50 in the spirit of section 6.1 of "Attention Is All You Need"
    (input length + 50), with room for languages that need more tokens a word.

    Args:
        num_source_tokens: length of the source sequence in tokens, its end-of-sentence included.
        max_positions: target positions that the model has.

    Returns:
        A number of tokens; the end-of-sentence token counts as one of them.
    """
    return min(max_positions, 2 * num_source_tokens + 50)
