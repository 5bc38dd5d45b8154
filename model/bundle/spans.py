"""Places in a text. Apart from the tokenizer, which needs NumPy and SentencePiece."""

from __future__ import annotations

from typing import NamedTuple


class Span(NamedTuple):
    """Where a token stands in a text: characters `start` up to and not including `end`."""

    start: int
    end: int
