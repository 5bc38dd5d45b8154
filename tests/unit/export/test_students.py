"""Files of students: what is read, and what is refused by name before anything is written."""

from __future__ import annotations

import gzip
import json
import shutil
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from sentencepiece import sentencepiece_model_pb2

from bench.random_student import random_student
from export.bundle_writer import ExportOptions
from export.errors import ExportError
from export.importer import import_directory
from export.marian.binary import INTGEMM16, TEXT, read_binary, read_compressed
from export.marian.binary_writer import (
    WrittenItem,
    binary,
    float_item,
    float_items,
    int8_item,
    quantized,
)
from export.students.files import StudentFiles, is_student
from export.students.reader import read_student
from model.bundle.config import AlignmentHead
from model.network.transformer import Transformer
from tests.native_marian import save_npz
from tests.students import (
    VOCAB_SIZE,
    arrays_of,
    int8_student,
    options_of,
    student_config,
    vocabulary,
    write_student,
)

SMALL: dict[str, Any] = dict(d_model=64, ffn_dim=96, num_encoder_layers=1, num_decoder_layers=2)
MODEL = "model.ende.intgemm.alphas.bin"


@pytest.fixture(scope="module")
def network() -> Transformer:
    return random_student(student_config(**SMALL))


@pytest.fixture(scope="module")
def student(network: Transformer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("students") / "ende"
    write_student(path, network)
    return path


def logits(model: Transformer, vocab_size: int = VOCAB_SIZE) -> torch.Tensor:
    """Of one sentence and translation; tokens are those of files, from which decoders start."""
    source, target = torch.tensor([[5, 9, 7, 33, 0]]), torch.tensor([[0, 8, 90, 91, 3]])
    target[0, 0] = model.config.bos_id
    with torch.inference_mode():
        mask = torch.ones_like(source, dtype=torch.bool)
        found: torch.Tensor = model(source, target, mask)[..., :vocab_size]
    return found


def test_float32_files_are_the_network_and_8_bits_are_near(
    network: Transformer, student: Path, tmp_path: Path
) -> None:
    expected = logits(network)
    found = read_student(student, None)
    assert (logits(found.model) - expected).abs().max() < 0.1 * expected.abs().max()
    items, options = float_items(arrays_of(network)), options_of(network.config)
    writers: dict[str, Callable[[Path], object]] = {
        "model.bin": lambda file: file.write_bytes(binary(items, options)),
        "model.bin.gz": lambda file: file.write_bytes(gzip.compress(binary(items, options))),
        "model.npz": lambda file: save_npz(file, options, arrays_of(network)),
    }
    for name, write in writers.items():
        path = tmp_path / name.replace(".", "-")
        path.mkdir()
        write(path / name)
        (path / "vocab.ende.spm").write_bytes(vocabulary())
        exact = read_student(path, None)
        torch.testing.assert_close(logits(exact.model), expected, rtol=1e-5, atol=1e-5)
    assert exact.model.config.decoder == "ssru"
    assert exact.alignment_head == AlignmentHead(1, 0)
    assert exact.search == {"beam_size": 1, "suppressed_ids": [1]}


def test_zstandard(student: Path, tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard", reason="needs zstandard: pip install zstandard")
    content = (student / MODEL).read_bytes()
    whole = zstandard.compress(content)
    file = tmp_path / "model.ende.bin.zst"
    file.write_bytes(whole)
    assert read_compressed(file) == content
    for bad, message in (
        (whole[: len(whole) // 2], "takes|damaged"),
        (b"no archive", "is damaged"),
        (zstandard.compress(bytes(2**22)), "holds more than [0-9,]+ bytes"),
    ):
        file.write_bytes(bad)
        with pytest.raises(ExportError, match=f"model.ende.bin.zst.*({message})"):
            read_binary(file)


def test_16_bits(network: Transformer, tmp_path: Path) -> None:
    items = float_items(arrays_of(network))
    for name, (_, shape, data) in list(items.items()):
        if name.endswith(("W1", "Wemb")):
            matrix = np.frombuffer(data, np.float32).reshape(shape)
            stored = matrix if name == "Wemb" else matrix.T
            items[name] = WrittenItem(INTGEMM16, shape, quantized(stored, "<i2", 1023))
    (tmp_path / "model.bin").write_bytes(binary(items, options_of(network.config)))
    (tmp_path / "vocab.spm").write_bytes(vocabulary())
    expected = logits(network)
    found = read_student(tmp_path, ("en", "de"))
    assert "intgemm16" in found.architecture
    assert (logits(found.model) - expected).abs().max() < 0.01 * expected.abs().max()


def test_two_vocabularies(tmp_path: Path) -> None:
    model = random_student(student_config(**SMALL, embedding_tying="target"))
    write_student(tmp_path / "jaen", model)
    found = read_student(tmp_path / "jaen", ("ja", "en"))
    assert found.config.embedding_tying == "target"
    assert found.tokenizer.vocabulary.model != found.tokenizer.target.vocabulary.model
    expected = logits(model)
    assert (logits(found.model) - expected).abs().max() < 0.1 * expected.abs().max()


@pytest.mark.parametrize(
    ("directory", "model", "metadata", "languages"),
    [
        ("any", "model.ende.intgemm.alphas.bin", None, ("en", "de")),
        ("any", "model.enzh.bin", None, ("en", "zh")),
        ("jaen", "model.bin", None, ("ja", "en")),
        ("firefox-fr-en", "model.npz", None, ("fr", "en")),
        ("any", "model.bin", {"sourceLanguage": "cs", "targetLanguage": "en"}, ("cs", "en")),
        ("any", "model.bin", None, None),
    ],
)
def test_languages_are_those_of_names_or_metadata(
    tmp_path: Path,
    directory: str,
    model: str,
    metadata: dict[str, str] | None,
    languages: tuple[str, str] | None,
) -> None:
    path = tmp_path / directory
    path.mkdir()
    file = path / "vocab.spm"
    if metadata is not None:
        (path / "metadata.json").write_text(json.dumps(metadata))
    files = StudentFiles(path, path / model, (file, file))
    if languages is None:
        with pytest.raises(ExportError, match="does not say which languages"):
            files.languages(None)
    else:
        assert files.languages(None) == languages
    assert files.languages(("da", "sv")) == ("da", "sv")


def test_directories_of_others_are_not_students(tmp_path: Path) -> None:
    assert not is_student(tmp_path / "missing")
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    (tmp_path / "lex.50.50.ende.s2t.bin").write_bytes(b"")
    assert not is_student(tmp_path)
    (tmp_path / "model.ende.bin.gz").write_bytes(b"")
    assert is_student(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    assert not is_student(tmp_path)


@pytest.mark.parametrize("name", ["empty", "missing"])
def test_a_folder_without_a_model_says_so(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ExportError, match=f"{name} has no model of a student, model.*.bin or a"):
        read_student(tmp_path / name, None)


def edited(
    change: Callable[[dict[str, Any]], object] = lambda _: None,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> Callable[[Path, Transformer], object]:
    """Write the model with other items or options."""

    def write(path: Path, network: Transformer) -> None:
        items: dict[str, Any] = int8_student(network)
        change(items)
        (path / MODEL).write_bytes(binary(items, options_of(network.config, **options)))

    return write


def bad_options(path: Path, network: Transformer) -> None:
    """Write the model with options that no YAML parser reads."""
    items: dict[str, Any] = int8_student(network)
    items["special:model.yml"] = WrittenItem(TEXT, (6,), b"a: [\0")
    (path / MODEL).write_bytes(binary(items))


def bytes_at(offset: int, content: bytes) -> Callable[[Path, Transformer], object]:
    """Overwrite bytes of the model."""

    def write(path: Path, network: Transformer) -> None:
        whole = bytearray((path / MODEL).read_bytes())
        whole[offset : offset + len(content)] = content
        (path / MODEL).write_bytes(whole)

    return write


def cut(size: int) -> Callable[[Path, Transformer], object]:
    """Keep so many bytes of the model."""
    return lambda path, _: (path / MODEL).write_bytes((path / MODEL).read_bytes()[:size])


def gate(value: float) -> WrittenItem:
    return float_item(np.float32(value).reshape(1, 1))


def not_utf8(content: bytes) -> bytes:
    """A vocabulary with a piece that is no text."""
    model: Any = sentencepiece_model_pb2
    piece = max(model.ModelProto.FromString(content).pieces, key=lambda p: len(p.piece)).piece
    return content.replace(piece.encode(), b"\xff" * len(piece.encode()), 1)


HUGE = struct.pack("<Q", 2**60)
WQ = "encoder_l1_self_Wq"
ALPHA = f"{WQ}_QuantMultA"
BAD: dict[str, Callable[[Path, Transformer], object]] = {
    # The header. Items begin at byte 16, each with its name's length, type, dimensions and size.
    r"alphas.bin is cut off or damaged: the version takes 8 bytes, but 0": cut(0),
    r"its first number is 2, not 1": bytes_at(0, struct.pack("<Q", 2)),
    r"no binary Marian model": bytes_at(0, b"PK\x03\x04abcd"),
    r"headers of 1,152,921,504,606,846,976 items takes": bytes_at(8, HUGE),
    r"the name of item 0 takes 1,152": bytes_at(16, HUGE),
    r"numbers of type 0x1101, which is not supported": edited(
        lambda items: items.update({WQ: items[WQ]._replace(kind=0x1101)})),
    r"has 1,152,921,504,606,846,976 dimensions": bytes_at(32, HUGE),
    r"the data of '\w+' takes 1,152": bytes_at(40, HUGE),
    r"is cut off or damaged: the headers of \d+ items": cut(100),
    r"is cut off or damaged: the data of": cut(-300),
    r"'encoder_l1_self_Wq' has shape \[30000, 30000\], which takes 900,000,004 bytes": edited(
        lambda items: items.update({WQ: items[WQ]._replace(shape=(30000, 30000))})),
    r"'encoder_l1_self_Wq' has the shape \[-1, 64\]": edited(
        lambda items: items.update({WQ: items[WQ]._replace(shape=(-1, 64))})),
    # Scales.
    r"encoder_l1_self_Wq_QuantMultA is \[0.0\], not one number from 1e-33": edited(
        lambda items: items.update({ALPHA: gate(0.0)})),
    r"'encoder_l1_self_Wq_QuantMultA' holds infinite or undefined": edited(
        lambda items: items.update({ALPHA: gate(np.nan)})),
    r"encoder_l1_self_Wq_QuantMultA is missing": edited(lambda items: items.pop(ALPHA)),
    r"encoder_l1_self_Wq_QuantMultA is \[1.0\], not one number": edited(
        lambda items: items.update({ALPHA: int8_item(ALPHA, np.ones((1, 1), np.float32))})),
    r"none of none_QuantMultA, Wemb_QuantMultA, decoder_Wemb_QuantMultA": edited(
        lambda items: (items.pop("none_QuantMultA"), items.pop("Wemb_QuantMultA"))),
    r"'Wemb_QuantMultA' has the multiplier nan": edited(lambda items: items.update(
        {"Wemb_QuantMultA": items["Wemb_QuantMultA"]._replace(
            data=b"\x7f" + np.float32(np.nan).tobytes())})),
    r"Wemb_QuantMultA is \[-15.875\], not one number from 1e-33": edited(lambda items: items.update(
        {"Wemb_QuantMultA": items["Wemb_QuantMultA"]._replace(
            data=b"\x81" + np.float32(8).tobytes())})),
    r"'encoder_l1_self_Wq' has the multiplier nan": edited(lambda items: items.update(
        {WQ: items[WQ]._replace(data=items[WQ].data[:-4] + np.float32(np.nan).tobytes())})),
    r"'encoder_l1_self_Wq' has the multiplier 9.99": edited(lambda items: items.update(
        {WQ: items[WQ]._replace(data=items[WQ].data[:-4] + np.float32(1e-40).tobytes())})),
    # Weights that contradict the options or the vocabulary.
    r"encoder_l1_self_bq is missing": edited(lambda items: items.pop("encoder_l1_self_bq")),
    r"encoder_l01_self_Wq is a weight that students do not have": edited(
        lambda items: items.update({"encoder_l01_self_Wq": gate(1.0)})),
    r"the name of item \d+ is 'x\\n\\x1b'": edited(
        lambda items: items.update({"x\n\x1b": gate(1.0)})),
    r"encoder_l1_extra_W is a weight that students do not have": edited(
        lambda items: items.update({"encoder_l1_extra_W": gate(1.0)})),
    r"decoder_l1_ffn_W1 has shape \[64, 96\], the options say \[64, 90\]": edited(
        options={"transformer-dim-ffn": 90}),
    r"decoder_l2_\w+ is in a layer that the options do not have": edited(options={"dec-depth": 1}),
    r"enc-depth 1000000, .* weights or more, but there are": edited(
        options={"enc-depth": 1000000}),
    r"Wemb has shape \[180, 64\], but the source vocabulary has 170 pieces": lambda path, _: (
        path / "vocab.ende.spm").write_bytes(vocabulary(size=170)),
    # Options.
    r"dim-emb is 'wide'": edited(options={"dim-emb": "wide"}),
    r"dim-emb is 0, not a number between": edited(options={"dim-emb": 0}),
    r"bad: d_model / num_heads is 1, but": edited(options={"transformer-heads": 64}),
    r"tied-embeddings-all is 'no', neither true nor false": edited(
        options={"tied-embeddings-all": "no"}),
    r"num_heads \(7\) must divide d_model": edited(options={"transformer-heads": 7}),
    r"transformer-decoder-autoreg is 'self-attention', which is not supported": edited(
        options={"transformer-decoder-autoreg": "self-attention"}),
    r"type is 's2s', which is not supported": edited(options={"type": "s2s"}),
    r"dec-cell is 'gru'": edited(options={"dec-cell": "gru"}),
    r"tied-embeddings is not set": edited(options={"tied-embeddings-all": False}),
    r"guided-alignment-layer is 3, not a layer between 1 and 2": edited(
        options={"transformer-guided-alignment-layer": 3}),
    r"guided-alignment-layer is '1111.*, not a layer between 1 and 2": edited(
        options={"transformer-guided-alignment-layer": "1" * 5000}),
    r"special:model.yml\) is not YAML": bad_options,
    # Files.
    r"vocab.ende.spm is not a SentencePiece model": lambda path, _: (
        path / "vocab.ende.spm").write_bytes(b"nothing"),
    r"bad/vocab.ende.spm is not a SentencePiece model": lambda path, _: (
        path / "vocab.ende.spm").write_bytes(not_utf8(vocabulary())),
    r"metadata.json: targetLanguage, 'd\\n', is no BCP-47 code": lambda path, _: (
        path / "metadata.json").write_text('{"sourceLanguage": "en", "targetLanguage": "d\\n"}'),
    r"needs the vocabulary vocab.\*.spm": lambda path, _: (path / "vocab.ende.spm").unlink(),
    r"has several models \(a.bin, model": lambda path, _: (path / "a.bin").write_bytes(b""),
    r"has several vocabularies": lambda path, _: (path / "vocab.spm").write_bytes(b""),
    r"is a Git LFS pointer": lambda path, _: (path / MODEL).write_bytes(
        b"version https://git-lfs.github.com/spec/v1\n"),
}  # fmt: skip


@pytest.mark.parametrize("message", BAD)
def test_bad_models(message: str, student: Path, network: Transformer, tmp_path: Path) -> None:
    path, output = tmp_path / "bad", tmp_path / "bundle"
    shutil.copytree(student, path)
    BAD[message](path, network)
    with pytest.raises(ExportError, match=message):
        import_directory(path, output, ExportOptions())
    assert sorted(tmp_path.iterdir()) == [path]


def test_archives_that_grow_or_end_are_refused(student: Path, tmp_path: Path) -> None:
    whole = gzip.compress((student / MODEL).read_bytes())
    for content, message in (
        (gzip.compress(bytes(2**22)), "holds more than [0-9,]+ bytes when decompressed"),
        (whole[:-100], "is cut off or damaged"),
        (b"no archive", "is damaged|Not a gzipped"),
        (whole[:100] + bytes(50) + whole[150:], "is cut off or damaged|is damaged"),
    ):
        file = tmp_path / "model.bin.gz"
        file.write_bytes(content)
        with pytest.raises(ExportError, match=f"model.bin.gz.*({message})"):
            read_binary(file)


def test_whatever_is_overwritten_the_error_is_clear(student: Path, tmp_path: Path) -> None:
    """Random bytes and lengths: a model, or an error that names the file."""
    whole, draw = (student / MODEL).read_bytes(), np.random.default_rng(0)
    file = tmp_path / MODEL
    for _ in range(300):
        content = bytearray(whole[: int(draw.integers(0, len(whole) + 1))])
        for _ in range(int(draw.integers(0, 4))):
            start = int(draw.integers(0, min(len(content), 4000) + 1))
            content[start : start + 4] = draw.bytes(4)
        file.write_bytes(content)
        message = message_of(file)
        assert message is None or str(file) in message


def message_of(file: Path) -> str | None:
    """Of the error that reading it raises, if it raises one."""
    try:
        for item in read_binary(file).values():
            item.numbers()
    except ExportError as exc:
        return str(exc)
    return None
