"""The bundle: a directory with everything that is served, and nothing that needs torch.

    bundle.json          what the model is, how its graphs are used, checksums of all files
    encoder.onnx         source ids -> cross-attention keys and values
    decoder_step.onnx    one token for every running row
    scoring.onnx         log-probabilities and alignment of a given target; optional
    attention.onnx       attention weights of a given target, by kind, layer and head; optional
    weights.bin          the graphs' weights; optional: a graph can hold its own
    copy_rows.onnx, set_rows.onnx, store_sources.onnx
                         only of a bundle for GPUs: what stays there between two steps
    tokenizer.model      SentencePiece; of an imported model, the files of
    `model.bundle.piece_tokenizer` calibration.json     from log-probabilities to expected quality
    (`model.bundle.calibration`); optional MODEL_CARD.md        optional

Format version 1. A later version may add fields, which this reader ignores; it may not remove or
reinterpret one without a new version number. Files that the manifest doesn't list are left alone.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import importlib.util
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from model.bundle.calibration import Calibration, CalibrationError
from model.bundle.config import LARGEST_SIZES, ConfigError, ModelConfig
from model.bundle.directions import Directions
from model.bundle.held_files import HeldFiles
from model.bundle.piece_tokenizer import TOKENIZER_FILES, PieceTokenizer
from model.bundle.tokenizer import MissingPackageError, Tokenizer, TokenizerError

FORMAT_VERSION = 1
MANIFEST_FILE = "bundle.json"
WEIGHTS_FILE = "weights.bin"
CALIBRATION_FILE = "calibration.json"
RESIDENT_GRAPHS = ("copy_rows", "set_rows", "store_sources")
"""The graphs, by their names in the manifest, that only a bundle for GPUs has."""
SENTENCEPIECE, PIECES, JSON_PIECES = "sentencepiece", "pieces", "json-pieces"
"""Kinds of tokenizers: `model.bundle.tokenizer.Tokenizer`, and
`model.bundle.piece_tokenizer.PieceTokenizer` with SentencePiece models or with a tokenizer.json."""
_TOKEN_LISTS = ("prefix_ids", "start_ids", "special_ids")  # of a tokenizer of pieces
_PRECISIONS = ("fp32", "fp16", "int8")
_NAME = re.compile(r"[^./\\\s]([^/\\]{0,126}[^/\\\s])?")  # travels in messages and labels
_LANGUAGE = re.compile(r"[A-Za-z]{1,8}(-[A-Za-z0-9]{1,8}){0,8}")
_VERSION = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9}){0,9}")
_RUNTIME_PACKAGES = ("onnxruntime", "onnxruntime-gpu")
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
}
_ENTRIES: dict[str, dict[str, type]] = {
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


@dataclass(frozen=True)
class Bundle:
    """A bundle on disk whose manifest has been read and, unless asked otherwise, verified.

    Its files are open from before they are verified, and everything is read from these: a bundle
    may be renamed, replaced or deleted afterwards.

    Attributes:
        path: its directory.
        manifest: contents of `bundle.json`.
        config: the architecture of the model.
        files: all its files, by their paths.
        manifest_sha256: the SHA-256 of `bundle.json`, which has the checksums of all other files.
    """

    path: Path
    manifest: Mapping[str, Any]
    config: ModelConfig
    files: HeldFiles = dataclasses.field(repr=False, compare=False)
    manifest_sha256: str = ""

    @classmethod
    def load(cls, path: Path | str, verify: bool = True) -> Bundle:
        """Read the bundle in the directory `path`.

        Args:
            path: the directory.
            verify: also read every file and compare its checksum.

        Raises:
            BundleMissingError: the directory or a file is missing.
            BundleCorruptError: the manifest cannot be read, or a checksum differs.
            BundleVersionError: wrong format version, or made for another ONNX Runtime than the
                installed one.
            BundleError: a file cannot be read, for lack of permission for example.
        """
        try:
            return cls._load(Path(path), verify)
        except OSError as exc:
            raise BundleError(
                f"{exc.filename or path} cannot be read: {exc.strerror}; make it readable for the "
                f"user that runs this, or copy the bundle again"
            ) from exc

    @classmethod
    def _load(cls, path: Path, verify: bool) -> Bundle:
        files, content = _open(path)
        manifest = _read_manifest(path, content)
        try:
            config = ModelConfig.from_dict(manifest["architecture"])
        except ConfigError as exc:
            raise broken_manifest(path, f"architecture: {exc}") from exc
        bundle = cls(path, manifest, config, files, hashlib.sha256(content).hexdigest())
        bundle._check_consistency()
        bundle._check_runtime()
        bundle._hold_files()
        if verify:
            bundle.verify(*(path / name for name in sorted(manifest["sha256"])))
        return bundle

    def verify(self, *paths: Path) -> None:
        """Compare the checksums of files.

        Raises:
            BundleCorruptError: one differs; names the file.
            OSError: one can't be read.
        """
        for path in paths:
            self._check(path, self.files.sha256(path))

    def read(self, path: Path) -> bytes:
        """The verified content of a file. Errors as for `verify`."""
        content = self.files.read(path)
        self._check(path, hashlib.sha256(content).hexdigest())
        return content

    def _check(self, path: Path, found: str) -> None:
        checksums = {self.path / name: sha256 for name, sha256 in self.manifest["sha256"].items()}
        if found != checksums[path]:
            raise BundleCorruptError(
                f"{path} is damaged or was written over (its sha256 is not the one in "
                f"{MANIFEST_FILE}): copy the bundle again, or export it again"
            )

    @property
    def name(self) -> str:
        """The name under which requests ask for this model."""
        return str(self.manifest["name"])

    @property
    def version(self) -> str:
        """The version of this model, chosen at export."""
        return str(self.manifest["version"])

    @property
    def source_language(self) -> str:
        """BCP-47 code of the language that is translated from; with several, of one of them."""
        return str(self.manifest["languages"]["source"])

    @property
    def target_language(self) -> str:
        """BCP-47 code of the language that is translated to; with several, of one of them."""
        return str(self.manifest["languages"]["target"])

    @property
    def directions(self) -> Directions:
        """All directions; `languages` names one of them, which the tokenizer is for."""
        if (entry := self.manifest.get("directions")) is not None:
            return Directions.from_dict(entry, self.config.vocab_size)
        return Directions.one(self.source_language, self.target_language)

    @property
    def precision(self) -> str:
        """One of fp32, fp16, int8."""
        return str(self.manifest["precision"])

    @property
    def top_k(self) -> int:
        """Tokens that a step returns for each row, unless the runner is told otherwise."""
        return int(self.manifest["top_k"])

    @property
    def max_source_positions(self) -> int:
        """Longest source in tokens, end-of-sentence included; the server splits longer texts.

        It is the length that one training pair in a thousand reaches (`Checkpoint.trained_length`),
        or the size of the position table (`config.num_source_positions`) where that is not known.
        """
        return int(self.manifest["limits"]["max_source_positions"])

    @property
    def max_target_positions(self) -> int:
        """Longest target in tokens, end-of-sentence included."""
        return int(self.manifest["limits"]["max_target_positions"])

    @property
    def search(self) -> dict[str, Any]:
        """The search that an imported model's authors chose; empty if there is none.

        By the names of `service.domain.requests.SearchOptions`; `beam_size` is always there.
        """
        return dict(self.manifest.get("search", {}))

    @property
    def origin(self) -> str:
        """Where the weights come from, in words; "" if the manifest does not say."""
        provenance = self.manifest["provenance"]
        imported = provenance.get("imported_from")
        if not isinstance(imported, dict):
            recipe = _words(provenance.get("recipe"))
            return f"trained with the recipe {recipe}" if recipe else ""
        name = _words(imported.get("hub")) or _words(imported.get("directory")) or "files"
        facts = (
            _words(imported.get("architecture")),
            (revision := _words(imported.get("revision"))) and f"revision {revision[:12]}",
            (licence := _words(imported.get("license"))) and f"licence {licence}",
            # Bundles from before there was a choice have a proof, or no such field.
            "not proven" if provenance.get("proof", "") is None else "",
        )
        known = ", ".join(filter(None, facts))
        return f"imported from {name}" + (f" ({known})" if known else "")

    def calibration(self) -> Calibration | None:
        """The map from log-probabilities to expected quality; None if it was never measured.

        Raises:
            BundleCorruptError: its file can't be read.
        """
        if CALIBRATION_FILE not in self.manifest["sha256"]:
            return None
        file = self.path / CALIBRATION_FILE
        try:
            return Calibration.parse(self.read(file))
        except (CalibrationError, OSError) as exc:
            raise BundleCorruptError(
                f"{file} cannot be used: {exc}; calibrate the bundle again"
            ) from exc

    @property
    def num_bytes(self) -> int:
        """Size of its files."""
        return sum(self.files.size(self.path / name) for name in self.manifest["sha256"])

    @property
    def encoder_path(self) -> Path:
        """The encoder graph."""
        return self.path / str(self.manifest["graphs"]["encoder"])

    @property
    def decoder_step_path(self) -> Path:
        """The decoder-step graph."""
        return self.path / str(self.manifest["graphs"]["decoder_step"])

    @property
    def is_resident(self) -> bool:
        """Whether its graphs can keep everything on a GPU between two steps."""
        return "resident" in self.manifest

    @property
    def token_groups(self) -> int:
        """Groups of tokens that a resident step chooses from first; 0 if it has none."""
        return int(self.manifest.get("resident", {}).get("token_groups", 0))

    def graph_path(self, name: str) -> Path:
        """The graph `name` of a resident bundle, one of `RESIDENT_GRAPHS`."""
        return self.path / str(self.manifest["graphs"][name])

    @property
    def scoring_path(self) -> Path | None:
        """The scoring graph; None in a bundle from before there was one."""
        name = self.manifest["graphs"].get("scoring")
        return None if name is None else self.path / str(name)

    @property
    def attention_path(self) -> Path | None:
        """The attention graph; None in a bundle from before there was one."""
        name = self.manifest["graphs"].get("attention")
        return None if name is None else self.path / str(name)

    @property
    def weights_path(self) -> Path | None:
        """The weights that the graphs share; None if each holds its own."""
        return self.path / WEIGHTS_FILE if WEIGHTS_FILE in self.manifest["sha256"] else None

    @property
    def can_align(self) -> bool:
        """Whether its attention says which source token a target token comes from."""
        return self.config.cross_attention == "full"

    @property
    def alignment_layer(self) -> int | None:
        """The decoder layer, from 0, whose attention is the alignment; None without scoring."""
        return self.manifest["scoring"]["alignment_layer"] if self.scoring_path else None

    @property
    def alignment_head(self) -> int | None:
        """The head of that layer which was trained to align; None for the mean of all heads."""
        return self.manifest["scoring"].get("alignment_head") if self.scoring_path else None

    def tokenizer(self) -> Tokenizer:
        """The tokenizer, newly loaded.

        Raises:
            BundleCorruptError: its vocabulary is not the model's, or a checksum differs.
            TokenizerError: a file can't be read.
        """
        entry = self.manifest["tokenizer"]
        files = [self.path / name for name in entry["files"]]
        file = files[0]
        try:
            if entry["kind"] != SENTENCEPIECE:
                ids = {name: entry[name] for name in _TOKEN_LISTS}
                cleans_up = bool(entry.get("cleans_up", False))
                return PieceTokenizer.load_files(
                    files, self.config, read=self.read, cleans_up=cleans_up, **ids
                )
            tokenizer = Tokenizer.load(file, self.read)
        except MissingPackageError as exc:
            raise MissingPackageError(f"{self.path}: {exc}") from exc
        except TokenizerError as exc:
            raise TokenizerError(f"{exc}: copy the bundle again, or export it again") from exc
        if tokenizer.vocab_size != self.config.vocab_size:
            raise BundleCorruptError(
                f"{file} has {tokenizer.vocab_size} pieces, but the model has "
                f"{self.config.vocab_size} (architecture.vocab_size): export the bundle again"
            )
        for name in _ENTRIES["special_ids"]:
            known, said = getattr(tokenizer, f"{name}_id"), getattr(self.config, f"{name}_id")
            if known not in (-1, said):  # -1: there is none
                raise BundleCorruptError(
                    f"{file} has {name} at {known}, but architecture.{name}_id is {said}: "
                    f"export the bundle again"
                )
        return tokenizer

    def _check_consistency(self) -> None:
        manifest, config = self.manifest, self.config
        for name, largest in LARGEST_SIZES.items():
            if getattr(config, name) > largest:
                raise broken_manifest(self.path, f"architecture.{name} is larger than {largest}")
        for name in ("name", "version"):
            if why := why_no_name(manifest[name]):
                raise broken_manifest(self.path, f"{name} {why}")
        for name in _ENTRIES["languages"]:
            code = manifest["languages"][name]
            if why := why_no_language(code):
                raise broken_manifest(self.path, f"languages.{name} {why}")
        self._check_directions()
        for name, value in manifest["special_ids"].items():
            if getattr(config, f"{name}_id", value) != value:
                raise broken_manifest(self.path, f"special_ids.{name} contradicts architecture")
        # A source ends with end-of-sentence, so that one position holds no text.
        for name, least, most in (
            ("max_source_positions", 2, config.num_source_positions),
            ("max_target_positions", 1, config.num_target_positions),
        ):
            if not least <= manifest["limits"][name] <= most:
                raise broken_manifest(self.path, f"limits.{name} is not between {least} and {most}")
        if not 1 <= manifest["top_k"] <= config.vocab_size:
            raise broken_manifest(self.path, "top_k is not between 1 and the vocabulary's size")
        if self.is_resident:
            _check_resident(self.path, manifest)
        if self.precision not in _PRECISIONS:
            raise broken_manifest(self.path, f"precision is not one of {', '.join(_PRECISIONS)}")
        if self.scoring_path is not None:
            if "scoring" not in manifest:
                raise broken_manifest(self.path, "the field scoring is missing")
            if not 0 <= manifest["scoring"]["alignment_layer"] < config.num_decoder_layers:
                raise broken_manifest(self.path, "scoring.alignment_layer is no decoder layer")
            head = self.alignment_head
            if head is not None and (type(head) is not int or not 0 <= head < config.num_heads):
                raise broken_manifest(self.path, "scoring.alignment_head is no attention head")
        self._check_tokenizer()
        for name in _ENTRIES["onnxruntime"]:
            if not _VERSION.fullmatch(manifest["onnxruntime"][name]):
                raise broken_manifest(self.path, f"onnxruntime.{name} is not a version number")
        files = [(f"graphs.{name}", file) for name, file in manifest["graphs"].items()]
        files += [("tokenizer.files", file) for file in manifest["tokenizer"]["files"]]
        for field, file in files:
            if not isinstance(file, str):
                raise broken_manifest(self.path, f"{field}: {file!r:.100} is not a file name")
            if file not in manifest["sha256"]:
                raise broken_manifest(self.path, f"{field}: sha256 has no entry for {file!r:.100}")

    def _check_tokenizer(self) -> None:
        entry = self.manifest["tokenizer"]
        kinds = (SENTENCEPIECE, PIECES, JSON_PIECES)
        if entry["kind"] not in kinds:
            raise broken_manifest(
                self.path, f"tokenizer.kind is neither {', '.join(kinds[:-1])} nor {kinds[-1]}"
            )
        num_files = 1 if entry["kind"] == SENTENCEPIECE else len(TOKENIZER_FILES)
        if len(entry["files"]) < num_files:
            raise broken_manifest(self.path, f"tokenizer.files does not hold {num_files} names")
        if entry["kind"] == SENTENCEPIECE:
            return
        for name in _TOKEN_LISTS:
            ids = entry.get(name)
            if not isinstance(ids, list) or any(
                type(i) is not int or not 0 <= i < self.config.vocab_size for i in ids
            ):
                raise broken_manifest(self.path, f"tokenizer.{name} is not a list of token ids")

    def _check_directions(self) -> None:
        try:
            directions = self.directions
        except ValueError as exc:
            raise broken_manifest(self.path, f"directions.{exc}") from exc
        for code in (*directions.sources, *directions.targets):
            if not _LANGUAGE.fullmatch(code):
                raise broken_manifest(self.path, f"directions: {code!r:.100} is no BCP-47 code")
        if not directions.fits(self.source_language, self.target_language):
            raise broken_manifest(self.path, "languages is none of directions")
        if not directions.is_one and self.manifest["tokenizer"]["kind"] == SENTENCEPIECE:
            raise broken_manifest(
                self.path, f"directions need a tokenizer.kind of {PIECES} or {JSON_PIECES}"
            )

    def _check_runtime(self) -> None:
        installed = installed_runtime_version()
        wanted = self.manifest["onnxruntime"]
        if installed is None:
            return  # Nothing will run here; reading the manifest and the tokenizer is fine.
        if not _version(wanted["min"]) <= _version(installed) < _version(wanted["below"]):
            raise BundleVersionError(
                f"{self.path / MANIFEST_FILE}: this bundle was made for ONNX Runtime from "
                f"{wanted['min']} to below {wanted['below']}, but {installed} is installed: "
                f"install a version in that range, or export the checkpoint again"
            )

    def _hold_files(self) -> None:
        for name in sorted(self.manifest["sha256"]):
            if not _is_plain_name(name):
                raise broken_manifest(self.path, f"the file name {name!r} leaves the directory")
            try:
                self.files.hold(name)
            except (FileNotFoundError, NotADirectoryError, ValueError) as exc:
                raise BundleMissingError(
                    f"{self.path / name} is missing: copy the whole bundle again, or export it "
                    f"again"
                ) from exc


def write_manifest(directory: Path, manifest: Mapping[str, Any]) -> None:
    """Write `bundle.json` of format version 1 for the files that lie in `directory`.

    Args:
        directory: holds the bundle's other files already; all of them are listed with checksums.
        manifest: every field but `format_version` and `sha256`.
    """
    files = sorted(file for file in directory.iterdir() if file.name != MANIFEST_FILE)
    complete = {
        "format_version": FORMAT_VERSION,
        **manifest,
        "sha256": {file.name: file_sha256(file) for file in files},
    }
    _write(directory, complete)


def _write(directory: Path, manifest: Mapping[str, Any]) -> None:
    text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    (directory / MANIFEST_FILE).write_text(text, encoding="utf-8")


def add_calibration(directory: Path, calibration: Calibration) -> None:
    """Put a calibration into a bundle that exists, in place of the one that it had.

    Raises:
        BundleError: there is no bundle in the directory.
    """
    bundle = Bundle.load(directory, verify=False)
    calibration.write(directory / CALIBRATION_FILE)
    listed = {*bundle.manifest["sha256"], CALIBRATION_FILE}
    manifest = {
        **bundle.manifest,
        "sha256": {name: file_sha256(directory / name) for name in sorted(listed)},
    }
    _write(directory, manifest)


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
    if _LANGUAGE.fullmatch(code):
        return ""
    right = code.replace("_", "-")
    return "is no BCP-47 code" + (
        f", {code!r}: write {right}" if _LANGUAGE.fullmatch(right) else ""
    )


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


def _open(path: Path) -> tuple[HeldFiles, bytes]:
    """The directory and its manifest, held, and the manifest's content."""
    file = path / MANIFEST_FILE
    try:
        files = HeldFiles(path)
    except (FileNotFoundError, NotADirectoryError, ValueError) as exc:
        raise BundleMissingError(f"there is no bundle at {path}: it has to be a directory") from exc
    try:
        files.hold(MANIFEST_FILE)
    except FileNotFoundError as exc:
        if (path / "config.json").is_file() or any(path.glob("*.npz")):
            raise BundleMissingError(
                f"{path} is not a bundle: make one of a Hugging Face or Marian model with "
                f"`dragoman import {path} --output DIR`, of a checkpoint with `dragoman export`, "
                f"and serve that"
            ) from exc
        raise BundleMissingError(
            f"{file} is missing: is {path} a bundle? Make one with `dragoman export`"
        ) from exc
    return files, files.read(file)


def _read_manifest(path: Path, content: bytes) -> dict[str, Any]:
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
    _check_fields(path, manifest, _FIELDS, "")
    for field, entries in {**_ENTRIES, **_OPTIONAL_ENTRIES}.items():
        if field not in manifest and field in _OPTIONAL_ENTRIES:
            continue
        _check_fields(path, manifest, {field: dict}, "")
        _check_fields(path, manifest[field], entries, f"{field}.")
    return manifest


def _check_fields(
    path: Path, fields: Mapping[str, Any], wanted: Mapping[str, type], prefix: str
) -> None:
    for name, kind in wanted.items():
        if name not in fields:
            raise broken_manifest(path, f"the field {prefix}{name} is missing")
        if not isinstance(fields[name], kind) or isinstance(fields[name], bool):
            raise broken_manifest(path, f"the field {prefix}{name} is not of type {kind.__name__}")


def _check_resident(path: Path, manifest: Mapping[str, Any]) -> None:
    if not isinstance(manifest["resident"], dict):
        raise broken_manifest(path, "the field resident is not of type dict")
    _check_fields(path, manifest["resident"], {"token_groups": int}, "resident.")
    if not 0 <= manifest["resident"]["token_groups"] <= manifest["architecture"]["vocab_size"]:
        raise broken_manifest(
            path, "resident.token_groups is not between 0 and the vocabulary's size"
        )
    _check_fields(path, manifest["graphs"], dict.fromkeys(RESIDENT_GRAPHS, str), "graphs.")


def broken_manifest(path: Path, why: str) -> BundleCorruptError:
    """The error about the manifest of the bundle at `path`."""
    return BundleCorruptError(
        f"{path / MANIFEST_FILE} cannot be used: {why}; copy the bundle again, or export it again"
    )


def _words(value: Any) -> str:
    """A text of the provenance, which anything may have written; "" for anything else."""
    return value[:128] if isinstance(value, str) and value.isprintable() else ""


def _is_plain_name(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return bool(parts) and ".." not in parts and not PurePosixPath(name).is_absolute()


def _version(text: str) -> tuple[int, ...]:
    """The leading numbers: "1.31.1+cpu" gives (1, 31, 1)."""
    numbers: list[int] = []
    for part in text.split("+")[0].split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)
