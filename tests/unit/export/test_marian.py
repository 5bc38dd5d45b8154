"""Native Marian files: what is read, and what is refused by name."""

from __future__ import annotations

import io
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import yaml

from export.bundle_writer import ExportOptions
from export.errors import ExportError
from export.huggingface.vocabularies import read_vocabularies
from export.importer import import_directory
from export.marian.configuration import MarianFiles, is_marian
from export.marian.directory import MarianDirectory
from export.marian.vocabulary import read_pieces
from model.bundle.config import ModelConfig
from tests import foreign_models
from tests.native_marian import save_npz, write_native_marian


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("marian") / "model"
    write_native_marian(path)
    return path


def edit(file: Path, **fields: Any) -> None:
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **fields}))


def change(path: Path, arrays: Any = None, **options: Any) -> None:
    """Change options and arrays of the model; an array that is None is left out."""
    with np.load(path / "opus.npz") as given:
        old = {name: given[name] for name in given.files}
    fields = yaml.safe_load(old.pop("special:model.yml").tobytes().rstrip(b"\0"))
    new = {name: array for name, array in {**old, **(arrays or {})}.items() if array is not None}
    save_npz(path / "opus.npz", {**fields, **options}, new)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-500])


def declare(path: Path, *shape: int) -> None:
    """Say of an array without numbers that it has this shape."""
    head = io.BytesIO()
    fields = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(head, fields)
    with zipfile.ZipFile(path / "opus.npz", "a") as archive:
        archive.writestr("encoder_l1_extra_W.npy", head.getvalue())


WQ = "encoder_l1_self_Wq"
BAD: list[tuple[str, Callable[[Path], object]]] = [
    ("needs the vocabulary vocab", lambda p: change(p, **{"transformer-decoder-autoreg": "rnn"})),
    ("average attention", lambda p: change(
        p, **{"transformer-decoder-autoreg": "average-attention"})),
    ("type is 's2s'", lambda p: change(p, type="s2s")),
    ("approximation of GELU", lambda p: change(p, **{"transformer-ffn-activation": "gelu"})),
    ("ffn-depth is 3", lambda p: change(p, **{"transformer-ffn-depth": 3})),
    ("transformer-tied-layers is", lambda p: change(p, **{"transformer-tied-layers": [1, 1]})),
    ("-preprocess, -postprocess", lambda p: change(p, **{"transformer-postprocess": "dhn"})),
    ("dim-emb is 'wide'", lambda p: change(p, **{"dim-emb": "wide"})),
    ("has shape", lambda p: change(p, **{"transformer-dim-ffn": 40})),
    ("layers.2.*missing", lambda p: change(p, **{"enc-depth": 3})),
    ("is unknown", lambda p: change(p, {"encoder_l1_extra_W": np.zeros((2, 2), np.float32)})),
    ("is missing", lambda p: change(p, {WQ: None})),
    ("has numbers of type int8", lambda p: change(p, {WQ: np.zeros((32, 32), np.int8)})),
    ("no array of numbers", lambda p: change(p, {WQ: np.array([{}], object)})),
    ("is damaged", lambda p: cut(p / "opus.npz")),
    ("no special:model.yml", lambda p: np.savez(p / "opus.npz", Wemb=np.zeros(1))),
    ("is not YAML", lambda p: (p / "decoder.yml").write_text("a: [")),
    ("a word-penalty", lambda p: edit(p / "decoder.yml", **{"word-penalty": 0.5})),
    ("decoder.yml: .*invalid literal", lambda p: edit(p / "decoder.yml", **{"beam-size": "six"})),
    ("not an ensemble", lambda p: edit(p / "decoder.yml", models=["a.npz", "b.npz"])),
    ("opus.vocab.yml is missing", lambda p: (p / "opus.vocab.yml").unlink()),
    ("source.spm is missing", lambda p: (p / "source.spm").unlink()),
    ("line 3: '\"a\": b' is not a piece", lambda p: (p / "opus.vocab.yml").write_text(
        '"</s>": 0\n"<unk>": 1\n"a": b\n')),
    ("has no '<unk>'", lambda p: (p / "opus.vocab.yml").write_text('"</s>": 0\n')),
    # Sizes of which each is possible. Their products are terabytes.
    ("opus.npz: the vocabulary 256, dim-emb 65536 make", lambda p: change(p, **{"dim-emb": 2**16})),
    ("opus.npz: enc-depth 1024, dec-depth 3, transformer-dim-ffn 48, dim-emb 32 make",
     lambda p: change(p, **{"enc-depth": 1024})),
    ("'Wemb' has shape .1, 50000., not up to .* tokens of 32 numbers", lambda p: change(
        p, {"Wemb": np.zeros((1, 50_000), np.float32)})),
    ("'Wemb' has shape .50000., not up to", lambda p: change(
        p, {"Wemb": np.zeros(50_000, np.float32)})),
    ("logit_out_b' has shape .1, 50000., not up to", lambda p: change(
        p, {"decoder_ff_logit_out_b": np.zeros((1, 50_000), np.float32)})),
    ("self_Wq' has shape .2, 2, 2., not one or two", lambda p: change(
        p, {WQ: np.zeros((2, 2, 2), np.float32)})),
    ("self_Wq' has shape .., not one or two", lambda p: change(p, {WQ: np.float32(1.0)})),
    ("'encoder_l1_extra_W' is damaged", lambda p: declare(p, 2**24, 2**24)),
    ("'encoder_l1_extra_W' is damaged", lambda p: declare(p, 2**14, 2**14)),
    ("opus.npz holds .* bytes in", lambda p: np.savez_compressed(
        p / "opus.npz", Wemb=np.zeros((1000, 1000)))),
    ("npz is damaged, or no .npz", lambda p: np.save((p / "opus.npz").open("wb"), np.zeros(9))),
    ("opus.vocab.yml: the id 1000000000000 of 'new'", lambda p: (p / "opus.vocab.yml").write_text(
        '"</s>": 0\n"<unk>": 1\nnew: 1000000000000\n')),
    ("decoder.yml is not YAML: aliases", lambda p: (p / "decoder.yml").write_text(
        "a: &a [1, 1]\nmodels: [*a, *a]\n")),
    ("decoder.yml is not YAML: .*4300 digits", lambda p: (p / "decoder.yml").write_text(
        f"beam-size: {'9' * 5000}\n")),
    ("decoder.yml: cannot convert float infinity", lambda p: edit(
        p / "decoder.yml", **{"beam-size": float("inf")})),
    ("which languages", lambda p: None),
]  # fmt: skip


@pytest.mark.parametrize(("message", "spoil"), BAD, ids=[message for message, _ in BAD])
def test_bad_models(
    model: Path, tmp_path: Path, message: str, spoil: Callable[[Path], object]
) -> None:
    path = tmp_path / "bad"
    shutil.copytree(model, path)
    spoil(path)
    languages = None if "languages" in message else ("en", "de")
    with pytest.raises(ExportError, match=message):
        import_directory(path, tmp_path / "bundle", ExportOptions(), languages)
    assert [file.name for file in tmp_path.iterdir()] == ["bad"]


def test_files_are_found_without_decoder_yml(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "model"
    shutil.copytree(model, path)
    (path / "decoder.yml").unlink()
    (path / "opus.optimizer.npz").write_bytes(b"")
    assert is_marian(path)
    files = MarianFiles.find(path)
    assert (files.weights.name, files.vocabularies[1].name) == ("opus.npz", "opus.vocab.yml")
    shutil.copyfile(path / "opus.vocab.yml", path / "other.vocab.yml")
    with pytest.raises(ExportError, match="several vocabularies"):
        MarianFiles.find(path)
    edit_names = {"models": ["/elsewhere/opus.npz"], "vocabs": ["../opus.vocab.yml"]}
    (path / "decoder.yml").write_text(yaml.safe_dump(edit_names))  # only names count
    assert MarianFiles.find(path).vocabularies == (path / "opus.vocab.yml",) * 2


def test_a_sentencepiece_model_is_a_vocabulary(model: Path, tmp_path: Path) -> None:
    """Two of them: the rows of the shorter one are filled up."""
    path = tmp_path / "model"
    options: dict[str, Any] = {"tied-embeddings-all": False, "tied-embeddings": True}
    write_native_marian(path, **options)
    edit(path / "decoder.yml", vocabs=["source.spm", "target.spm"])
    directory = MarianDirectory.read(path)
    assert directory.sizes == tuple(
        len(read_pieces(path / f"{s}.spm")) for s in ("source", "target")
    )
    assert directory.tokenizer == {"separate_vocabs": True}
    vocabularies = read_vocabularies(directory, "en", "de")
    start, unk_id = max(directory.sizes), vocabularies.unk_id
    config = ModelConfig(
        start + 1, 8, 1, 1, 1, 8, pad_id=start, bos_id=start, unk_id=unk_id, eos_id=0
    )
    tokenizer = vocabularies.tokenizer(config)
    for each, side in ((tokenizer, "source"), (tokenizer.target, "target")):
        own = sentencepiece.SentencePieceProcessor(str(path / f"{side}.spm"))
        for text in foreign_models.lines(50):
            assert each.encode(text) == own.encode(text)


def test_pieces_that_a_yaml_parser_would_lose(tmp_path: Path) -> None:
    lines = ['"</s>": 0', "<unk>: 1", "null: 2", '"\u0085": 3', "'it''s': 4", '"\\"\\\\": 5']
    lines += ['"\\x85x": 6', '"\\U0001F600": 7', "a: b: 8", ": : 9", '"\u2028": 10', '"\\t\\_": 11']
    lines += ['"\\ud83d\\ude01": 12', '": 13']
    (tmp_path / "vocab.yml").write_text("---\n" + "\n".join(lines) + "\n", encoding="utf-8")
    found = list(read_pieces(tmp_path / "vocab.yml"))
    assert found == [
        "</s>", "<unk>", "null", "\u0085", "it's", '"\\', "\u0085x", "\U0001f600", "a: b", ":",
        "\u2028", "\t\u00a0", "\U0001f601", '"',
    ]  # fmt: skip
