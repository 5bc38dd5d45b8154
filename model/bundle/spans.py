"""Places in a text. Apart from the tokenizer, which needs NumPy and SentencePiece."""

from __future__ import annotations

from typing import NamedTuple


class Span(NamedTuple):
    """The position of a token in a text: characters from `start` up to, not including, `end`."""

    start: int
    end: int
