"""Random models in the files of Firefox's translation models (Bergamot students)."""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import sentencepiece

from export.marian.binary_writer import WrittenItem, binary, int8_items
from export.students.lexicon import LEXICON_MAGIC
from export.students.options import student_options
from export.students.writer import observed_alphas, student_arrays, with_alphas
from model.bundle.config import ModelConfig, preset
from model.network.transformer import Transformer
from tests.foreign_models import TEXTS

Array = npt.NDArray[Any]
VOCAB_SIZE = 180


def vocabulary(texts: Sequence[str] = TEXTS, size: int = VOCAB_SIZE) -> bytes:
    """A SentencePiece model of so many pieces, with the special ones of students."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=model,
        vocab_size=size,
        model_type="unigram",  # as Mozilla's; fxtranslate cuts texts in no other way
        eos_id=0,
        unk_id=1,
        bos_id=-1,
        pad_id=-1,
        character_coverage=0.98,
        minloglevel=2,
    )
    return model.getvalue()


def student_config(
    size: str = "student-tiny", num_pieces: int = VOCAB_SIZE, **changes: Any
) -> ModelConfig:
    """A student as the reader makes one of a vocabulary of so many pieces."""
    ids = dict(pad_id=num_pieces, bos_id=num_pieces, eos_id=0, unk_id=1)
    return preset(size, num_pieces + 1, **{**ids, "dropout": 0.0, **changes})


def arrays_of(model: Transformer) -> dict[str, Array]:
    """Marian's arrays by name, matrices [in, out]."""
    return student_arrays(model, range(model.config.bos_id))


def int8_student(
    model: Transformer, sources: Sequence[Sequence[int]] = ((5, 6, 0),)
) -> dict[str, WrittenItem]:
    """Items of an intgemm8 file, with alphas for the translations of some sources."""
    return int8_items(with_alphas(arrays_of(model), observed_alphas(model, sources)))


def options_of(config: ModelConfig, **changes: Any) -> dict[str, Any]:
    """`special:model.yml`."""
    return student_options(config, config.bos_id, **changes)


def write_student(
    directory: Path,
    model: Transformer,
    sources: Sequence[Sequence[int]] = ((5, 6, 7, 0), (40, 170, 20, 99, 123, 0)),
    **changes: Any,
) -> None:
    """An int8 student for en-de with one vocabulary, as it is published."""
    directory.mkdir(parents=True, exist_ok=True)
    content = binary(int8_student(model, sources), options_of(model.config, **changes))
    (directory / "model.ende.intgemm.alphas.bin").write_bytes(content)
    if model.config.embedding_tying == "all":
        (directory / "vocab.ende.spm").write_bytes(vocabulary())
    else:
        (directory / "srcvocab.ende.spm").write_bytes(vocabulary())
        upper = [text.upper() for text in TEXTS]
        (directory / "trgvocab.ende.spm").write_bytes(vocabulary(upper))


def lexicon(lists: Sequence[Sequence[int]], first_num: int = 10, **header: int) -> bytes:
    """A file as Marian writes it."""
    offsets = np.cumsum([0, *map(len, lists)])
    ids = [i for one in lists for i in one]
    fields = {
        "magic": LEXICON_MAGIC,
        "checksum": 0,
        "first_num": first_num,
        "best_num": 50,
        "num_offsets": len(offsets),
        "num_ids": len(ids),
    } | header
    data = struct.pack("<6Q", *fields.values())
    return data + offsets.astype("<u8").tobytes() + np.array(ids, "<u4").tobytes()
