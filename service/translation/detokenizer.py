"""Token ids to text while they come: never half a character, and never a word of it different.

SentencePiece decodes token by token, with two exceptions: white space at the very beginning of a
text is dropped, and a run of byte pieces is read as UTF-8 only when it is complete.
"""

from __future__ import annotations

from collections.abc import Sequence

from model.tokenizer import Tokenizer


class Detokenizer:
    """Makes a stream for each text.

    Args:
        tokenizer: decodes ids.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        pieces = {tokenizer.piece_to_id(f"<0x{byte:02X}>"): byte for byte in range(256)}
        pieces.pop(tokenizer.unk_id, None)  # a vocabulary without byte pieces
        self._bytes = pieces

    def stream(self) -> TextStream:
        """For the tokens of one text."""
        return TextStream(self._tokenizer, self._bytes)


class TextStream:
    """The text of one sequence of tokens, piece by piece.

    Everything that `add` and `finish` returned, joined, is `tokenizer.decode` of all the ids.
    """

    def __init__(self, tokenizer: Tokenizer, bytes_of_ids: dict[int, int]) -> None:
        self._tokenizer = tokenizer
        self._bytes_of_ids = bytes_of_ids
        # Tokens whose text was returned last, decoded once more before the new ones so that these
        # do not look like the beginning of a text.
        self._context: list[int] = []
        self._context_length = 0
        self._pending: list[int] = []

    def add(self, token_ids: Sequence[int]) -> str:
        """The text that is certain now that these tokens came; often "" or several words."""
        self._pending += token_ids
        if self._ends_inside_character():
            return ""
        return self._flush()

    def finish(self) -> str:
        """The rest: what was held back because it might have gone on."""
        return self._flush()

    def _ends_inside_character(self) -> bool:
        run = []
        for token_id in reversed(self._pending):
            if token_id not in self._bytes_of_ids:
                break
            run.append(self._bytes_of_ids[token_id])
        try:
            bytes(reversed(run)).decode("utf-8")
        except UnicodeDecodeError:
            return True
        return False

    def _flush(self) -> str:
        text = self._tokenizer.decode([*self._context, *self._pending])
        delta = text[self._context_length :]
        alone = self._tokenizer.decode(self._pending)
        if alone:
            self._context, self._context_length = self._pending, len(alone)
        else:
            # All white space, or nothing: alone it would not hold the beginning of the text.
            self._context += self._pending
            self._context_length = len(text)
        self._pending = []
        return delta
