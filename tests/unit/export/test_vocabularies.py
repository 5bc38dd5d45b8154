"""Damaged files of a tokenizer are refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from export.errors import ExportError
from export.huggingface.directory import ModelDirectory, read_json
from export.huggingface.vocabularies import read_all_vocabularies
from tests import foreign_models


def read(path: Path, kind: str, **generation: Any) -> None:
    fields = path / "tokenizer_config.json"
    read_all_vocabularies(ModelDirectory(path, {"model_type": kind}, generation, read_json(fields)))


def edit(file: Path, **fields: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


@pytest.fixture
def bart(tmp_path: Path) -> Path:
    foreign_models.write_bart_vocabulary(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"decoder": "x"}, r"tokenizer.json: the decoder 'x' is not supported"),
        ({"decoder": [1]}, r"the decoder \[1\] is not supported"),
        ({"decoder": {"type": [1]}}, r"the decoder \[1\] is not supported"),
        ({"added_tokens": [{"x": 1}]}, "tokenizer.json: KeyError: 'content'"),
        ({"added_tokens": [1]}, "tokenizer.json: TypeError"),
        (
            {"added_tokens": [{"content": "a", "id": 10**10, "special": False}]},
            "the id 10000000000 of 'a'",
        ),
    ],
)
def test_tokenizer_json(bart: Path, fields: dict[str, Any], message: str) -> None:
    read(bart, "bart")
    edit(bart / "tokenizer.json", **fields)
    with pytest.raises(ExportError, match=message):
        read(bart, "bart")


@pytest.mark.parametrize("forced", [[0], "x", 10**9, -1, True])
def test_bart_begins_with_a_token_or_none(bart: Path, forced: Any) -> None:
    read(bart, "bart", forced_bos_token_id=None)
    read(bart, "bart", forced_bos_token_id=0)
    with pytest.raises(ExportError, match=r"forced_bos_token_id .* is not supported"):
        read(bart, "bart", forced_bos_token_id=forced)


@pytest.mark.parametrize(
    ("added", "message"),
    [
        ([{"x": 1}], "tokenizer.json: added_tokens: KeyError: 'content'"),
        ([1], "tokenizer.json: added_tokens: TypeError"),
        (None, "tokenizer.json: added_tokens: TypeError"),
        ([{"content": "fr_XX", "id": 10**10}], "the id 10000000000 of 'fr_XX'"),
        ([{"content": "fr_XX", "id": -1}], "the id -1 of 'fr_XX'"),
    ],
)
def test_added_tokens(tmp_path: Path, added: Any, message: str) -> None:
    codes = ["en_XX", "de_DE"]
    foreign_models.write_fairseq_vocabulary(tmp_path, "unigram", codes, "MBart50Tokenizer")
    read(tmp_path, "mbart")
    (tmp_path / "tokenizer.json").write_text(json.dumps({"added_tokens": added}))
    with pytest.raises(ExportError, match=message):
        read(tmp_path, "mbart")


def test_language_codes(tmp_path: Path) -> None:
    foreign_models.write_m2m_vocabulary(tmp_path)
    read(tmp_path, "m2m_100")
    edit(tmp_path / "tokenizer_config.json", language_codes="nonsense")
    with pytest.raises(ExportError, match="language_codes 'nonsense' is not supported, only m2m"):
        read(tmp_path, "m2m_100")
