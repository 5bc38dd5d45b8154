"""Reads the directory of a Hugging Face model, or of a native Marian one, whole."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from export.foreign import ForeignModel, OnProgress
from export.huggingface.architectures import family_of, read_config
from export.huggingface.comparison import (
    TransformersComparison,
    can_compare,
    compare_with_transformers,
)
from export.huggingface.directions import read_directions
from export.huggingface.directory import ModelDirectory
from export.huggingface.generation import check_default_search, default_search
from export.huggingface.vocabularies import read_all_vocabularies, read_vocabularies
from export.huggingface.weights import read_model
from export.marian.configuration import is_marian
from export.marian.directory import MarianDirectory
from model.bundle.piece_tokenizer import PieceTokenizer
from model.network.transformer import Transformer

_log = logging.getLogger("dragoman.import")


def read_huggingface(path: Path, languages: Sequence[str] | None) -> ForeignModel:
    """The model of a directory.

    Args:
        languages: BCP-47 codes to import, as in `export.importer.import_directory`.

    Raises:
        ExportError: a file is missing, damaged or not supported; names the file and the field.
    """
    _log.info("reading the configuration and the vocabularies")
    directory = MarianDirectory.read(path) if is_marian(path) else ModelDirectory.read(path)
    family = family_of(directory)
    vocabularies = read_all_vocabularies(directory)
    directions = read_directions(directory, vocabularies, languages)
    source, target = directions.first
    if directions.is_one:
        vocabularies = read_vocabularies(directory, source, target)
    config = read_config(directory, vocabularies.num_pieces, vocabularies.unk_id)
    tokenizer = vocabularies.tokenizer(config)
    if not directions.is_one:
        prefix_ids = directions.prefix_ids(source, target)
        tokenizer = tokenizer.between(prefix_ids, directions.start_ids(target))
    num_start = len(tokenizer.target.start_ids)
    search = default_search(directory, num_start)
    check_default_search(directory, search, config, num_start)
    _log.info("reading and converting the weights: %s", family.name)
    model = read_model(directory, config)
    is_theirs = not isinstance(directory, MarianDirectory)
    return ForeignModel(
        architecture=family.name,
        config=config,
        model=model,
        tokenizer=tokenizer,
        directions=directions,
        checksums=directory.checksums(),
        search=search,
        comparison=_WithTransformers(path, model, tokenizer, vocabularies.language_ids, is_theirs),
    )


@dataclass(frozen=True)
class _WithTransformers:
    """The comparison of a model.

    Attributes:
        is_theirs: whether `transformers` reads such a directory.
    """

    path: Path
    model: Transformer
    tokenizer: PieceTokenizer
    language_ids: Mapping[str, int]
    is_theirs: bool
    engine: str = "transformers"

    def is_possible(self) -> bool:
        """Whether `transformers` is installed, and reads such a directory."""
        return self.is_theirs and can_compare()

    def comparable(self, sentences: Sequence[str], more: bool = False) -> Sequence[str]:
        """All sentences."""
        return sentences

    def compare(
        self, sentences: Sequence[str], on_progress: OnProgress | None
    ) -> TransformersComparison:
        """See `compare_with_transformers`."""
        return compare_with_transformers(
            self.path,
            self.model,
            self.tokenizer,
            sentences,
            self.language_ids,
            on_progress=on_progress,
        )
