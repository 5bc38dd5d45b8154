"""Tokenizers of imported models: a segmenter cuts texts, a vocabulary numbers the pieces.

MarianMT, M2M-100, NLLB and mBART-50 number the pieces differently from their SentencePiece models,
and the two languages can have a model, and a vocabulary, each. Free of torch.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from model.bundle.config import ModelConfig
from model.bundle.segmenters import CleaningSegmenter, open_segmenter
from model.bundle.spans import Span
from model.bundle.tokenizer import MissingPackageError, Tokenizer, TokenizerError, text_spans

TOKENIZER_FILES = ("source.spm", "target.spm", "source_vocabulary.json", "target_vocabulary.json")
JSON_TOKENIZER_FILES = ("source.json", "target.json", *TOKENIZER_FILES[2:])
"""The same where segmenters are a tokenizer.json."""


@dataclass(frozen=True)
class PieceVocabulary:
    """One language's side of a tokenizer.

    Attributes:
        model: a serialized SentencePiece model, or a tokenizer.json (`model.bundle.segmenters`).
        pieces: the pieces, by token id.
        prefix_ids: tokens before every text that is translated, such as those of languages.
        start_ids: every translation into this language begins with these.
        special_ids: tokens that stand for no text, beside those of `ModelConfig`.
        cleans_up: whether texts lose spaces before punctuation (`CleaningSegmenter`).
    """

    model: bytes
    pieces: Sequence[str]
    prefix_ids: tuple[int, ...] = ()
    start_ids: tuple[int, ...] = ()
    special_ids: Collection[int] = ()
    cleans_up: bool = False


class PieceTokenizer(Tokenizer):
    """One language's tokenizer; that of the target language is its `target`.

    A piece that the vocabulary lacks is `unk_id`. Special symbols in a text stay text. `decode`
    leaves out special tokens, and `unk_id`.

    Args:
        config: the model's config, which names the special ids. Its `vocab_size` can be larger than
            the vocabulary: the further ids are never chosen.
        target: the target language's tokenizer; None if this one is it.

    Raises:
        TokenizerError: the vocabulary's model can't be read, or there are too many pieces.
    """

    def __init__(
        self, vocabulary: PieceVocabulary, config: ModelConfig, target: PieceTokenizer | None = None
    ) -> None:
        if len(vocabulary.pieces) > config.vocab_size:
            raise TokenizerError(
                f"{len(vocabulary.pieces)} pieces, but the model has {config.vocab_size}"
            )
        segmenter = open_segmenter(vocabulary.model)
        self._segmenter = CleaningSegmenter(segmenter) if vocabulary.cleans_up else segmenter
        self.vocabulary = vocabulary
        self.vocab_size = config.vocab_size
        self.pad_id, self.unk_id = config.pad_id, config.unk_id
        self.bos_id, self.eos_id = config.bos_id, config.eos_id
        fillers = range(len(vocabulary.pieces), config.vocab_size)
        special = (self.pad_id, self.unk_id, self.bos_id, self.eos_id)
        self._hidden = frozenset((*special, *vocabulary.special_ids, *fillers))
        self._target = target
        self._ids = {
            piece: token_id
            for token_id, piece in enumerate(vocabulary.pieces)
            if token_id not in self._hidden
        }

    def between(self, prefix_ids: tuple[int, ...], start_ids: tuple[int, ...]) -> PieceTokenizer:
        """A tokenizer for another direction of the same model, which shares the vocabularies.

        Args:
            prefix_ids: tokens before every text.
            start_ids: tokens at the beginning of every translation.
        """
        source, target = copy.copy(self), copy.copy(self.target)
        source.vocabulary = replace(self.vocabulary, prefix_ids=prefix_ids)
        target.vocabulary = replace(target.vocabulary, start_ids=start_ids)
        source._target = target
        return source

    @property
    def prefix_ids(self) -> tuple[int, ...]:
        """Language tokens that `encode` puts before every text that isn't blank."""
        return self.vocabulary.prefix_ids

    @property
    def start_ids(self) -> tuple[int, ...]:
        """Tokens that every translation into this language begins with."""
        return self.vocabulary.start_ids

    @property
    def target(self) -> PieceTokenizer:
        """The tokenizer of the target language."""
        return self if self._target is None else self._target

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`, the prefix included, without BOS and EOS."""
        return self._with_prefix(self._segmenter.pieces(text))

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of every text, on one thread."""
        return [self.encode(text) for text in texts]

    def encoded_spans(self, text: str) -> list[Span]:
        """The span in `text` of each token of `encode(text)`; the spans of a prefix are empty."""
        spans = text_spans(text, self._segmenter.offsets(text))
        return [*[Span(0, 0)] * len(self.prefix_ids), *spans] if spans else []

    def id_to_piece(self, token_id: int) -> str:
        """The piece with this id; "" for one that only fills up the vocabulary."""
        pieces = self.vocabulary.pieces
        return pieces[token_id] if token_id < len(pieces) else ""

    def piece_to_id(self, piece: str) -> int:
        """The id of a piece, `unk_id` when there is no such piece or it is a special one."""
        return self._ids.get(piece, self.unk_id)

    @property
    def is_json(self) -> bool:
        """Whether texts are cut by a tokenizer.json."""
        return self.vocabulary.model.startswith(b"{")

    def files(self) -> dict[str, bytes]:
        """The contents of `TOKENIZER_FILES` or `JSON_TOKENIZER_FILES`, by name."""
        source, target = self.vocabulary, self.target.vocabulary
        contents = (source.model, target.model, _json(source.pieces), _json(target.pieces))
        names = JSON_TOKENIZER_FILES if self.is_json else TOKENIZER_FILES
        return dict(zip(names, contents, strict=True))

    @classmethod
    def load_files(
        cls,
        files: Sequence[Path],
        config: ModelConfig,
        *,
        read: Callable[[Path], bytes] = Path.read_bytes,
        prefix_ids: Sequence[int] = (),
        start_ids: Sequence[int] = (),
        special_ids: Collection[int] = (),
        cleans_up: bool = False,
    ) -> PieceTokenizer:
        """The source language's tokenizer, from the files that `files()` names.

        Args:
            files: paths of the files, in the order of `files()`.
            prefix_ids: the source language's `PieceVocabulary.prefix_ids`.
            start_ids: the target language's `PieceVocabulary.start_ids`.
            special_ids: both languages' `PieceVocabulary.special_ids`.
            cleans_up: the target language's `PieceVocabulary.cleans_up`.

        Raises:
            TokenizerError: a file can't be read; names it.
        """
        source_model, target_model, source_pieces, target_pieces = files[: len(TOKENIZER_FILES)]
        contents = {file: _content(file, read) for file in files}
        target = PieceVocabulary(
            contents[target_model],
            _pieces(target_pieces, contents[target_pieces]),
            start_ids=tuple(start_ids),
            special_ids=special_ids,
            cleans_up=cleans_up,
        )
        # M2M-100, NLLB and mBART-50 have one vocabulary, which is large: it is loaded once.
        is_shared = not cleans_up and (
            contents[source_model] == target.model
            and contents[source_pieces] == contents[target_pieces]
        )
        try:
            loaded = cls(target, config)
            if is_shared:
                tokenizer = copy.copy(loaded)
                tokenizer.vocabulary = replace(target, prefix_ids=tuple(prefix_ids), start_ids=())
                tokenizer._target = loaded
                return tokenizer
            source = PieceVocabulary(
                contents[source_model],
                _pieces(source_pieces, contents[source_pieces]),
                tuple(prefix_ids),
                special_ids=special_ids,
            )
            return cls(source, config, loaded)
        except MissingPackageError:
            raise
        except TokenizerError as exc:
            raise TokenizerError(f"one of {', '.join(map(str, files))}: {exc}") from exc

    def _with_prefix(self, pieces: Sequence[str]) -> list[int]:
        if not pieces:  # a blank text stays recognisable
            return []
        return [*self.prefix_ids, *map(self.piece_to_id, pieces)]

    def decode(self, token_ids: Iterable[int]) -> str:
        """The text of `token_ids` without white space at its beginning."""
        return self._segmenter.text(self._visible_pieces(token_ids)).lstrip()

    def is_unfinished(self, token_ids: Sequence[int]) -> bool:
        """Whether further tokens can change the text of these."""
        if super().is_unfinished(token_ids):
            return True
        return self._segmenter.is_unfinished(self._visible_pieces(token_ids))

    def _decoded_offsets(self, token_ids: Iterable[int]) -> tuple[str, list[tuple[int, int]]]:
        pieces = self._visible_pieces(token_ids)
        text, offsets = self._segmenter.text(pieces), self._segmenter.places(pieces)
        shift = len(text) - len(text.lstrip())
        moved = [(max(start - shift, 0), max(end - shift, 0)) for start, end in offsets]
        return text[shift:], moved

    def _visible_pieces(self, token_ids: Iterable[int]) -> list[str]:
        return [self.vocabulary.pieces[i] for i in self._visible(token_ids)]


def _json(pieces: Sequence[str]) -> bytes:
    return (json.dumps(list(pieces), ensure_ascii=False, indent=0) + "\n").encode()


def _content(file: Path, read: Callable[[Path], bytes]) -> bytes:
    try:
        return read(file)
    except OSError as exc:
        raise TokenizerError(f"cannot read the tokenizer {file}: {exc.strerror}") from exc


def _pieces(file: Path, content: bytes) -> list[str]:
    try:
        pieces = json.loads(content)
    except ValueError as exc:
        raise TokenizerError(f"{file} is not JSON: {exc}") from exc
    if not isinstance(pieces, list) or not all(isinstance(piece, str) for piece in pieces):
        raise TokenizerError(f"{file} is not a list of pieces")
    return pieces
