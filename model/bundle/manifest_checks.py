"""Checks of a manifest: that it does not contradict itself, and fits what is installed."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model.bundle.carriers import parse_carriers
from model.bundle.config import LARGEST_SIZES
from model.bundle.manifest import (
    ENTRIES,
    JSON_PIECES,
    LANGUAGE,
    MANIFEST_FILE,
    PIECES,
    RESIDENT_GRAPHS,
    SENTENCEPIECE,
    SHORTLIST_GRAPHS,
    TOKEN_LISTS,
    BundleVersionError,
    broken_manifest,
    check_fields,
    why_no_language,
    why_no_name,
)
from model.bundle.piece_tokenizer import TOKENIZER_FILES

if TYPE_CHECKING:
    from model.bundle.bundle import Bundle

_PRECISIONS = ("fp32", "fp16", "int8")
_VERSION = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9}){0,9}")
_RUNTIME_PACKAGES = ("onnxruntime", "onnxruntime-gpu")


def check_consistency(bundle: Bundle) -> None:
    """Raise BundleCorruptError for a manifest that contradicts itself."""
    manifest, config = bundle.manifest, bundle.config
    for name, largest in LARGEST_SIZES.items():
        if getattr(config, name) > largest:
            raise broken_manifest(bundle.path, f"architecture.{name} is larger than {largest}")
    for name in ("name", "version"):
        if why := why_no_name(manifest[name]):
            raise broken_manifest(bundle.path, f"{name} {why}")
    for name in ENTRIES["languages"]:
        code = manifest["languages"][name]
        if why := why_no_language(code):
            raise broken_manifest(bundle.path, f"languages.{name} {why}")
    _check_directions(bundle)
    for name, value in manifest["special_ids"].items():
        if getattr(config, f"{name}_id", value) != value:
            raise broken_manifest(bundle.path, f"special_ids.{name} contradicts architecture")
    # A source ends with end-of-sentence, so that one position holds no text.
    for name, least, most in (
        ("max_source_positions", 2, config.num_source_positions),
        ("max_target_positions", 1, config.num_target_positions),
    ):
        if not least <= manifest["limits"][name] <= most:
            raise broken_manifest(bundle.path, f"limits.{name} is not between {least} and {most}")
    if not 1 <= manifest["top_k"] <= config.vocab_size:
        raise broken_manifest(bundle.path, "top_k is not between 1 and the vocabulary's size")
    if bundle.is_resident:
        _check_resident(bundle.path, manifest)
    if bundle.precision not in _PRECISIONS:
        raise broken_manifest(bundle.path, f"precision is not one of {', '.join(_PRECISIONS)}")
    if "caches" in manifest and {bundle.cache_dtype, bundle.precision} != {"int8"}:
        raise broken_manifest(bundle.path, "caches.dtype is int8 in bundles of precision int8 only")
    if bundle.scoring_path is not None:
        if "scoring" not in manifest:
            raise broken_manifest(bundle.path, "the field scoring is missing")
        if not 0 <= manifest["scoring"]["alignment_layer"] < config.num_decoder_layers:
            raise broken_manifest(bundle.path, "scoring.alignment_layer is no decoder layer")
        head = bundle.alignment_head
        if head is not None and (type(head) is not int or not 0 <= head < config.num_heads):
            raise broken_manifest(bundle.path, "scoring.alignment_head is no attention head")
    _check_tokenizer(bundle)
    try:
        parse_carriers(manifest.get("carriers", []))
    except ValueError as exc:
        raise broken_manifest(bundle.path, f"carriers{exc}") from exc
    for name in ENTRIES["onnxruntime"]:
        if not _VERSION.fullmatch(manifest["onnxruntime"][name]):
            raise broken_manifest(bundle.path, f"onnxruntime.{name} is not a version number")
    files = [(f"graphs.{name}", file) for name, file in manifest["graphs"].items()]
    files += [("tokenizer.files", file) for file in manifest["tokenizer"]["files"]]
    if (shortlist := manifest.get("shortlist")) is not None:
        check_fields(
            bundle.path, manifest["graphs"], dict.fromkeys(SHORTLIST_GRAPHS, str), "graphs."
        )
        files.append(("shortlist.file", shortlist["file"]))
    for field, file in files:
        if not isinstance(file, str):
            raise broken_manifest(bundle.path, f"{field}: {file!r:.100} is not a file name")
        if file not in manifest["sha256"]:
            raise broken_manifest(bundle.path, f"{field}: sha256 has no entry for {file!r:.100}")


def _check_tokenizer(bundle: Bundle) -> None:
    entry = bundle.manifest["tokenizer"]
    kinds = (SENTENCEPIECE, PIECES, JSON_PIECES)
    if entry["kind"] not in kinds:
        raise broken_manifest(
            bundle.path, f"tokenizer.kind is neither {', '.join(kinds[:-1])} nor {kinds[-1]}"
        )
    num_files = 1 if entry["kind"] == SENTENCEPIECE else len(TOKENIZER_FILES)
    if len(entry["files"]) < num_files:
        raise broken_manifest(bundle.path, f"tokenizer.files does not hold {num_files} names")
    if entry["kind"] == SENTENCEPIECE:
        return
    for name in TOKEN_LISTS:
        ids = entry.get(name)
        if not isinstance(ids, list) or any(
            type(i) is not int or not 0 <= i < bundle.config.vocab_size for i in ids
        ):
            raise broken_manifest(bundle.path, f"tokenizer.{name} is not a list of token ids")


def _check_directions(bundle: Bundle) -> None:
    try:
        directions = bundle.directions
    except ValueError as exc:
        raise broken_manifest(bundle.path, f"directions.{exc}") from exc
    for code in (*directions.sources, *directions.targets):
        if not LANGUAGE.fullmatch(code):
            raise broken_manifest(bundle.path, f"directions: {code!r:.100} is no BCP-47 code")
    if not directions.fits(bundle.source_language, bundle.target_language):
        raise broken_manifest(bundle.path, "languages is not among directions")
    if not directions.is_one and bundle.manifest["tokenizer"]["kind"] == SENTENCEPIECE:
        raise broken_manifest(
            bundle.path, f"directions need a tokenizer.kind of {PIECES} or {JSON_PIECES}"
        )


def check_runtime(bundle: Bundle) -> None:
    """Raise BundleVersionError if the installed ONNX Runtime is not one that it was made for."""
    installed = installed_runtime_version()
    wanted = bundle.manifest["onnxruntime"]
    if installed is None:
        return  # Nothing will run here; reading the manifest and the tokenizer is fine.
    if not _version(wanted["min"]) <= _version(installed) < _version(wanted["below"]):
        raise BundleVersionError(
            f"{bundle.path / MANIFEST_FILE}: this bundle was made for ONNX Runtime from "
            f"{wanted['min']} to below {wanted['below']}, but {installed} is installed: "
            f"install a version in that range, or export the checkpoint again"
        )


def _check_resident(path: Path, manifest: Mapping[str, Any]) -> None:
    if not isinstance(manifest["resident"], dict):
        raise broken_manifest(path, "the field resident is not of type dict")
    check_fields(path, manifest["resident"], {"token_groups": int}, "resident.")
    if not 0 <= manifest["resident"]["token_groups"] <= manifest["architecture"]["vocab_size"]:
        raise broken_manifest(
            path, "resident.token_groups is not between 0 and the vocabulary's size"
        )
    check_fields(path, manifest["graphs"], dict.fromkeys(RESIDENT_GRAPHS, str), "graphs.")


def installed_runtime_version() -> str | None:
    """The installed ONNX Runtime's version, found without importing it; None without one.

    Where both packages are there, in two folders of the path, it is the one that is imported.
    """
    module = importlib.util.find_spec("onnxruntime")
    versions = []
    for package in _RUNTIME_PACKAGES:
        try:
            found = importlib.metadata.distribution(package)
        except importlib.metadata.PackageNotFoundError:
            continue
        own = Path(str(found.locate_file("onnxruntime/__init__.py")))
        if module is not None and module.origin and Path(module.origin) == own:
            return found.version
        versions.append(found.version)
    return versions[0] if versions else None


def _version(text: str) -> tuple[int, ...]:
    """The leading numbers: "1.31.1+cpu" gives (1, 31, 1)."""
    numbers: list[int] = []
    for part in text.split("+")[0].split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)
