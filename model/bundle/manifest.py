"""The manifest of a bundle, `bundle.json`: its fields, reading and writing it, and errors."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

FORMAT_VERSION = 1
MANIFEST_FILE = "bundle.json"
WEIGHTS_FILE = "weights.bin"
CALIBRATION_FILE = "calibration.json"
RESIDENT_GRAPHS = ("copy_rows", "set_rows", "store_sources")
"""The graphs, by their names in the manifest, that only a bundle for GPUs has."""
SHORTLIST_GRAPHS = ("shortlist_step", "list_columns")
"""The graphs that only a bundle with a shortlist has."""
SENTENCEPIECE, PIECES, JSON_PIECES = "sentencepiece", "pieces", "json-pieces"
"""Kinds of tokenizers: `model.bundle.tokenizer.Tokenizer`, and
`model.bundle.piece_tokenizer.PieceTokenizer` with SentencePiece models or with a tokenizer.json."""
TOKEN_LISTS = ("prefix_ids", "start_ids", "special_ids")  # of a tokenizer of pieces
_NAME = re.compile(r"[^./\\\s]([^/\\]{0,126}[^/\\\s])?")  # travels in messages and labels
LANGUAGE = re.compile(r"[A-Za-z]{1,8}(-[A-Za-z0-9]{1,8}){0,8}")
_FIELDS: dict[str, type] = {
    "name": str,
    "version": str,
    "architecture": dict,
    "languages": dict,
    "special_ids": dict,
    "limits": dict,
    "precision": str,
    "top_k": int,
    "graphs": dict,
    "tokenizer": dict,
    "onnxruntime": dict,
    "sha256": dict,
    "provenance": dict,
}
# Fields that came later: bundles from before have none of them.
_OPTIONAL_ENTRIES: dict[str, dict[str, type]] = {
    "scoring": {"alignment_layer": int},
    "directions": {"sources": list, "targets": list, "token_ids": dict},
    "search": {"beam_size": int},
    "shortlist": {"file": str},
    "caches": {"dtype": str},
}
ENTRIES: dict[str, dict[str, type]] = {
    "languages": {"source": str, "target": str},
    "special_ids": {"pad": int, "unk": int, "bos": int, "eos": int},
    "limits": {"max_source_positions": int, "max_target_positions": int},
    "graphs": {"encoder": str, "decoder_step": str},
    "tokenizer": {"kind": str, "files": list},
    "onnxruntime": {"min": str, "below": str},
}


class BundleError(ValueError):
    """A bundle cannot be used. The message names the file and says what to do."""


class BundleMissingError(BundleError):
    """The directory or one of its files is not there."""


class BundleCorruptError(BundleError):
    """A file is not what the manifest says, or the manifest is not what this reader reads."""


class BundleVersionError(BundleError):
    """The bundle was made for another format version or another ONNX Runtime."""


def read_manifest(path: Path, content: bytes) -> dict[str, Any]:
    """Read the manifest in the directory `path`, and check the types of its fields.

    Raises:
        BundleCorruptError: it can't be read, or a field is missing or has another type.
        BundleVersionError: it is of another format version.
    """
    file = path / MANIFEST_FILE
    try:
        manifest = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as exc:  # neither UTF-8 nor JSON, or nested for ever
        raise broken_manifest(path, str(exc)) from exc
    if not isinstance(manifest, dict):
        raise broken_manifest(path, "it is not a JSON object")
    version = manifest.get("format_version")
    if version != FORMAT_VERSION:
        raise BundleVersionError(
            f"{file}: format version {version!r}, but this program reads version "
            f"{FORMAT_VERSION}: update dragoman, or export the checkpoint again"
        )
    check_fields(path, manifest, _FIELDS, "")
    for field, entries in {**ENTRIES, **_OPTIONAL_ENTRIES}.items():
        if field not in manifest and field in _OPTIONAL_ENTRIES:
            continue
        check_fields(path, manifest, {field: dict}, "")
        check_fields(path, manifest[field], entries, f"{field}.")
    return manifest


def check_fields(
    path: Path, fields: Mapping[str, Any], wanted: Mapping[str, type], prefix: str
) -> None:
    """Raise BundleCorruptError unless all wanted fields are there, of these types."""
    for name, kind in wanted.items():
        if name not in fields:
            raise broken_manifest(path, f"the field {prefix}{name} is missing")
        if not isinstance(fields[name], kind) or isinstance(fields[name], bool):
            raise broken_manifest(path, f"the field {prefix}{name} is not of type {kind.__name__}")


def broken_manifest(path: Path, why: str) -> BundleCorruptError:
    """The error about the manifest of the bundle at `path`."""
    return BundleCorruptError(
        f"{path / MANIFEST_FILE} cannot be used: {why}; copy the bundle again, or export it again"
    )


def write_manifest(directory: Path, manifest: Mapping[str, Any]) -> None:
    """Write `bundle.json` of format version 1 for the files that lie in `directory`.

    Args:
        directory: folder with the bundle's other files; all of them are listed with checksums.
        manifest: every field but `format_version` and `sha256`.
    """
    files = sorted(file for file in directory.iterdir() if file.name != MANIFEST_FILE)
    complete = {
        "format_version": FORMAT_VERSION,
        **manifest,
        "sha256": {file.name: file_sha256(file) for file in files},
    }
    rewrite_manifest(directory, complete)


def rewrite_manifest(directory: Path, manifest: Mapping[str, Any]) -> None:
    """Write `bundle.json` as it is."""
    text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    (directory / MANIFEST_FILE).write_text(text, encoding="utf-8")


@contextlib.contextmanager
def edited_manifest(directory: Path) -> Iterator[dict[str, Any]]:
    """The fields of `bundle.json`, which are written back at the end of the block."""
    fields: dict[str, Any] = json.loads((directory / MANIFEST_FILE).read_text(encoding="utf-8"))
    yield fields
    rewrite_manifest(directory, fields)


def why_no_name(name: str) -> str:
    """The reason why a model's name or version is not valid; "" if it is."""
    if _NAME.fullmatch(name) and name.isprintable():
        return ""
    return (
        "is not 1 to 128 printable characters without slashes, a dot at the beginning and spaces "
        "around"
    )


def why_no_language(code: str) -> str:
    """The reason why a language's code is not valid; "" if it is."""
    if LANGUAGE.fullmatch(code):
        return ""
    right = code.replace("_", "-")
    return "is no BCP-47 code" + (f", {code!r}: write {right}" if LANGUAGE.fullmatch(right) else "")


def file_sha256(file: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with file.open("rb") as reader:
        return hashlib.file_digest(reader, "sha256").hexdigest()


def manifest_sha256(path: Path) -> str:
    """The SHA-256 of the manifest in the directory `path`; "" if it can't be read.

    The manifest holds the checksums of all other files, so that it differs where one of them does.
    """
    try:
        return file_sha256(path / MANIFEST_FILE)
    except OSError:
        return ""
