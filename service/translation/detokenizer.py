"""Incremental detokenization: a stream has the same text as all its tokens, in whole characters.

SentencePiece decodes token by token, with two exceptions: white space at the very beginning of a
text is dropped, and a run of byte pieces is read as UTF-8 only when it is complete.
"""

from __future__ import annotations

from collections.abc import Sequence

from model.bundle.tokenizer import Tokenizer


class Detokenizer:
    """Turns one sequence of tokens into text, incrementally.

    The results of `add` and `finish`, joined, are `tokenizer.decode` of all token ids.

    Args:
        tokenizer: decodes token ids.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        # The last decoded tokens. They are decoded again together with new tokens, which would
        # otherwise be decoded as the beginning of a text.
        self._context: list[int] = []
        self._context_length = 0
        self._pending: list[int] = []

    def add(self, token_ids: Sequence[int]) -> str:
        """Add tokens, and return the text that is now final; often "" or several words."""
        self._pending += token_ids
        if self._tokenizer.is_unfinished(self._pending):
            return ""
        return self._flush()

    def finish(self) -> str:
        """The rest of the text, which has been incomplete."""
        return self._flush()

    def _flush(self) -> str:
        text = self._tokenizer.decode([*self._context, *self._pending])
        delta = text[self._context_length :]
        alone = self._tokenizer.decode(self._pending)
        if alone:
            self._context, self._context_length = self._pending, len(alone)
        else:
            # White space or nothing, which alone does not count as the beginning of the text.
            self._context += self._pending
            self._context_length = len(text)
        self._pending = []
        return delta
