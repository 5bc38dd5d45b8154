"""From a Hugging Face tokenizer's files to a `PieceTokenizer`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from export.errors import ExportError
from export.huggingface.directory import ModelDirectory, read_json
from model.config import ModelConfig
from model.piece_tokenizer import PieceTokenizer, PieceVocabulary
from model.tokenizer import TokenizerError


@dataclass(frozen=True)
class Vocabularies:
    """Both languages' sides of a tokenizer.

    Attributes:
        source, target: the vocabularies.
        unk_id: of the token that stands for unknown pieces.
    """

    source: PieceVocabulary
    target: PieceVocabulary
    unk_id: int

    @property
    def num_pieces(self) -> int:
        """Tokens of the larger vocabulary."""
        return max(len(self.source.pieces), len(self.target.pieces))

    def tokenizer(self, config: ModelConfig) -> PieceTokenizer:
        """The source language's tokenizer.

        Raises:
            ExportError: a SentencePiece model can't be read.
        """
        try:
            return PieceTokenizer(self.source, config, PieceTokenizer(self.target, config))
        except TokenizerError as exc:
            raise ExportError(f"source.spm or target.spm: {exc}") from exc


def read_marian(directory: ModelDirectory) -> Vocabularies:
    """The vocabularies of MarianMT: two SentencePiece models and one or two lists of pieces.

    Raises:
        ExportError: a file is missing or can't be read; names it.
    """
    source_ids = _read_ids(directory.file("vocab.json"))
    target_ids = source_ids
    if directory.tokenizer.get("separate_vocabs"):
        target_ids = _read_ids(directory.file("target_vocab.json"))
    special = ("</s>", "<unk>", "<pad>")
    for piece in special:
        if source_ids.get(piece) != target_ids.get(piece):
            raise ExportError(f"{directory.path}: {piece!r} has other ids in its two vocabularies")
    if "<unk>" not in source_ids:
        raise ExportError(f"{directory.path / 'vocab.json'} has no '<unk>'")
    source_model = directory.file("source.spm").read_bytes()
    target_model = directory.file("target.spm").read_bytes()
    return Vocabularies(
        PieceVocabulary(source_model, _by_id(source_ids)),
        PieceVocabulary(target_model, _by_id(target_ids)),
        source_ids["<unk>"],
    )


def _read_ids(file: Path) -> dict[str, int]:
    ids = read_json(file)
    if any(type(i) is not int or i < 0 for i in ids.values()):
        raise ExportError(f"{file} does not give every piece an id")
    return ids


def _by_id(ids: dict[str, int]) -> list[str]:
    pieces = [""] * (max(ids.values(), default=-1) + 1)
    for piece, token_id in ids.items():
        pieces[token_id] = piece
    return pieces
