"""The bundle: a directory with everything that is served, and nothing that needs torch.

    bundle.json          what the model is, how its graphs are used, checksums of all files
    encoder.onnx         source ids -> cross-attention keys and values
    decoder_step.onnx    one token for every running row
    scoring.onnx         log-probabilities and alignment of a given target; optional
    attention.onnx       attention weights of a given target, by kind, layer and head; optional
    shortlist.bin        the target tokens that a sentence may produce (`model.bundle.shortlist`);
                         optional, with shortlist_step.onnx, a decoder step that chooses among
                         them, and list_columns.onnx, which returns their weights
    weights.bin          the graphs' weights; optional: a graph can hold its own
    copy_rows.onnx, set_rows.onnx, store_sources.onnx
                         only of a bundle for GPUs: what stays there between two steps
    tokenizer.model      SentencePiece; of an imported model, the files of
                         `model.bundle.piece_tokenizer`
    calibration.json     from log-probabilities to expected quality (`model.bundle.calibration`);
                         optional
    MODEL_CARD.md        optional

Format version 1. A later version may add fields, which this reader ignores; it may not remove or
reinterpret one without a new version number. Files that the manifest doesn't list are left alone.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from model.bundle.calibration import Calibration, CalibrationError
from model.bundle.carriers import DEFAULT_CARRIERS, Carrier, parse_carriers
from model.bundle.config import ConfigError, ModelConfig
from model.bundle.directions import Directions
from model.bundle.held_files import HeldFiles
from model.bundle.manifest import (
    CALIBRATION_FILE,
    ENTRIES,
    MANIFEST_FILE,
    SENTENCEPIECE,
    TOKEN_LISTS,
    WEIGHTS_FILE,
    BundleCorruptError,
    BundleError,
    BundleMissingError,
    broken_manifest,
    file_sha256,
    read_manifest,
    rewrite_manifest,
)
from model.bundle.manifest_checks import check_consistency, check_runtime
from model.bundle.origin import origin_of
from model.bundle.piece_tokenizer import PieceTokenizer
from model.bundle.tokenizer import MissingPackageError, Tokenizer, TokenizerError


@dataclass(frozen=True)
class Bundle:
    """A bundle on disk whose manifest has been read and, unless asked otherwise, verified.

    Its files are opened before they are verified, and stay open for later reads. So a bundle may be
    renamed, replaced or deleted afterwards.

    Attributes:
        manifest: contents of `bundle.json`.
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
            verify: whether to read every file and compare its checksum.

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
        manifest = read_manifest(path, content)
        try:
            config = ModelConfig.from_dict(manifest["architecture"])
        except ConfigError as exc:
            raise broken_manifest(path, f"architecture: {exc}") from exc
        bundle = cls(path, manifest, config, files, hashlib.sha256(content).hexdigest())
        check_consistency(bundle)
        check_runtime(bundle)
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
    def carriers(self) -> tuple[Carrier, ...]:
        """Strings that the model copies, best first; by default those that most models copy."""
        if "carriers" not in self.manifest:
            return DEFAULT_CARRIERS
        return parse_carriers(self.manifest["carriers"])

    @property
    def origin(self) -> str:
        """The origin of the weights, in words; "" if the manifest does not say."""
        return origin_of(self.manifest["provenance"])

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
    def dtype(self) -> str:
        """Element type of activations: "float32" or "float16"."""
        return "float16" if self.precision == "fp16" else "float32"

    @property
    def cache_dtype(self) -> str:
        """Element type of attention keys and values: that of activations, or "int8"."""
        return str(self.manifest.get("caches", {}).get("dtype", self.dtype))

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
        """The scoring graph; None in an older bundle."""
        name = self.manifest["graphs"].get("scoring")
        return None if name is None else self.path / str(name)

    @property
    def attention_path(self) -> Path | None:
        """The attention graph; None in an older bundle."""
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
                ids = {name: entry[name] for name in TOKEN_LISTS}
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
        for name in ENTRIES["special_ids"]:
            known, said = getattr(tokenizer, f"{name}_id"), getattr(self.config, f"{name}_id")
            if known not in (-1, said):  # -1: there is none
                raise BundleCorruptError(
                    f"{file} has {name} at {known}, but architecture.{name}_id is {said}: "
                    f"export the bundle again"
                )
        return tokenizer

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
    rewrite_manifest(directory, manifest)


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


def _is_plain_name(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return bool(parts) and ".." not in parts and not PurePosixPath(name).is_absolute()
