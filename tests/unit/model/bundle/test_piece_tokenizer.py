"""Tokenizers of imported models: pieces by a vocabulary of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st

from model.bundle.config import ModelConfig
from model.bundle.piece_tokenizer import TOKENIZER_FILES, PieceTokenizer, PieceVocabulary
from model.bundle.tokenizer import TokenizerError
from service.translation.detokenizer import Detokenizer
from tests.foreign_models import TEXTS, sentencepiece_model

PAD, UNK, EOS, GERMAN = 3, 1, 0, 2
CLEANED_MODEL = sentencepiece_model(list(TEXTS), 200)


@pytest.fixture(scope="module")
def tokenizer() -> PieceTokenizer:
    """Of a vocabulary with pieces that the target's SentencePiece model lacks, and spaces alone."""
    model = sentencepiece_model(list(TEXTS), 200)
    pieces = ["</s>", "<unk>", ">>deu<<", "<pad>", "\u2581", "\u2581zzz", "zzz", "\u2581\u2581"]
    pieces += ["\u2581A", "\u2581d", "o", "g", ".", "\u2581ru", "n", "in", "\u4eac"]
    config = ModelConfig(
        len(pieces) + 5, 8, 1, 1, 1, 8, pad_id=PAD, bos_id=PAD, eos_id=EOS, unk_id=UNK
    )
    target = PieceVocabulary(model, pieces, start_ids=(GERMAN,), special_ids=(GERMAN,))
    source = PieceVocabulary(model, pieces, prefix_ids=(GERMAN,), special_ids=(GERMAN,))
    return PieceTokenizer(source, config, PieceTokenizer(target, config))


def test_the_text_of_a_stream_is_that_of_all_its_tokens(tokenizer: PieceTokenizer) -> None:
    draw = np.random.default_rng(0)
    for _ in range(2000):
        ids = draw.integers(0, tokenizer.vocab_size, draw.integers(0, 9)).tolist()
        stream = Detokenizer(tokenizer.target)
        text = "".join([*(stream.add([i]) for i in ids), stream.finish()])
        assert text == tokenizer.target.decode(ids)


def test_spans_cover_the_text(tokenizer: PieceTokenizer) -> None:
    draw = np.random.default_rng(1)
    for _ in range(500):
        ids = draw.integers(0, tokenizer.vocab_size, draw.integers(0, 9)).tolist()
        text, spans = tokenizer.target.decode(ids), tokenizer.target.decoded_spans(ids)
        assert len(spans) == len(ids)
        shown = "".join(text[span.start : span.end] for span in spans)
        assert shown.replace(" ", "") == text.replace(" ", "")


def test_a_prefix_names_the_language_of_a_text_that_is_not_blank(
    tokenizer: PieceTokenizer,
) -> None:
    ids = tokenizer.encode("A dog.")
    assert ids[0] == GERMAN
    assert tokenizer.encoded_spans("A dog.")[0] == (0, 0)
    assert len(tokenizer.encoded_spans("A dog.")) == len(ids)
    assert tokenizer.encode_batch(["A dog.", " "]) == [ids, []]
    assert tokenizer.encoded_spans(" ") == []
    assert tokenizer.target.encode("A dog.") == ids[1:]
    assert tokenizer.target.start_ids == (GERMAN,)
    assert tokenizer.piece_to_id(">>deu<<") == UNK
    assert tokenizer.id_to_piece(GERMAN) == ">>deu<<"
    assert tokenizer.id_to_piece(tokenizer.vocab_size - 1) == ""


@pytest.mark.parametrize("name", TOKENIZER_FILES)
def test_damaged_files_are_named(tokenizer: PieceTokenizer, tmp_path: Path, name: str) -> None:
    for file, content in tokenizer.files().items():
        (tmp_path / file).write_bytes(content)
    files = [tmp_path / file for file in TOKENIZER_FILES]
    config = ModelConfig(tokenizer.vocab_size, 8, 1, 1, 1, 8)
    again = PieceTokenizer.load_files(files, config)
    assert again.vocabulary.pieces == tokenizer.vocabulary.pieces
    with pytest.raises(TokenizerError, match="17 pieces, but the model has 16"):
        PieceTokenizer.load_files(files, ModelConfig(16, 8, 1, 1, 1, 8))
    (tmp_path / name).write_bytes(b"{}" if name.endswith("json") else b"damaged")
    with pytest.raises(TokenizerError, match=name):
        PieceTokenizer.load_files(files, config)
    (tmp_path / name).unlink()
    with pytest.raises(TokenizerError, match=f"cannot read.*{name}"):
        PieceTokenizer.load_files(files, config)


@pytest.mark.parametrize("is_same", [True, False])
def test_one_vocabulary_of_two_languages_is_loaded_once(
    tokenizer: PieceTokenizer, tmp_path: Path, is_same: bool
) -> None:
    files = [tmp_path / name for name in TOKENIZER_FILES]
    for file, content in zip(files, tokenizer.files().values(), strict=True):
        file.write_bytes(content)
    if not is_same:
        files[2].write_bytes(files[2].read_bytes().replace(b"zzz", b"yyy"))
    size = tokenizer.vocab_size
    config = ModelConfig(size, 8, 1, 1, 1, 8, pad_id=PAD, bos_id=PAD, eos_id=EOS, unk_id=UNK)
    ids: dict[str, Any] = {"prefix_ids": [GERMAN], "start_ids": [GERMAN], "special_ids": [GERMAN]}
    loaded = PieceTokenizer.load_files(files, config, **ids)
    assert (loaded.vocabulary.pieces is loaded.target.vocabulary.pieces) == is_same
    assert (loaded.prefix_ids, loaded.start_ids) == ((GERMAN,), ())
    assert (loaded.target.prefix_ids, loaded.target.start_ids) == ((), (GERMAN,))
    for text in (*TEXTS, "", " zzz"):
        assert loaded.target.encode(text) == tokenizer.target.encode(text)
        if is_same:
            assert loaded.encode(text) == tokenizer.encode(text)
            assert loaded.encoded_spans(text) == tokenizer.encoded_spans(text)


@given(data=st.data())
def test_spaces_before_punctuation_are_cleaned_up_in_texts_streams_and_spans(data: Any) -> None:
    pieces = ["</s>", "<unk>", "x", "<pad>", "\u2581", "\u2581.", "\u2581'", "'", "\u2581n", "'t"]
    pieces += ["s", ".", "\u2581,", "\u2581've", "re", "\u2581!", "t", "\u2581x", "\u2581'r"]
    config = ModelConfig(len(pieces), 8, 1, 1, 1, 8, pad_id=PAD, bos_id=PAD, eos_id=EOS, unk_id=UNK)
    tokenizer = PieceTokenizer(PieceVocabulary(CLEANED_MODEL, pieces, cleans_up=True), config)
    plain = PieceTokenizer(PieceVocabulary(CLEANED_MODEL, pieces), config)
    ids = data.draw(st.lists(st.integers(0, len(pieces) - 1), max_size=12))
    text = tokenizer.decode(ids)
    cleaned = transformers.PreTrainedTokenizerBase.clean_up_tokenization
    assert text == cleaned(None, plain.decode(ids))  # type: ignore[arg-type]
    stream = Detokenizer(tokenizer)
    assert "".join([*(stream.add([i]) for i in ids), stream.finish()]) == text
    spans = tokenizer.decoded_spans(ids)
    assert len(spans) == len(ids)
    shown = "".join(text[span.start : span.end] for span in spans)
    assert shown.replace(" ", "") == text.replace(" ", "")
