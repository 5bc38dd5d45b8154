"""tokenizer.json in a bundle: byte-level pieces, streams of them, and special symbols."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st

from export.errors import ExportError
from export.huggingface.directory import ModelDirectory
from export.huggingface.json_tokenizer import read_json_tokenizer
from export.huggingface.vocabularies import read_vocabularies
from model.bundle.config import ModelConfig
from model.bundle.piece_tokenizer import JSON_TOKENIZER_FILES, PieceTokenizer
from model.bundle.segmenters import JsonSegmenter, plain_tokenizer
from model.bundle.tokenizer import TokenizerError
from service.translation.detokenizer import Detokenizer
from tests import foreign_models

IDS: Any = dict(pad_id=1, unk_id=3, bos_id=2, eos_id=2)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bart")
    foreign_models.bart(path, encoder_layers=1, decoder_layers=1)
    return path


@pytest.fixture(scope="module")
def tokenizer(directory: Path) -> PieceTokenizer:
    vocabularies = read_vocabularies(ModelDirectory.read(directory), "en", "de")
    return vocabularies.tokenizer(ModelConfig(vocabularies.num_pieces + 9, 8, 1, 1, 1, 8, **IDS))


@given(data=st.data())
def test_a_stream_of_any_tokens_has_their_text(tokenizer: PieceTokenizer, data: Any) -> None:
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=30))
    stream = Detokenizer(tokenizer.target)
    text = "".join([*(stream.add([i]) for i in ids), stream.finish()])
    assert text == tokenizer.target.decode(ids)
    spans = tokenizer.target.decoded_spans(ids)
    shown = "".join(text[span.start : span.end] for span in spans)
    assert "".join(shown.split()) == "".join(text.split())


@given(text=st.text(max_size=40))
def test_a_stream_never_shows_half_a_character(tokenizer: PieceTokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.target.decode(ids) == text.lstrip()
    spans = tokenizer.encoded_spans(text)
    assert len(spans) == len(ids)
    stream, shown = Detokenizer(tokenizer.target), ""
    for token_id in ids:
        shown += stream.add([token_id])
        assert text.lstrip().startswith(shown)


def test_bytes_of_a_character_have_its_place_together(tokenizer: PieceTokenizer) -> None:
    text = "a \U0001f600b"
    ids, spans = tokenizer.encode(text)[1:], tokenizer.encoded_spans(text)[1:]
    assert len(ids) >= 6  # no merge of the training text makes this character
    assert [text[span.start : span.end] for span in spans if span.start < span.end] == list(
        "a\U0001f600b"
    )
    assert [*spans] == [*tokenizer.target.decoded_spans(ids)]


def test_older_files_make_the_same_tokenizer(tokenizer: PieceTokenizer, tmp_path: Path) -> None:
    foreign_models.bart(tmp_path, merges=True, encoder_layers=1, decoder_layers=1)
    again = read_json_tokenizer(ModelDirectory.read(tmp_path))
    assert not (tmp_path / "tokenizer.json").exists()
    pieces = tokenizer.vocabulary.pieces
    assert {piece: i for i, piece in enumerate(pieces)} == {**again.ids}
    assert again.special_ids == {*tokenizer.vocabulary.special_ids}
    for text in foreign_models.lines(200):
        expected = [again.ids[piece] for piece in JsonSegmenter(again.content).pieces(text)]
        assert tokenizer.encode(text)[1:] == expected


def test_special_symbols_of_unigram_vocabularies_stay_text(tmp_path: Path) -> None:
    foreign_models.multilingual(tmp_path, "mbart", encoder_layers=1, decoder_layers=1)
    foreign_models.without_sentencepiece(tmp_path)
    content, ids, special = plain_tokenizer(json.loads((tmp_path / "tokenizer.json").read_bytes()))
    assert {"<s>", "</s>", "en_XX", "<mask>"} <= {piece for piece, i in ids.items() if i in special}
    segmenter = JsonSegmenter(content)
    for text in ("a </s> b", "de_DE", "<mask> <s>", "en_XXde_DE"):
        assert special.isdisjoint(ids.get(piece, -1) for piece in segmenter.pieces(text))


def test_words_that_were_added_are_pieces(directory: Path, tmp_path: Path) -> None:
    theirs: Any = transformers.AutoTokenizer.from_pretrained(directory)
    theirs.add_tokens(["Übergröße"])
    theirs.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text((directory / "config.json").read_text())
    ours = read_json_tokenizer(ModelDirectory.read(tmp_path))
    segmenter = JsonSegmenter(ours.content)
    text = "A dogÜbergröße runs."
    pieces = segmenter.pieces(text)
    assert [ours.ids[piece] for piece in pieces] == theirs(text)["input_ids"][1:-1]
    assert segmenter.text(pieces) == theirs.decode(theirs(text)["input_ids"][1:-1])
    assert ours.ids["Übergröße"] not in ours.special_ids


def test_bad_files_are_named(directory: Path, tokenizer: PieceTokenizer, tmp_path: Path) -> None:
    for name in ("config.json", "tokenizer_config.json"):
        (tmp_path / name).write_text((directory / name).read_text())
    file, fields = (
        tmp_path / "tokenizer.json",
        json.loads((directory / "tokenizer.json").read_text()),
    )
    for message, content in (
        ("is not JSON", "{"),
        ("KeyError: 'added_tokens'", json.dumps({"decoder": fields["decoder"]})),
        ("decoder 'WordPiece' is not supported", json.dumps({"decoder": {"type": "WordPiece"}})),
        ("no '<s>'", json.dumps({**fields, "model": {"vocab": {}}, "added_tokens": []})),
    ):
        file.write_text(content)
        with pytest.raises(ExportError, match=message):
            read_json_tokenizer(ModelDirectory.read(tmp_path))
    file.unlink()
    with pytest.raises(ExportError, match=r"no tokenizer: .*merges.txt"):
        read_json_tokenizer(ModelDirectory.read(tmp_path))
    for name, each in tokenizer.files().items():
        (tmp_path / name).write_bytes(each)
    files = [tmp_path / name for name in JSON_TOKENIZER_FILES]
    config = ModelConfig(tokenizer.vocab_size, 8, 1, 1, 1, 8, **IDS)
    again = PieceTokenizer.load_files(files, config, prefix_ids=tokenizer.vocabulary.prefix_ids)
    assert again.encode("A dog.") == tokenizer.encode("A dog.")
    files[0].write_text("{}")
    with pytest.raises(TokenizerError, match=r"not a tokenizer\.json"):
        PieceTokenizer.load_files(files, config)


def test_a_server_without_the_package_says_so(tokenizer: PieceTokenizer, tmp_path: Path) -> None:
    for name, each in tokenizer.files().items():
        (tmp_path / name).write_bytes(each)
    program = f"""
import sys
from pathlib import Path
sys.modules["tokenizers"] = None  # as if it were not installed
from model.bundle.config import ModelConfig
from model.bundle.piece_tokenizer import JSON_TOKENIZER_FILES, PieceTokenizer
files = [Path({str(tmp_path)!r}) / name for name in JSON_TOKENIZER_FILES]
try:
    PieceTokenizer.load_files(files, ModelConfig(999, 8, 1, 1, 1, 8))
except ValueError as exc:
    print(exc)
"""
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "pip install tokenizers" in child.stdout, child.stderr
