"""Token ids as pieces, for a machine where no file can be fetched: pairs, and text of one language.

Pieces are those of `model.data.packed_corpus`. They hold each sentence once: which ones a training
draws, and how often, is up to the plan.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from model.bundle.tokenizer import TOKENIZER_FILE, Tokenizer
from model.data.corpus import ParallelText
from model.data.packed_corpus import PackedSide, packed_side, read_pieces, write_pieces

_ABOUT_FILE = "about.json"
_PIECE_BYTES = 30 * 2**20
# LZMA's contexts for tokens of two bytes: pieces are 15 % smaller.
_CONTEXTS = {"lc": 2, "lp": 1, "pb": 1}


@dataclass(frozen=True)
class PackedPairs:
    """Parallel corpora one after another, test sets and the vocabulary.

    Attributes:
        corpora: name, number of pairs, and weight of each corpus, in order.
        tests: sources and references by the test set's name.
    """

    corpora: Sequence[tuple[str, int, float]]
    sources: PackedSide
    targets: PackedSide
    tests: Mapping[str, tuple[list[str], list[str]]]
    tokenizer: Tokenizer


@dataclass(frozen=True)
class PackedSentences:
    """Sentences of one language from one file.

    Attributes:
        weight: factor on their share among all of such text.
    """

    name: str
    weight: float
    side: PackedSide


def write_pairs(
    folder: Path,
    tokenizer: Tokenizer,
    corpora: Sequence[tuple[str, float, ParallelText]],
    tests: Mapping[str, tuple[list[str], list[str]]],
) -> int:
    """Write pieces that `read_pairs` reads; returns their number.

    Args:
        corpora: name, weight and text of each corpus.
        tests: sources and references by the test set's name.
    """
    about = {"corpora": [[name, len(text), weight] for name, weight, text in corpora]}
    sides = {
        "sources": [line for _, _, text in corpora for line in text.sources],
        "targets": [line for _, _, text in corpora for line in text.targets],
    }
    files = {TOKENIZER_FILE: tokenizer.serialized()}
    for name, lines in sides.items():
        files |= _files(name, packed_side(tokenizer, lines))
    return _write(folder, {**about, "tests": tests}, files)


def read_pairs(folder: Path) -> PackedPairs:
    """The pairs whose pieces lie in `folder`.

    Raises:
        PackError: a piece is missing or damaged.
    """
    files = read_pieces(folder)
    about = json.loads(files[_ABOUT_FILE])
    return PackedPairs(
        [(name, count, weight) for name, count, weight in about["corpora"]],
        _side("sources", files),
        _side("targets", files),
        {name: (sources, references) for name, (sources, references) in about["tests"].items()},
        Tokenizer(files[TOKENIZER_FILE]),
    )


def write_text(
    folder: Path, tokenizer: Tokenizer, texts: Sequence[tuple[str, float, Sequence[str]]]
) -> int:
    """Write pieces that `read_text` reads; returns their number.

    Args:
        texts: name, weight and sentences of each text.
    """
    files: dict[str, bytes] = {}
    for number, (_, _, lines) in enumerate(texts):
        files |= _files(str(number), packed_side(tokenizer, lines))
    return _write(folder, {"texts": [[name, weight] for name, weight, _ in texts]}, files)


def read_text(folder: Path) -> list[PackedSentences]:
    """The sentences whose pieces lie in `folder`.

    Raises:
        PackError: a piece is missing or damaged.
    """
    files = read_pieces(folder)
    return [
        PackedSentences(name, weight, _side(str(number), files))
        for number, (name, weight) in enumerate(json.loads(files[_ABOUT_FILE])["texts"])
    ]


def _write(folder: Path, about: Mapping[str, Any], files: Mapping[str, bytes]) -> int:
    described = {_ABOUT_FILE: json.dumps(about).encode(), **files}
    return write_pieces(described, folder, piece_bytes=_PIECE_BYTES, **_CONTEXTS)


def _files(name: str, side: PackedSide) -> dict[str, bytes]:
    lengths = side.lengths().astype(np.uint32)
    return {f"{name}.lengths": lengths.tobytes(), f"{name}.ids": side.ids.tobytes()}


def _side(name: str, files: Mapping[str, bytes]) -> PackedSide:
    lengths = np.frombuffer(files[f"{name}.lengths"], np.uint32).astype(np.int64)
    return PackedSide(np.frombuffer(files[f"{name}.ids"], np.uint16), np.cumsum(lengths))
