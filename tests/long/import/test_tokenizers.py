"""Token ids and texts of each family are those of `transformers`, on 10,000 lines in all scripts.

Exceptions, all asserted: special symbols in a text are text here; where SentencePiece cuts a text,
white space at its end is no token, and a text without any other character has no tokens at all.
"""

from __future__ import annotations

import itertools
import json
import os
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers

from export.huggingface.directory import ModelDirectory
from export.huggingface.vocabularies import read_vocabularies
from model.bundle.config import ModelConfig
from model.bundle.piece_tokenizer import PieceTokenizer
from tests import foreign_models

# A folder of corpora, each a folder with files train.*; and real OPUS-MT vocabularies.
CORPORA, VOCABULARIES = "DRAGOMAN_DATA_ROOT", "DRAGOMAN_VOCABULARIES"
NUM_LINES = 10_000

_SPECIAL = ["</s>", "<pad>", "<unk>", "<s>", "<mask>", "__de__", "deu_Latn", "de_DE", ">>deu<<"]
_ODD = [
    "\u200b", "\u200d", "\u00ad", "\ufeff", "\u0301", "\u0323\u0307", "\u1161", "\u0e33",
    "\U0001f600", "\U0001f469\u200d\U0001f680", "\U0001f1e9\U0001f1ea", "\u2764\ufe0f",
    "\ufdfa", "\uff21", "\u00bd", "\u2460", "\ufb01", "  ", "\u00a0", "\u3000", "\t", "\u2028",
    "\u0085", "...", "\u2026", "''", "\u201e", "\u2019", "<", ">", "\u2581", "\u0120", "\ufffd",
]  # fmt: skip


def scripts() -> list[list[str]]:
    """The printable characters of Unicode, in runs of one block of 128."""
    blocks: dict[int, list[str]] = {}
    for code in itertools.chain(
        range(0x20, 0xD800), range(0xF900, 0x11000), range(0x1F300, 0x1FB00)
    ):
        if unicodedata.category(chr(code))[0] in "LMNPSZ":
            blocks.setdefault(code // 128, []).append(chr(code))
    return [block for block in blocks.values() if len(block) > 20]


def unicode_lines(count: int, seed: int = 0) -> list[str]:
    """Words of characters of a block each, odd characters and known words among them."""
    draw = np.random.default_rng(seed)
    blocks = scripts()
    known = [word for text in foreign_models.TEXTS for word in text.split()]
    lines = []
    for _ in range(count):
        words = []
        for _ in range(int(draw.integers(1, 10))):
            kind = draw.random()
            if kind < 0.5:
                words.append(str(draw.choice(known)))
            elif kind < 0.85:
                block = blocks[int(draw.integers(0, len(blocks)))]
                words.append("".join(draw.choice(block, int(draw.integers(1, 8)))))
            else:
                words.append(str(draw.choice(_ODD)))
        lines.append("".join(w + str(draw.choice([" ", " ", " ", ""])) for w in words).strip())
    return [line for line in lines if line]


def corpus_lines(count: int) -> Iterator[str]:
    root = os.environ.get(CORPORA)
    files = sorted(Path(root).glob("**/train.*")) if root else []
    texts = [file for file in files if file.suffix not in (".doc", ".md")]
    for file in texts:
        with file.open(encoding="utf-8") as lines:
            yield from (line.strip() for line in itertools.islice(lines, count // len(texts)))


def all_lines() -> list[str]:
    known = [*unicode_lines(NUM_LINES), *corpus_lines(NUM_LINES)]
    return [line for line in known if line and not any(symbol in line for symbol in _SPECIAL)]


def json_only(family: str) -> Callable[[Path], object]:
    def write(path: Path) -> None:
        foreign_models.multilingual(path, family)
        foreign_models.without_sentencepiece(path)

    return write


FAMILIES: dict[str, Callable[[Path], object]] = {
    "marian": foreign_models.marian,
    "bart": foreign_models.bart,
    "m2m": lambda path: foreign_models.multilingual(path, "m2m"),
    "nllb": lambda path: foreign_models.multilingual(path, "nllb"),
    "mbart": lambda path: foreign_models.multilingual(path, "mbart"),
    "nllb-json": json_only("nllb"),
    "mbart-json": json_only("mbart"),
}


def tokenizers_of(path: Path) -> tuple[Any, PieceTokenizer]:
    directory = ModelDirectory.read(path)
    vocabularies = read_vocabularies(directory, "en", "mg" if "mg" in path.name else "de")
    fields = directory.config
    config = ModelConfig(
        max(vocabularies.num_pieces, fields["vocab_size"]), 8, 1, 1, 1, 8,
        pad_id=fields["pad_token_id"], bos_id=fields["pad_token_id"],
        eos_id=fields["eos_token_id"], unk_id=vocabularies.unk_id,
    )  # fmt: skip
    ours = vocabularies.tokenizer(config)
    theirs: Any = transformers.AutoTokenizer.from_pretrained(path)
    if hasattr(theirs, "src_lang"):
        theirs.src_lang = ours.id_to_piece(ours.vocabulary.prefix_ids[0]).strip("_")
    return theirs, ours


def check(theirs: Any, ours: PieceTokenizer, lines: list[str]) -> None:
    different = []
    for line in lines:
        ids, expected = ours.encode(line), list(theirs(line)["input_ids"][:-1])
        if ids != expected and expected[-1] == ours.piece_to_id("\u2581"):
            expected.pop()  # a space at the end, made of a character that normalises to one
        start = len(ours.vocabulary.prefix_ids)
        if not ids:  # of characters that normalise to nothing
            assert list(ours.vocabulary.prefix_ids) == expected, line
            continue
        if ids != expected:
            different.append(line)
        spans = ours.encoded_spans(line)
        assert len(spans) == len(ids)
        assert all(0 <= span.start <= span.end <= len(line) for span in spans)
        shown = ours.target.decode(ids)
        # Without the language, which M2M-100's tokenizer shows.
        assert shown.strip() == theirs.decode(ids[start:], skip_special_tokens=True).strip(), line
    assert not different, f"{len(different)} of {len(lines)}, {different[:3]!r}"
    for symbol in _SPECIAL:
        special = {ours.eos_id, ours.pad_id, *ours.vocabulary.special_ids} - {ours.unk_id}
        start = len(ours.vocabulary.prefix_ids)
        assert special.isdisjoint(ours.encode(f"a {symbol} b{symbol}")[start:])


@pytest.mark.parametrize("family", FAMILIES)
def test_ids_and_texts_are_those_of_transformers(tmp_path: Path, family: str) -> None:
    FAMILIES[family](tmp_path / "model")
    theirs, ours = tokenizers_of(tmp_path / "model")
    check(theirs, ours, all_lines())


@pytest.mark.parametrize("name", ["opus-mt-en-mg", "opus-mt-tc-big-fr-en"])
@pytest.mark.parametrize("cleans_up", [False, True])
def test_real_vocabularies(name: str, cleans_up: bool, tmp_path: Path) -> None:
    root = os.environ.get(VOCABULARIES)
    if root is None:
        pytest.skip(f"{VOCABULARIES} names no directory of real OPUS-MT vocabularies")
    path = tmp_path / name
    path.mkdir()
    for file in (Path(root) / name).iterdir():
        (path / file.name).symlink_to(file)
    (path / "tokenizer_config.json").unlink()
    fields = json.loads((Path(root) / name / "tokenizer_config.json").read_bytes())
    fields["clean_up_tokenization_spaces"] = cleans_up
    (path / "tokenizer_config.json").write_text(json.dumps(fields))
    theirs, ours = tokenizers_of(path)
    assert ours.target.vocabulary.cleans_up == cleans_up
    # The library decodes with the source's SentencePiece model: pieces are the same.
    check(theirs, ours, all_lines())
    draw = np.random.default_rng(0)
    languages = {*ours.vocabulary.special_ids} - {*theirs.all_special_ids}
    tokens = [i for i in range(len(ours.vocabulary.pieces)) if i not in languages]
    for _ in range(2000):
        ids = draw.choice(tokens, draw.integers(0, 12)).tolist()
        shown = ours.target.decode(ids)
        assert shown.strip() == theirs.decode(ids, skip_special_tokens=True).strip()
