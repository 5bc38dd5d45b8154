"""Segmenters cut a text into pieces and join pieces: SentencePiece, or a tokenizer.json.

BART has byte-level pieces, and NLLB and mBART-50 are also saved without their SentencePiece model:
what they have is a `tokenizer.json`. The package `tokenizers` runs it as in `transformers`. It is
an extra, since it brings a dozen packages with it. Free of torch.
"""

from __future__ import annotations

import bisect
import codecs
import itertools
import json
import re
from collections.abc import Sequence
from typing import Any, Protocol

import sentencepiece

from model.bundle.tokenizer import MissingPackageError, TokenizerError

# SentencePiece decodes it as a space only in pieces of its own model, of which a vocabulary has
# others too.
_SPACE = "\u2581"

Offsets = list[tuple[int, int]]


class Segmenter(Protocol):
    """Cuts texts of one language into pieces."""

    def pieces(self, text: str) -> list[str]:
        """The pieces of a text, which a vocabulary may lack."""
        ...

    def offsets(self, text: str) -> Offsets:
        """The span in `text` of each of `pieces(text)`, with white space before it."""
        ...

    def text(self, pieces: Sequence[str]) -> str:
        """The text of pieces."""
        ...

    def places(self, pieces: Sequence[str]) -> Offsets:
        """The span of each piece in `text(pieces)`."""
        ...

    def is_unfinished(self, pieces: Sequence[str]) -> bool:
        """Whether further pieces can change the text of these; pieces of bytes don't count."""
        ...


class SentencePieceSegmenter:
    """A SentencePiece model.

    Raises:
        TokenizerError: `model` is not a SentencePiece model.
    """

    def __init__(self, model: bytes) -> None:
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model)
        except RuntimeError as exc:
            raise TokenizerError("not a SentencePiece model") from exc

    def pieces(self, text: str) -> list[str]:
        """See `Segmenter`."""
        return list(self._processor.encode(text, out_type=str))

    def offsets(self, text: str) -> Offsets:
        """See `Segmenter`."""
        return list(self._processor.encode(text, return_type="offset_mapping")["offsets"])

    def text(self, pieces: Sequence[str]) -> str:
        """See `Segmenter`."""
        return str(self._processor.decode(list(pieces))).replace(_SPACE, " ")

    def places(self, pieces: Sequence[str]) -> Offsets:
        """See `Segmenter`."""
        return list(self._processor.decode(list(pieces), return_type="offset_mapping")["offsets"])

    def is_unfinished(self, pieces: Sequence[str]) -> bool:
        """Return False: `Tokenizer` handles pieces such as <0xC3>."""
        return False


class JsonSegmenter:
    """A `tokenizer.json`, with the decoder ByteLevel or Metaspace.

    Args:
        content: the file, as `plain_tokenizer` made it.

    Raises:
        MissingPackageError: the package is not installed.
        TokenizerError: the file can't be read.
    """

    def __init__(self, content: bytes) -> None:
        try:
            import tokenizers
        except ModuleNotFoundError as exc:
            raise MissingPackageError(
                "this model's tokenizer needs the package tokenizers: pip install tokenizers"
            ) from exc
        try:
            self._tokenizer: Any = tokenizers.Tokenizer.from_str(content.decode())
            self._is_byte_level = decoder_of(json.loads(content)) == "ByteLevel"
        except Exception as exc:  # the package has no class for its errors
            raise TokenizerError(f"not a tokenizer.json: {exc}") from exc

    def pieces(self, text: str) -> list[str]:
        """See `Segmenter`."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).tokens)

    def offsets(self, text: str) -> Offsets:
        """See `Segmenter`.

        Each byte of a character has the character's place: all but the last get none.
        """
        found = self._tokenizer.encode(text, add_special_tokens=False).offsets
        nexts = [start for start, _ in found[1:]] + [len(text)]
        # Without a token, as of an empty text, there is nothing to pair `len(text)` with.
        return [
            (start, max(start, min(end, later)))
            for (start, end), later in zip(found, nexts, strict=False)
        ]

    def text(self, pieces: Sequence[str]) -> str:
        """See `Segmenter`. Bytes that are no UTF-8 become U+FFFD."""
        return "".join(self._parts(pieces))

    def places(self, pieces: Sequence[str]) -> Offsets:
        """See `Segmenter`."""
        ends = [0, *itertools.accumulate(map(len, self._parts(pieces)))]
        return list(itertools.pairwise(ends))

    def is_unfinished(self, pieces: Sequence[str]) -> bool:
        """See `Segmenter`."""
        if not self._is_byte_level:
            return False
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        decoder.decode(b"".join(map(_bytes_of, pieces)))
        return bool(decoder.getstate()[0])

    def _parts(self, pieces: Sequence[str]) -> list[str]:
        """The text that each piece adds."""
        if not self._is_byte_level:
            return [piece.replace(_SPACE, " ") for piece in pieces]
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        parts = [decoder.decode(_bytes_of(piece)) for piece in pieces]
        if parts:
            parts[-1] += decoder.decode(b"", final=True)
        return parts


# Replacements of `transformers`, in this order, and the characters that remain.
_CLEANED = (
    *((f" {sign}", sign) for sign in ".?!,"),
    (" ' ", "'"),
    *((f" {word}", word) for word in ("n't", "'m", "'s", "'ve", "'re")),
)
# Texts that end in the beginning of one of these are unfinished; behind " ' " a sign can follow.
_OPEN = (" ", " n", " n'", " '", " 'v", " 'r")


class CleaningSegmenter:
    """Drops spaces before punctuation and English contractions, as `transformers` does.

    Models with `clean_up_tokenization_spaces` were trained on "Test ." and show "Test.".
    """

    def __init__(self, segmenter: Segmenter) -> None:
        self._segmenter = segmenter

    def pieces(self, text: str) -> list[str]:
        """See `Segmenter`."""
        return self._segmenter.pieces(text)

    def offsets(self, text: str) -> Offsets:
        """See `Segmenter`."""
        return self._segmenter.offsets(text)

    def text(self, pieces: Sequence[str]) -> str:
        """See `Segmenter`; without white space at its beginning."""
        text = self._segmenter.text(pieces).lstrip()
        for given, cleaned in _CLEANED:
            text = text.replace(given, cleaned)
        return text

    def places(self, pieces: Sequence[str]) -> Offsets:
        """See `Segmenter`."""
        text = self._segmenter.text(pieces)
        kept = list(range(len(text) - len(text.lstrip()), len(text)))  # characters that are left
        text = text.lstrip()
        for given, cleaned in _CLEANED:
            dropped = set()
            for found in re.finditer(re.escape(given), text):
                dropped.add(found.start())
                if len(given) - len(cleaned) == 2:
                    dropped.add(found.end() - 1)
            kept = [place for number, place in enumerate(kept) if number not in dropped]
            text = text.replace(given, cleaned)
        return [
            (bisect.bisect_left(kept, start), bisect.bisect_left(kept, end))
            for start, end in self._segmenter.places(pieces)
        ]

    def is_unfinished(self, pieces: Sequence[str]) -> bool:
        """See `Segmenter`."""
        # Not `text`, which drops a space at the beginning.
        shown = "".join(pieces).replace(_SPACE, " ")
        return self._segmenter.is_unfinished(pieces) or shown.endswith(_OPEN)


def open_segmenter(model: bytes) -> Segmenter:
    """Open a SentencePiece model, or a tokenizer.json, which begins with a brace.

    Raises:
        TokenizerError: it can't be read.
    """
    return JsonSegmenter(model) if model.startswith(b"{") else SentencePieceSegmenter(model)


def plain_tokenizer(fields: dict[str, Any]) -> tuple[bytes, dict[str, int], set[int]]:
    """A tokenizer.json in which special symbols of a text are text like any other.

    Args:
        fields: the file as `transformers` wrote it, parsed. Its "model" is changed in place.

    Returns:
        The file for `JsonSegmenter`, the ids of all pieces, and those that are special.

    Raises:
        TokenizerError: it lacks a field, or has a kind that isn't supported; names it.
    """
    decoder_of(fields)
    try:
        added = [
            (str(a["content"]), int(a["id"]), bool(a["special"])) for a in fields["added_tokens"]
        ]
        model, vocabulary = fields["model"], fields["model"]["vocab"]
        special = {token_id for _, token_id, is_special in added if is_special}
        if isinstance(vocabulary, dict):
            ids = {str(piece): int(token_id) for piece, token_id in vocabulary.items()}
        else:
            ids = {str(piece): token_id for token_id, (piece, _) in enumerate(vocabulary)}
            # Unigram finds any piece in a text, and no text has a NUL.
            for token_id in special & set(range(len(vocabulary))):
                vocabulary[token_id] = [f"\0{token_id}", vocabulary[token_id][1]]
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as exc:
        raise TokenizerError(f"{type(exc).__name__}: {exc}") from exc
    kept = [each for each in fields["added_tokens"] if not each["special"]]
    nothing = dict.fromkeys(("post_processor", "truncation", "padding"))
    plain = {**fields, "model": model, "added_tokens": kept, **nothing}
    ids |= {content: token_id for content, token_id, _ in added}
    return json.dumps(plain, ensure_ascii=False).encode(), ids, special


def decoder_of(fields: dict[str, Any]) -> str:
    """The decoder of pieces: "ByteLevel" or "Metaspace".

    Raises:
        TokenizerError: there is another decoder.
    """
    decoder = fields.get("decoder")
    kind = decoder.get("type") if isinstance(decoder, dict) else decoder
    if kind not in ("ByteLevel", "Metaspace"):
        raise TokenizerError(f"the decoder {kind!r} is not supported")
    return str(kind)


def _byte_characters() -> dict[str, int]:
    """The bytes that characters of byte-level pieces stand for (GPT-2, Radford et al., 2019).

    Printable ones of Latin-1 are themselves; the others follow from U+0100.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    shifted = {chr(0x100 + number): byte for number, byte in enumerate(others)}
    return {**{chr(byte): byte for byte in printable}, **shifted}


_BYTES = _byte_characters()


def _bytes_of(piece: str) -> bytes:
    try:
        return bytes([_BYTES[character] for character in piece])
    except KeyError:  # a word that was added to the vocabulary
        return piece.encode()
