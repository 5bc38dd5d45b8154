"""Loading a bundle: what is accepted, and what every kind of damage says."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from model.bundle.bundle import Bundle
from model.bundle.manifest import (
    BundleCorruptError,
    BundleError,
    BundleMissingError,
    BundleVersionError,
    write_manifest,
)
from tests.unit.model.bundle.conftest import edit


def test_says_what_it_is(directory: Path) -> None:
    bundle = Bundle.load(directory)
    assert (bundle.name, bundle.version) == ("en-de", "1")
    assert (bundle.source_language, bundle.target_language) == ("en", "de")
    assert (bundle.precision, bundle.top_k) == ("fp32", 5)
    assert bundle.max_source_positions == bundle.config.max_positions
    assert bundle.max_target_positions == bundle.config.max_positions
    assert bundle.encoder_path.is_file()
    assert bundle.decoder_step_path.is_file()
    assert bundle.tokenizer().vocab_size == bundle.config.vocab_size


@pytest.mark.parametrize("name", ["encoder.onnx", "decoder_step.onnx", "tokenizer.model"])
def test_a_flipped_byte_is_found_in_every_file(directory: Path, name: str) -> None:
    data = bytearray((directory / name).read_bytes())
    data[len(data) // 2] ^= 1
    (directory / name).write_bytes(data)
    with pytest.raises(BundleCorruptError, match=rf"{name} is damaged .*copy the bundle again"):
        Bundle.load(directory)
    assert Bundle.load(directory, verify=False).name == "en-de"


@pytest.mark.parametrize("name", ["encoder.onnx", "decoder_step.onnx", "tokenizer.model"])
@pytest.mark.parametrize("verify", [True, False])
def test_a_missing_file_is_named(directory: Path, name: str, verify: bool) -> None:
    (directory / name).unlink()
    with pytest.raises(BundleMissingError, match=rf"{name} is missing: copy"):
        Bundle.load(directory, verify=verify)


def test_no_directory_and_no_manifest(tmp_path: Path) -> None:
    with pytest.raises(BundleMissingError, match="there is no bundle at"):
        Bundle.load(tmp_path / "nowhere")
    with pytest.raises(BundleMissingError, match=r"bundle\.json is missing.*dragoman export"):
        Bundle.load(tmp_path)


@pytest.mark.parametrize(
    ("text", "why"),
    [*((text, "") for text in (b"", b"{", b"[]", b'"bundle"', b"\xff\xfe", b"null")),
     pytest.param(b"[" * 100_000, ".*recursion", id="nested for ever")],
    ids=repr,
)  # fmt: skip
def test_a_manifest_that_is_no_object(directory: Path, text: bytes, why: str) -> None:
    (directory / "bundle.json").write_bytes(text)
    with pytest.raises(BundleCorruptError, match=rf"bundle\.json cannot be used{why}"):
        Bundle.load(directory)


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_another_format_version_asks_for_an_update(directory: Path, version: object) -> None:
    edit(directory, lambda manifest: manifest.update(format_version=version))
    with pytest.raises(BundleVersionError, match=r"reads version 1: update dragoman"):
        Bundle.load(directory)


@pytest.mark.parametrize(("lowest", "below"), [("1.0", "1.2"), ("99.0", "99.1")])
def test_another_onnx_runtime_is_named(directory: Path, lowest: str, below: str) -> None:
    edit(directory, lambda manifest: manifest.update(onnxruntime={"min": lowest, "below": below}))
    installed = importlib.metadata.version("onnxruntime")
    message = f"from {lowest} to below {below}, but {installed} is installed"
    with pytest.raises(BundleVersionError, match=message):
        Bundle.load(directory)


def test_unknown_fields_and_files_are_left_alone(directory: Path) -> None:
    def add(manifest: dict[str, Any]) -> None:
        manifest["later"] = {"file": "later.bin"}
        manifest["limits"]["max_of_something"] = 3
        manifest["special_ids"]["mask"] = 7

    edit(directory, add)
    (directory / "NOTES.txt").write_text("mine")
    assert Bundle.load(directory).name == "en-de"


FIELDS = [
    "name",
    "version",
    "architecture",
    "languages",
    "special_ids",
    "limits",
    "precision",
    "top_k",
    "graphs",
    "tokenizer",
    "onnxruntime",
    "sha256",
    "provenance",
    "languages.source",
    "languages.target",
    "special_ids.eos",
    "limits.max_source_positions",
    "graphs.encoder",
    "graphs.decoder_step",
    "tokenizer.files",
    "onnxruntime.below",
]


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("fault", ["is missing", "is not of type"])
def test_a_bad_field_is_named(directory: Path, field: str, fault: str) -> None:
    def spoil(manifest: dict[str, Any]) -> None:
        *path, last = field.split(".")
        fields = manifest[path[0]] if path else manifest
        if fault == "is missing":
            del fields[last]
        else:
            fields[last] = True

    edit(directory, spoil)
    with pytest.raises(BundleCorruptError, match=rf"the field {field} {fault}"):
        Bundle.load(directory)


def test_contradictions_are_found(directory: Path) -> None:
    changes: dict[str, Callable[[dict[str, Any]], object]] = {
        "special_ids.eos contradicts": lambda m: m["special_ids"].update(eos=9),
        "limits.max_target_positions": lambda m: m["limits"].update(max_target_positions=65),
        "limits.max_source_positions is not between 2 and 64": (
            lambda m: m["limits"].update(max_source_positions=1)
        ),
        "top_k is not": lambda m: m.update(top_k=0),
        "architecture: num_heads": lambda m: m["architecture"].update(num_heads=3),
        "unknown field 'num_experts'": lambda m: m["architecture"].update(num_experts=3),
        "sha256 has no entry for 'other.onnx'": lambda m: m["graphs"].update(encoder="other.onnx"),
        "tokenizer.kind is neither": lambda m: m["tokenizer"].update(kind="words"),
        r"\['x'\] is not a file name": lambda m: m["tokenizer"].update(files=[["x"]]),
        r"\{'a': 1\} is not a file name": lambda m: m["graphs"].update(extra={"a": 1}),
        "precision is not one of fp32, fp16, int8": lambda m: m.update(precision="int4"),
        "onnxruntime.min is not a version": lambda m: m["onnxruntime"].update(min="9" * 5000),
        "architecture: ": lambda m: m["architecture"].update(dropout=["x"]),
    }
    original = (directory / "bundle.json").read_text(encoding="utf-8")
    for message, change in changes.items():
        edit(directory, change)  # type: ignore[arg-type]
        with pytest.raises(BundleCorruptError, match=message):
            Bundle.load(directory)
        (directory / "bundle.json").write_text(original, encoding="utf-8")


@pytest.mark.parametrize("field", ["source", "target"])
@pytest.mark.parametrize("code", ["de_DE", "zh_Hans-CN"])
def test_a_language_code_with_underscores_is_refused(
    directory: Path, field: str, code: str
) -> None:
    right = code.replace("_", "-")
    edit(directory, lambda manifest: manifest["languages"].update({field: code}))
    with pytest.raises(BundleCorruptError, match=f"languages.{field} .*{code}.* write {right}"):
        Bundle.load(directory)
    edit(directory, lambda manifest: manifest["languages"].update({field: right}))
    assert getattr(Bundle.load(directory), f"{field}_language") == right


@pytest.mark.parametrize("name", ["x" * 300, "a\0b", "\ud800"])
def test_a_file_name_that_no_file_can_have_is_an_error_like_others(
    directory: Path, name: str
) -> None:
    edit(directory, lambda manifest: manifest["sha256"].update({name: "0" * 64}))
    with pytest.raises(BundleError):
        Bundle.load(directory)


@pytest.mark.parametrize("name", ["bundle.json", "decoder_step.onnx"])
def test_what_cannot_be_read_is_named(directory: Path, name: str) -> None:
    file = directory / name
    file.unlink()
    if name == "bundle.json":
        file.mkdir()  # as unreadable as a file without permission, for root too
    else:
        file.symlink_to(file)
    with pytest.raises(BundleError, match=name):
        Bundle.load(directory)


@pytest.mark.parametrize("name", ["../secret", "/etc/hostname", "a/../../b"])
def test_a_file_outside_of_the_directory_is_refused(directory: Path, name: str) -> None:
    edit(directory, lambda manifest: manifest["sha256"].update({name: "0" * 64}))
    with pytest.raises(BundleCorruptError, match="leaves the directory"):
        Bundle.load(directory)


def test_a_tokenizer_of_another_size_is_refused(directory: Path) -> None:
    edit(directory, lambda manifest: manifest["architecture"].update(vocab_size=330))
    with pytest.raises(BundleCorruptError, match=r"tokenizer\.model has 320 pieces.* has 330"):
        Bundle.load(directory).tokenizer()


def test_every_error_is_a_value_error() -> None:
    assert issubclass(BundleError, ValueError)
    for error in (BundleCorruptError, BundleMissingError, BundleVersionError):
        assert issubclass(error, BundleError)


def test_writing_lists_every_file(directory: Path) -> None:
    manifest = json.loads((directory / "bundle.json").read_text(encoding="utf-8"))
    (directory / "MODEL_CARD.md").write_text("# A card\n")
    del manifest["sha256"], manifest["format_version"]
    write_manifest(directory, manifest)
    written = Bundle.load(directory).manifest
    assert set(written["sha256"]) == {
        "encoder.onnx",
        "decoder_step.onnx",
        "scoring.onnx",
        "attention.onnx",
        "weights.bin",
        "tokenizer.model",
        "MODEL_CARD.md",
    }
    assert written["format_version"] == 1
