"""Small corpora, stores and networks on the CPU."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from model.bundle.config import ModelConfig
from model.data.packed_corpus import PackedSide
from model.gpu.text import StoredCorpus, TokenStore
from model.network.transformer import Transformer
from tests.factories import VOCAB_SIZE, tiny_config

PAD, UNK, BOS, EOS = 0, 1, 2, 3
CPU = torch.device("cpu")
WORDS = 8  # pieces of toy text have ids from 4 on


def store() -> TokenStore:
    return TokenStore(CPU, pad_id=PAD, eos_id=EOS)


def side(sentences: Sequence[Sequence[int]]) -> PackedSide:
    ids = np.array([i for sentence in sentences for i in sentence], np.uint16)
    return PackedSide(ids, np.cumsum([len(sentence) for sentence in sentences], dtype=np.int64))


def random_sentences(
    lengths: Sequence[int], seed: int, largest: int = VOCAB_SIZE
) -> list[list[int]]:
    draw = np.random.default_rng(seed)
    return [draw.integers(4, largest, length).tolist() for length in lengths]


def random_corpus(
    into: TokenStore, name: str, count: int, *, longest: int, seed: int, weight: float = 1.0
) -> StoredCorpus:
    lengths = np.random.default_rng(seed).integers(1, longest + 1, (2, count)).tolist()
    sources, targets = (
        into.add(side(random_sentences(part, seed + number))) for number, part in enumerate(lengths)
    )
    return StoredCorpus(name, sources, targets, weight)


def shifted_corpus(into: TokenStore, count: int) -> StoredCorpus:
    """Word by word: the translation of a word is `WORDS` ids further."""
    lengths = np.random.default_rng(3).integers(1, 7, count).tolist()
    sources = random_sentences(lengths, 4, 4 + WORDS)
    targets = [[i + WORDS for i in sentence] for sentence in sources]
    return StoredCorpus("shifted", into.add(side(sources)), into.add(side(targets)))


def fresh_network(**changes: object) -> Transformer:
    torch.manual_seed(1)
    config: ModelConfig = tiny_config(positions="sinusoidal", **changes)
    return Transformer(config)
