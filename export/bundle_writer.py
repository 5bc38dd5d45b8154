"""Writes the files of a bundle. Does not import torch."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy.typing as npt
import onnx

from export.arithmetic import FixedSteps
from export.attention_graph import build_attention
from export.cache_graphs import build_cache_graphs
from export.cache_steps import CacheSteps
from export.decoder_step_graph import build_decoder_step
from export.encoder_graph import build_encoder
from export.errors import ExportError
from export.listed_choice import build_list_columns
from export.precisions import PRECISIONS
from export.scoring_graph import build_scoring
from export.shared_weights import SharedWeights
from export.weights import Weights
from model.bundle.config import AlignmentHead, ModelConfig, default_alignment_layer
from model.bundle.directions import Directions
from model.bundle.manifest import (
    JSON_PIECES,
    PIECES,
    RESIDENT_GRAPHS,
    SENTENCEPIECE,
    WEIGHTS_FILE,
    why_no_name,
    write_manifest,
)
from model.bundle.manifest_checks import installed_runtime_version
from model.bundle.piece_tokenizer import PieceTokenizer
from model.bundle.shortlist import SHORTLIST_FILE, Shortlist
from model.bundle.tokenizer import TOKENIZER_FILE

_log = logging.getLogger("dragoman.export")

DEFAULT_TOP_K = 8
ENCODER_FILE = "encoder.onnx"
DECODER_STEP_FILE = "decoder_step.onnx"
SCORING_FILE = "scoring.onnx"
ATTENTION_FILE = "attention.onnx"
SHORTLIST_STEP_FILE = "shortlist_step.onnx"
LIST_COLUMNS_FILE = "list_columns.onnx"
_MAX_RESIDENT_VOCABULARY = 2**24  # ids are copied to the host as float32, exact up to here


@dataclass(frozen=True)
class ExportSource:
    """The model that is exported.

    Attributes:
        arrays: the state dict of `model.network.transformer.Transformer` as arrays.
        tokenizer: a SentencePiece model with `config.vocab_size` pieces (its file), or the source
            language's tokenizer of an imported model.
        source_language, target_language: BCP-47 codes.
        provenance: origin of the weights; stored in the bundle unchanged.
        alignment_head: the head that was trained to align; None if none was.
        trained_length: tokens of a source, end-of-sentence included, up to which the training text
            had enough examples; None if that is not known. Longer texts are split.
        search: an imported model's default search, fields of `SearchOptions` by name; stored in the
            bundle.
        directions: all directions of a multilingual model, whose tokenizer is for the two
            languages; None if these are the only ones.
        shortlist: the target tokens that a sentence may produce; None for all, always.
        steps: prescribed steps of 8-bit numbers; see `export.weights.Weights`.
        cache_steps: steps of 8-bit keys and values (`export.calibration`); see there as well.
    """

    config: ModelConfig
    arrays: Mapping[str, npt.NDArray[Any]]
    tokenizer: Path | PieceTokenizer
    source_language: str
    target_language: str
    provenance: Mapping[str, Any] = field(default_factory=dict)
    alignment_head: AlignmentHead | None = None
    trained_length: int | None = None
    search: Mapping[str, Any] = field(default_factory=dict)
    directions: Directions | None = None
    shortlist: Shortlist | None = None
    steps: Mapping[str, FixedSteps] = field(default_factory=dict)
    cache_steps: CacheSteps = field(default_factory=dict)


@dataclass(frozen=True)
class ExportOptions:
    """Options of an export.

    Attributes:
        precision: fp32, fp16 or int8.
        name: the model's name; by default "<source>-<target>".
        top_k: tokens that a step returns for each row by default. Beam search needs twice its beam
            size.
        model_card: a file that becomes MODEL_CARD.md in the bundle.
        resident: whether to add the graphs that keep all state on a GPU between steps; None adds
            them for fp16, the only precision that GPUs run. (For other precisions they are used in
            tests on a CPU.)
        alignment_layer: the decoder layer, from 0, whose cross-attention, averaged over its heads,
            is the alignment; None for the head that was trained to align or, without one, for
            `model.config.default_alignment_layer`.
    """

    precision: str = "fp32"
    name: str | None = None
    version: str = "1"
    top_k: int = DEFAULT_TOP_K
    model_card: Path | None = None
    resident: bool | None = None
    alignment_layer: int | None = None

    def check(self, shortlist_from: tuple[Path, Path] | None = None) -> None:
        """Check the options, before the model is read.

        Args:
            shortlist_from: the texts to make a shortlist from, if any.

        Raises:
            ExportError: no such precision, a shortlist for a GPU, or a name that no bundle can
                have; names the option.
        """
        if shortlist_from is not None and self.is_resident:
            raise ExportError(
                "--shortlist-from is for CPUs: a GPU computes the whole vocabulary; leave it out, "
                "or choose another --precision"
            )
        if self.precision not in PRECISIONS:
            known = ", ".join(PRECISIONS)
            raise ExportError(f"precision must be one of {known}, not {self.precision!r}")
        for option, given in (("--name", self.name), ("--model-version", self.version)):
            if given is not None and (why := why_no_name(given)):
                raise ExportError(f"{option}: {given!r} {why}")

    @property
    def is_resident(self) -> bool:
        """Whether the bundle gets the graphs for GPUs."""
        return self.precision == "fp16" if self.resident is None else self.resident


def write_bundle(source: ExportSource, options: ExportOptions, directory: Path) -> None:
    """Write a bundle, without a parity check, into the existing, empty `directory`.

    The same source and options give the same bytes.

    Raises:
        ExportError: the model can't be exported; names the field or weight.
    """
    _check_exportable(source.config, options)
    if options.is_resident:
        source = replace(source, shortlist=None)  # a GPU computes the whole vocabulary
    if source.shortlist is not None:
        (directory / SHORTLIST_FILE).write_bytes(source.shortlist.to_bytes())
    with SharedWeights(directory / WEIGHTS_FILE) as shared:
        for name, model in _graphs(source, options, shared):
            (directory / name).write_bytes(model.SerializeToString(deterministic=True))
            del model  # before the next one is made
    tokenizer = _write_tokenizer(source.tokenizer, directory)
    if options.model_card is not None:
        shutil.copyfile(options.model_card, directory / "MODEL_CARD.md")
    write_manifest(directory, {**_manifest(source, options), "tokenizer": tokenizer})


def _write_tokenizer(tokenizer: Path | PieceTokenizer, directory: Path) -> dict[str, Any]:
    """The manifest's entry about the files that it writes."""
    if isinstance(tokenizer, Path):
        shutil.copyfile(tokenizer, directory / TOKENIZER_FILE)
        return {"kind": SENTENCEPIECE, "files": [TOKENIZER_FILE]}
    files = tokenizer.files()
    for name, content in files.items():
        (directory / name).write_bytes(content)
    vocabulary = tokenizer.vocabulary
    return {
        "kind": JSON_PIECES if tokenizer.is_json else PIECES,
        "files": list(files),
        "prefix_ids": list(vocabulary.prefix_ids),
        "start_ids": list(tokenizer.target.start_ids),
        "special_ids": sorted(vocabulary.special_ids),
        **({"cleans_up": True} if tokenizer.target.vocabulary.cleans_up else {}),
    }


def _graphs(
    source: ExportSource, options: ExportOptions, shared: SharedWeights
) -> Iterator[tuple[str, onnx.ModelProto]]:
    """Build one graph after another: a large model's graphs need not fit into memory together."""
    config, precision, resident = source.config, options.precision, options.is_resident
    weights = Weights(source.arrays, config, shared, source.steps, source.cache_steps)
    _log.info("writing %s", ENCODER_FILE)
    yield ENCODER_FILE, build_encoder(config, weights, precision, resident=resident)
    _log.info("writing %s", DECODER_STEP_FILE)
    yield DECODER_STEP_FILE, build_decoder_step(config, weights, precision, resident=resident)
    layer, head = _alignment(source, options)
    _log.info("writing %s", SCORING_FILE)
    yield SCORING_FILE, build_scoring(config, weights, precision, layer, head)
    _log.info("writing %s", ATTENTION_FILE)
    yield ATTENTION_FILE, build_attention(config, weights, precision)
    if source.shortlist is not None:
        _log.info("writing %s", SHORTLIST_STEP_FILE)
        yield SHORTLIST_STEP_FILE, build_decoder_step(config, weights, precision, listed=True)
        yield LIST_COLUMNS_FILE, build_list_columns(config, weights, precision)
    if resident:
        dtype = "float16" if precision == "fp16" else "float32"
        for name, graph in build_cache_graphs(config, dtype):
            yield f"{name}.onnx", graph


def _alignment(source: ExportSource, options: ExportOptions) -> tuple[int, int | None]:
    """The decoder layer that aligns, and its head; None for the mean of all heads."""
    config, layer = source.config, options.alignment_layer
    if layer is not None and config.cross_attention != "full":
        raise ExportError(
            f"alignment_layer must not be given with cross_attention = {config.cross_attention!r}, "
            f"which does not say which source tokens it looks at"
        )
    if layer is None:
        if source.alignment_head is not None:
            return source.alignment_head.layer, source.alignment_head.head
        return default_alignment_layer(config), None
    if not 0 <= layer < config.num_decoder_layers:
        raise ExportError(
            f"alignment_layer must be between 0 and {config.num_decoder_layers - 1}, the last "
            f"decoder layer, not {layer}"
        )
    return layer, None


def _check_exportable(config: ModelConfig, options: ExportOptions) -> None:
    if config.head_dim % 8:
        raise ExportError(
            f"d_model / num_heads is {config.head_dim}, but the attention operator of the served "
            f"graphs needs a multiple of 8: train with another num_heads or d_model"
        )
    if not 1 <= options.top_k <= config.vocab_size:
        raise ExportError(f"top_k must be between 1 and vocab_size, not {options.top_k}")
    if options.is_resident and config.vocab_size > _MAX_RESIDENT_VOCABULARY:
        raise ExportError(
            f"vocab_size is {config.vocab_size}, but a GPU bundle can have at most "
            f"{_MAX_RESIDENT_VOCABULARY}"
        )


def _manifest(source: ExportSource, options: ExportOptions) -> dict[str, Any]:
    config = source.config
    runtime = installed_runtime_version()
    if runtime is None:
        raise ExportError("ONNX Runtime is not installed: install the extra `cpu`")
    major, minor = runtime.split(".")[:2]
    graphs = {
        "encoder": ENCODER_FILE,
        "decoder_step": DECODER_STEP_FILE,
        "scoring": SCORING_FILE,
        "attention": ATTENTION_FILE,
    }
    layer, head = _alignment(source, options)
    scoring = {"alignment_layer": layer, **({} if head is None else {"alignment_head": head})}
    optional: dict[str, Any] = {}
    if source.cache_steps:
        optional["caches"] = {"dtype": "int8"}
    if options.is_resident:
        graphs |= {name: f"{name}.onnx" for name in RESIDENT_GRAPHS}
        optional["resident"] = {"token_groups": 0}
    if source.shortlist is not None:
        graphs |= {"shortlist_step": SHORTLIST_STEP_FILE, "list_columns": LIST_COLUMNS_FILE}
    return {
        "name": options.name or f"{source.source_language}-{source.target_language}",
        "version": options.version,
        "architecture": config.to_dict(),
        "languages": {"source": source.source_language, "target": source.target_language},
        "special_ids": {
            "pad": config.pad_id,
            "unk": config.unk_id,
            "bos": config.bos_id,
            "eos": config.eos_id,
        },
        "limits": {
            "max_source_positions": min(
                source.trained_length or config.num_source_positions, config.num_source_positions
            ),
            "max_target_positions": config.num_target_positions,
        },
        "precision": options.precision,
        "top_k": options.top_k,
        "graphs": graphs,
        "scoring": scoring,
        "tokenizer": {},
        # Contrib operators have no versions of their own: promise only the runtime that was tested.
        "onnxruntime": {"min": f"{major}.{minor}", "below": f"{major}.{int(minor) + 1}"},
        "provenance": dict(source.provenance),
        **optional,
        **({"search": dict(source.search)} if source.search else {}),
        **({"shortlist": {"file": SHORTLIST_FILE}} if source.shortlist is not None else {}),
        **({"directions": source.directions.to_dict()} if source.directions else {}),
    }
